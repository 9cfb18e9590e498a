"""Serializers for `headrace.Producer` and `Consumer` whose schemas live in a registry.

    clicks = avro_serializer(registry, SCHEMA, topic="clicks")
    Producer(servers, value_serializer=clicks)
    Consumer(servers, value_deserializer=clicks)

Each writes with one schema and reads all values of its format; `any_deserializer` reads all formats. The
first value sends the first request to the registry.
"""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client.serializers import NotSerializable, Serializer
from headrace.records._messages import Message
from headrace.schema_formats.schema import Schema, SchemaType
from headrace.schemas.errors import SchemaError
from headrace.schemas.reading import Reading
from headrace.schemas.registry import Registered, Registry
from headrace.schemas.subjects import Registration, SubjectNaming, by_topic
from headrace.schemas.wire import KEY_HEADER, VALUE_HEADER, header_value, prefix

if TYPE_CHECKING:
    import google.protobuf.message

Encode = Callable[[Any], bytes]


@dataclass(slots=True, frozen=True)
class SchemaSerializer(Serializer[Any]):
    """A Serializer that can also put the schema id into a header instead of the value."""

    writing: "Writing | None"
    reading: Reading

    def with_header(self, value: Any) -> tuple[bytes, tuple[str, bytes]]:
        """The bytes without a schema id, and the header that has the id.

        >>> from headrace.schemas import Registry, json_serializer
        >>> names = json_serializer(Registry(registry_url), '{"type": "string"}', topic="names")
        >>> names.with_header("ada")[0]
        b'"ada"'
        """
        if self.writing is None:
            raise NotSerializable("this deserializer cannot serialize")
        return self.writing.with_header(value)

    def read(self, message: Message, part: str = "value") -> Any:
        """The value of a record whose schema id is in front of the value or in a header."""
        return self.reading.read_message(message, part)


class _Version(NamedTuple):
    """A registered schema, and how values are written with it."""

    registered: Registered
    encode: Encode
    prefix: bytes
    indexes: tuple[int, ...] | None


class Writing:
    """Writes with one schema, after its id was looked up.

    Threads share it, as they share a producer: a version is replaced as a whole, so that nobody writes one
    version's id in front of another one's bytes.
    """

    def __init__(
        self,
        registry: Registry,
        schema: Schema | None,
        registration: Registration,
        encoder: Callable[[Schema], tuple[Encode, tuple[int, ...] | None]],
    ) -> None:
        if schema is None and not registration.use_latest:
            raise SchemaError("the serializer needs a schema, or use_latest=True")
        self._registry = registry
        self._schema = schema
        self._registration = registration
        self._encoder = encoder
        self._known: _Version | None = None

    def write(self, value: Any) -> bytes:
        version = self._version()
        return version.prefix + version.encode(value)

    def with_header(self, value: Any) -> tuple[bytes, tuple[str, bytes]]:
        version = self._version()
        guid = version.registered.guid
        if guid is None:
            raise SchemaError(
                "an id in a header needs a guid, which this registry does not return: use a newer one"
            )
        name = KEY_HEADER if self._registration.part == "key" else VALUE_HEADER
        return version.encode(value), (name, header_value(guid, version.indexes))

    def _version(self) -> _Version:
        known = self._known
        if known is not None and not self._registration.use_latest:
            return known
        found = self._registration.resolve(self._registry, self._schema)
        if known is None or found.id != known.registered.id:
            encode, indexes = self._encoder(found.schema)
            known = self._known = _Version(found, encode, prefix(found.id, indexes), indexes)
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
    """Serializer of Avro values: dicts, dataclasses and pydantic models for records. With a `reader_schema`,
    values of every version are converted to it.
    """
    registration = Registration(topic, part, subject, naming, auto_register, use_latest)

    def encoder(schema: Schema) -> tuple[Encode, None]:
        from headrace.schemas import avro

        write = avro.writer(avro.compiled(schema.text, registry.imports(schema)))
        return lambda value: write(plain(value)), None

    reading = Reading(registry, schema=_schema(reader_schema, SchemaType.AVRO))
    return _serializer(registry, _schema(schema, SchemaType.AVRO), registration, encoder, reading)


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
    """Serializer of JSON values. `validate` is called with each value and may raise an error, as the method
    of that name of jsonschema's validators does.
    """
    registration = Registration(topic, part, subject, naming, auto_register, use_latest)

    def encode(value: Any) -> bytes:
        value = plain(value)
        if validate is not None:
            validate(value)
        return json_bytes(value)

    reading = Reading(registry)
    return _serializer(
        registry, _schema(schema, SchemaType.JSON), registration, lambda schema: (encode, None), reading
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
    """Serializer of Protobuf messages: of a generated class, or of the message with a name (by default the
    first) in the text of a schema. Values to write are messages or dicts. Values read are messages (of the
    class, if one is passed), or dicts with `as_dict`.
    """
    registration = Registration(topic, part, subject, naming, auto_register, use_latest)
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
    return _serializer(registry, given, registration, encoder, reading)


def any_deserializer(registry: Registry) -> SchemaSerializer:
    """Deserializer of every format, by the schema of each value; records and messages are dicts."""
    reading = Reading(registry, as_dict=True)

    def refuse(value: Any) -> bytes:
        raise NotSerializable("this deserializer cannot serialize")

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
    registration: Registration,
    encoder: Callable[[Schema], tuple[Encode, tuple[int, ...] | None]],
    reading: Reading,
) -> SchemaSerializer:
    writing = Writing(registry, schema, registration, encoder)
    return SchemaSerializer(writing.write, reading.read, writing, reading)


def _schema(given: str | dict[str, Any] | Schema | None, kind: SchemaType) -> Schema | None:
    if given is None or isinstance(given, Schema):
        return given
    text = given if isinstance(given, str) else json.dumps(given)
    return Schema(text, kind)


def _schema_of_file(registry: Registry, file: Any, *, auto_register: bool) -> Schema:
    """The schema of a generated module; files that it imports are registered under their paths."""
    import base64

    from headrace.schema_formats.protobuf.schema import text_of
    from headrace.schema_formats.protobuf.well_known import types_of
    from headrace.schema_formats.schema import Reference

    references = []
    for imported in file.dependencies:
        if types_of(imported.name) is None:
            schema = _schema_of_file(registry, imported, auto_register=auto_register)
            ask = registry.register_version if auto_register else registry.find
            references.append(Reference(imported.name, imported.name, ask(imported.name, schema).version))
    text = text_of(base64.b64encode(file.serialized_pb).decode())
    return Schema(text, SchemaType.PROTOBUF, tuple(references))
