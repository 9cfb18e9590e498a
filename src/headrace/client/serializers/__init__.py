"""Values of Python as bytes and back: a serializer is a pair of functions.

    orders = Serializer(serialize=Order.to_bytes, deserialize=Order.from_bytes)

Ready ones: `TEXT`, `BYTES`, `JSON`, and `dataclass_json`, `msgspec_json`, `msgspec_messagepack` and
`pydantic_json` for a type; `serializer_for` chooses one by the type alone. A null stays a null: neither
function is ever given None.
"""

from headrace.client.serializers.choice import serializer_for
from headrace.client.serializers.dataclass import dataclass_json
from headrace.client.serializers.models import msgspec_json, msgspec_messagepack, pydantic_json
from headrace.client.serializers.plain import BYTES, JSON, TEXT
from headrace.client.serializers.serializer import NotSerializable, Serializer, Undecodable

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "NotSerializable",
    "Serializer",
    "Undecodable",
    "dataclass_json",
    "msgspec_json",
    "msgspec_messagepack",
    "pydantic_json",
    "serializer_for",
]
