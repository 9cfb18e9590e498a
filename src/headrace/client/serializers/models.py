"""Types of msgspec and pydantic; each library is needed only by whoever uses its serializer."""

from typing import TYPE_CHECKING, Any, TypeVar

from headrace.client.serializers.serializer import Serializer

if TYPE_CHECKING:
    import pydantic

T = TypeVar("T")


def msgspec_json(kind: type[T]) -> Serializer[T]:
    """JSON of anything that msgspec knows: its Structs, dataclasses, attrs classes, plain types."""
    import msgspec

    return Serializer(msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode)


def msgspec_messagepack(kind: type[T]) -> Serializer[T]:
    """The same as MessagePack: smaller, and not for people to read."""
    import msgspec

    return Serializer(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(kind).decode)


def pydantic_json(model: "type[pydantic.BaseModel]") -> Serializer[Any]:
    """JSON of a pydantic model, validated on the way in."""

    def serialize(value: "pydantic.BaseModel") -> bytes:
        text: str = value.model_dump_json()
        return text.encode()

    return Serializer(serialize, model.model_validate_json)
