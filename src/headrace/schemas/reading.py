"""Decoding of values with a schema id; the decoder of each id is made once."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.records._messages import Message
from headrace.schema_formats.schema import Schema, SchemaType
from headrace.schemas.errors import SchemaError
from headrace.schemas.registry import Registry
from headrace.schemas.wire import FIRST, KEY_HEADER, VALUE_HEADER, Frame, read_frame, read_indexes

if TYPE_CHECKING:
    import google.protobuf.message

Decode = Callable[[bytes], Any]


class Reading:
    """Reads values of any format; a reader's schema converts all versions to one."""

    def __init__(
        self,
        registry: Registry,
        *,
        schema: Schema | None = None,
        message: "str | type[google.protobuf.message.Message] | None" = None,
        as_dict: bool = False,
    ) -> None:
        """`message` is a Protobuf message's name, or the class that it is to be read as."""
        self._registry = registry
        self._schema = schema
        self._message = message
        self._as_dict = as_dict
        self._decoders: dict[tuple[int, tuple[int, ...]], Decode] = {}

    def read(self, data: bytes) -> Any:
        """The value of bytes that begin with a schema id."""
        frame = read_frame(data, with_indexes=False)
        id, indexes, at = self._id(frame), FIRST, frame.payload_at
        if self._registry.schema(id).type is SchemaType.PROTOBUF:
            indexes, at = read_indexes(data, at)
        return self._decoder(id, indexes)(data[at:])

    def read_message(self, message: Message, part: str = "value") -> Any:
        """The value of a record whose schema id may be in a header instead."""
        data = getattr(message, part)
        if data is None:
            return None
        name = KEY_HEADER if part == "key" else VALUE_HEADER
        for header, value in message.headers:
            if header == name and value is not None:
                frame = read_frame(value, with_indexes=False)
                id, indexes = self._id(frame), FIRST
                if self._registry.schema(id).type is SchemaType.PROTOBUF and frame.payload_at < len(value):
                    indexes, _ = read_indexes(value, frame.payload_at)
                return self._decoder(id, indexes)(data)
        return self.read(data)

    def _id(self, frame: Frame) -> int:
        if frame.id is not None:
            return frame.id
        assert frame.guid is not None
        return self._registry.id_of_guid(frame.guid)

    def _decoder(self, id: int, indexes: tuple[int, ...]) -> Decode:
        found = self._decoders.get((id, indexes))
        if found is None:
            found = self._decoders[id, indexes] = self._made(self._registry.schema(id), indexes)
        return found

    def _made(self, written: Schema, indexes: tuple[int, ...]) -> Decode:
        wanted = self._schema
        if wanted is not None and wanted.type is not written.type:
            raise SchemaError(f"the value was written as {written.type}, not as {wanted.type}")
        match written.type:
            case SchemaType.AVRO:
                return self._avro(written, wanted)
            case SchemaType.JSON:
                return json.loads
            case SchemaType.PROTOBUF:
                return self._protobuf(written, wanted, indexes)

    def _avro(self, written: Schema, wanted: Schema | None) -> Decode:
        from headrace.schemas import avro

        imports = self._registry.imports
        shown = None if wanted is None else avro.compiled(wanted.text, imports(wanted))
        return avro.reader(avro.compiled(written.text, imports(written)), shown)

    def _protobuf(self, written: Schema, wanted: Schema | None, indexes: tuple[int, ...]) -> Decode:
        from headrace.schemas.protobuf import ProtobufFile, message_class, to_dict

        file = ProtobufFile(written.text, self._registry.imports(written))
        made: Any
        if isinstance(self._message, type):
            made = self._message
        elif wanted is not None:
            reader = ProtobufFile(wanted.text, self._registry.imports(wanted)).message(self._message)
            made = message_class(reader)
        else:
            made = message_class(file.at(indexes, self._message))
        descriptor = file.at(indexes, made.DESCRIPTOR.full_name)
        if descriptor.full_name != made.DESCRIPTOR.full_name:
            raise SchemaError(f"the value is a {descriptor.full_name}, not a {made.DESCRIPTOR.full_name}")
        parse = made.FromString
        if not self._as_dict:
            return parse  # type: ignore[no-any-return]
        return lambda data: to_dict(parse(data))
