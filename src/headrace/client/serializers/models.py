"""Types of msgspec and pydantic; each library is needed only by whoever uses its serializer."""

from typing import TYPE_CHECKING, Any, TypeVar

from headrace.base.extras import require
from headrace.client.serializers.serializer import Serializer

if TYPE_CHECKING:
    import pydantic

T = TypeVar("T")


def msgspec_json(kind: type[T]) -> Serializer[T]:
    """JSON of anything that msgspec knows: its Structs, dataclasses, attrs classes, plain types.

    >>> headrace.msgspec_json(dict[str, int]).to_bytes({"tea": 2})
    b'{"tea":2}'
    """
    require("msgspec", "msgspec_json()")
    import msgspec

    return Serializer(msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode)


def msgspec_messagepack(kind: type[T]) -> Serializer[T]:
    """The same as MessagePack: smaller, and not for people to read.

    >>> headrace.msgspec_messagepack(dict[str, int]).to_bytes({"tea": 2})
    b'\\x81\\xa3tea\\x02'
    """
    require("msgspec", "msgspec_messagepack()")
    import msgspec

    return Serializer(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(kind).decode)


def pydantic_json(model: "type[pydantic.BaseModel]") -> Serializer[Any]:
    """JSON of a pydantic model, validated on the way in.

    >>> import pydantic
    >>> Order = pydantic.create_model("Order", item=(str, ...), count=(int, ...))
    >>> orders = headrace.pydantic_json(Order)
    >>> orders.to_bytes(Order(item="tea", count=2)), orders.from_bytes(b'{"item":"tea","count":"2"}')
    (b'{"item":"tea","count":2}', Order(item='tea', count=2))
    """

    def serialize(value: "pydantic.BaseModel") -> bytes:
        text: str = value.model_dump_json()
        return text.encode()

    return Serializer(serialize, model.model_validate_json)
