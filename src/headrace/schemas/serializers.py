"""Serializers for `headrace.Producer` and `Consumer` whose schemas live in a registry.

    clicks = avro_serializer(registry, SCHEMA, topic="clicks")
    Producer(servers, value_serializer=clicks)
    Consumer(servers, value_deserializer=clicks)

Each writes with one schema and reads whatever was written in its format; `any_deserializer` reads all
formats. The registry is asked when the first value comes.
"""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.client.serializers import NotSerializable, Serializer
from headrace.machines.schemas.schema import Schema, SchemaType
from headrace.records._messages import Message
from headrace.schemas.errors import SchemaError
from headrace.schemas.place import Place
from headrace.schemas.reading import Reading
from headrace.schemas.registry import Registered, Registry
from headrace.schemas.subjects import SubjectNaming, by_topic
from headrace.schemas.wire import KEY_HEADER, VALUE_HEADER, header_value, prefix

if TYPE_CHECKING:
    import google.protobuf.message

Encode = Callable[[Any], bytes]


@dataclass(slots=True, frozen=True)
class SchemaSerializer(Serializer[Any]):
    """A Serializer that can also keep the schema's id in a header, and the bytes free of it."""

    writing: "Writing | None"
    reading: Reading

    def with_header(self, value: Any) -> tuple[bytes, tuple[str, bytes]]:
        """The bytes alone, and the header that says what they are.

        >>> from headrace.schemas import Registry, json_serializer
        >>> names = json_serializer(Registry(registry_url), '{"type": "string"}', topic="names")
        >>> names.with_header("ada")[0]
        b'"ada"'
        """
        if self.writing is None:
            raise NotSerializable("this one only reads")
        return self.writing.with_header(value)

    def read(self, message: Message, part: str = "value") -> Any:
        """The value of a record, wherever its id stands."""
        return self.reading.read_message(message, part)


class Writing:
    """Writes with one schema, once it is known which id it has."""

    def __init__(
        self,
        registry: Registry,
        schema: Schema | None,
        place: Place,
        encoder: Callable[[Schema], tuple[Encode, tuple[int, ...] | None]],
    ) -> None:
        if schema is None and not place.use_latest:
            raise SchemaError("give a schema, or use_latest=True")
        self._registry = registry
        self._schema = schema
        self._place = place
        self._encoder = encoder
        self._known: Registered | None = None
        self._encode: Encode
        self._prefix = b""
        self._indexes: tuple[int, ...] | None = None

    def write(self, value: Any) -> bytes:
        self._prepare()
        return self._prefix + self._encode(value)

    def with_header(self, value: Any) -> tuple[bytes, tuple[str, bytes]]:
        known = self._prepare()
        if known.guid is None:
            raise SchemaError("the registry gives no guids: it is too old for ids in headers")
        name = KEY_HEADER if self._place.part == "key" else VALUE_HEADER
        return self._encode(value), (name, header_value(known.guid, self._indexes))

    def _prepare(self) -> Registered:
        if self._known is not None and not self._place.use_latest:
            return self._known
        known = self._place.registered(self._registry, self._schema)
        if self._known is None or known.id != self._known.id:
            self._encode, self._indexes = self._encoder(known.schema)
            self._prefix = prefix(known.id, self._indexes)
            self._known = known
        return known


def avro_serializer(
    registry: Registry,
    schema: str | dict[str, Any] | Schema | None = None,
    *,
    reader_schema: str | dict[str, Any] | Schema | None = None,
    topic: str | None = None,
    part: str = "value",
    subject: str | None = None,
    naming: SubjectNaming = by_topic,
    auto_register: bool = True,
    use_latest: bool = False,
) -> SchemaSerializer:
    """Values are what the schema says: dicts for records; dataclasses and pydantic models are taken too.
    With a `reader_schema` everything is read as it says, whichever version wrote it.
    """
    place = Place(topic, part, subject, naming, auto_register, use_latest)

    def encoder(schema: Schema) -> tuple[Encode, None]:
        from headrace.schemas import avro

        write = avro.writer(avro.compiled(schema.text, registry.imports(schema)))
        return lambda value: write(plain(value)), None

    reading = Reading(registry, schema=_schema(reader_schema, SchemaType.AVRO))
    return _serializer(registry, _schema(schema, SchemaType.AVRO), place, encoder, reading)


def json_serializer(
    registry: Registry,
    schema: str | dict[str, Any] | Schema | None = None,
    *,
    topic: str | None = None,
    part: str = "value",
    subject: str | None = None,
    naming: SubjectNaming = by_topic,
    auto_register: bool = True,
    use_latest: bool = False,
    validate: Callable[[Any], object] | None = None,
) -> SchemaSerializer:
    """Values are what JSON has; `validate` may raise for those that the schema does not allow, as the method
    of that name of jsonschema's validators does.
    """
    place = Place(topic, part, subject, naming, auto_register, use_latest)

    def encode(value: Any) -> bytes:
        value = plain(value)
        if validate is not None:
            validate(value)
        return json_bytes(value)

    reading = Reading(registry)
    return _serializer(
        registry, _schema(schema, SchemaType.JSON), place, lambda schema: (encode, None), reading
    )


def protobuf_serializer(
    registry: Registry,
    message: "type[google.protobuf.message.Message] | str | None" = None,
    *,
    schema: str | Schema | None = None,
    topic: str | None = None,
    part: str = "value",
    subject: str | None = None,
    naming: SubjectNaming = by_topic,
    auto_register: bool = True,
    use_latest: bool = False,
    as_dict: bool = False,
) -> SchemaSerializer:
    """With a generated class, or with a schema's text and the name of one of its messages (the first, if
    none is given). Values are messages or dicts, and read as messages (of that class, if there is one), or
    as dicts if `as_dict`.
    """
    place = Place(topic, part, subject, naming, auto_register, use_latest)
    name = message if isinstance(message, str) or message is None else message.DESCRIPTOR.full_name
    given = _schema(schema, SchemaType.PROTOBUF)
    if given is None and message is not None and not isinstance(message, str):
        given = _schema_of_file(registry, message.DESCRIPTOR.file, auto_register=auto_register)

    def encoder(schema: Schema) -> tuple[Encode, tuple[int, ...]]:
        from headrace.schemas.protobuf import ProtobufFile, from_dict, is_message, message_class

        file = ProtobufFile(schema.text, registry.imports(schema))
        descriptor = file.message(name)
        made = message_class(descriptor)

        def encode(value: Any) -> bytes:
            if is_message(value):
                if value.DESCRIPTOR.full_name != descriptor.full_name:
                    raise NotSerializable(f"{value.DESCRIPTOR.full_name} is not {descriptor.full_name}")
                written: bytes = value.SerializeToString()
            else:
                written = from_dict(plain(value), made()).SerializeToString()
            return written

        return encode, file.indexes_of(descriptor)

    reading = Reading(registry, schema=given, message=message, as_dict=as_dict)
    return _serializer(registry, given, place, encoder, reading)


def any_deserializer(registry: Registry) -> SchemaSerializer:
    """Reads every format as its own schema says: Avro and JSON as dicts, Protobuf as dicts too."""
    reading = Reading(registry, as_dict=True)

    def refuse(value: Any) -> bytes:
        raise NotSerializable("this one only reads")

    return SchemaSerializer(refuse, reading.read, None, reading)


_json_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_bytes(value: Any) -> bytes:
    return _json_text(value).encode()


def plain(value: Any) -> Any:
    """Dataclasses and pydantic models as dicts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _serializer(
    registry: Registry,
    schema: Schema | None,
    place: Place,
    encoder: Callable[[Schema], tuple[Encode, tuple[int, ...] | None]],
    reading: Reading,
) -> SchemaSerializer:
    writing = Writing(registry, schema, place, encoder)
    return SchemaSerializer(writing.write, reading.read, writing, reading)


def _schema(given: str | dict[str, Any] | Schema | None, kind: SchemaType) -> Schema | None:
    if given is None or isinstance(given, Schema):
        return given
    text = given if isinstance(given, str) else json.dumps(given)
    return Schema(text, kind)


def _schema_of_file(registry: Registry, file: Any, *, auto_register: bool) -> Schema:
    """The schema of a generated module; files that it imports are registered under their paths."""
    import base64

    from headrace.machines.schemas.protobuf.schema import text_of
    from headrace.machines.schemas.protobuf.well_known import types_of
    from headrace.machines.schemas.schema import Reference

    references = []
    for imported in file.dependencies:
        if types_of(imported.name) is None:
            schema = _schema_of_file(registry, imported, auto_register=auto_register)
            ask = registry.registered if auto_register else registry.find
            references.append(Reference(imported.name, imported.name, ask(imported.name, schema).version))
    text = text_of(base64.b64encode(file.serialized_pb).decode())
    return Schema(text, SchemaType.PROTOBUF, tuple(references))
