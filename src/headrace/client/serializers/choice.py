"""The serializer for a type."""

import dataclasses
import sys
from typing import Any

from headrace.client.serializers.dataclass import dataclass_json
from headrace.client.serializers.models import msgspec_json, pydantic_json
from headrace.client.serializers.plain import BYTES, JSON, TEXT
from headrace.client.serializers.serializer import Serializer


def serializer_for(kind: Any) -> Serializer[Any]:
    """By the type alone: text, bytes, JSON for dict and list, and models by their library.

    >>> headrace.serializer_for(dict).to_bytes({"item": "tea"})
    b'{"item":"tea"}'
    """
    if kind is str:
        return TEXT
    if kind is bytes:
        return BYTES
    if kind in (dict, list) or kind is Any:
        return JSON
    if isinstance(kind, type):
        # whoever has such a class has loaded its library
        if _is_subclass(kind, "msgspec", "Struct"):
            return msgspec_json(kind)
        if _is_subclass(kind, "pydantic", "BaseModel"):
            return pydantic_json(kind)
        if dataclasses.is_dataclass(kind):
            return dataclass_json(kind)
    raise TypeError(
        f"there is no ready serializer for {kind}; make one as Serializer(serialize, deserialize)"
    )


def _is_subclass(kind: type, module: str, name: str) -> bool:
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(kind, base)
