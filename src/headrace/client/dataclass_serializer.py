"""Serializer of dataclasses as JSON, read back by their annotations.

A type is looked at once: for each of its parts a small function is made that turns what JSON gives into a
value of the annotated type, or raises. Understood are JSON's own types, Enum, datetime, date, Decimal and
bytes (base64), lists, tuples, sets, dicts with text as keys, unions, and other dataclasses.
"""

import base64
import dataclasses
import json
import types
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from headrace.client.serializers import NotSerializable, Serializer

T = TypeVar("T")
_Reader = Callable[[Any], Any]


def dataclass_json(kind: type[T]) -> Serializer[T]:
    """A serializer of the dataclass `kind`.

    >>> from dataclasses import make_dataclass
    >>> Order = make_dataclass("Order", [("item", str), ("count", int)])
    >>> orders = headrace.dataclass_json(Order)
    >>> orders.to_bytes(Order("tea", 2)), orders.from_bytes(b'{"item":"tea","count":2}')
    (b'{"item":"tea","count":2}', Order(item='tea', count=2))
    """
    read = _reader(kind, {})

    def serialize(value: T) -> bytes:
        if not isinstance(value, kind):
            raise NotSerializable(f"{type(value).__name__} is not {kind.__name__}")
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def deserialize(data: bytes) -> T:
        value: T = read(json.loads(data))
        return value

    return Serializer(serialize, deserialize)


def _plain(value: Any) -> Any:
    """The value in JSON's own types."""
    match value:
        case Enum():
            return _plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case list() | tuple() | set() | frozenset():
            return [_plain(part) for part in value]
        case dict():
            return {_key(key): _plain(part) for key, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    raise NotSerializable(f"{type(value).__name__} cannot be written as JSON")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise NotSerializable(f"a key of a dict is {type(key).__name__}, and must be text")
    return key


def _reader(kind: Any, made: dict[type, _Reader]) -> _Reader:
    """What reads a `kind`; `made` are the dataclasses under way, which may contain themselves."""
    if kind is Any:
        return lambda value: value
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union([_reader(part, made) for part in get_args(kind)])
    if origin in (list, set, frozenset):
        (part,) = get_args(kind)
        return _collection(origin, _reader(part, made))
    if origin is tuple:
        return _tuple([_reader(part, made) if part is not ... else None for part in get_args(kind)])
    if origin is dict:
        key, part = get_args(kind)
        if key is not str:
            raise TypeError(f"{kind}: keys must be str in JSON")
        return _dict(_reader(part, made))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, made)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind in _SCALARS:
        return _SCALARS[kind]
    raise TypeError(f"{kind} cannot be read from JSON")


def _exactly(*kinds: type) -> _Reader:
    def read(value: Any) -> Any:
        # a bool is an int for Python, and none for whoever annotated
        if type(value) not in kinds:
            raise ValueError(f"{value!r} is not {kinds[0].__name__}")
        return value

    return read


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _nothing(value: Any) -> None:
    if value is not None:
        raise ValueError(f"{value!r} is not null")


_SCALARS: dict[Any, _Reader] = {
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _number,
    type(None): _nothing,
    dict: _exactly(dict),
    list: _exactly(list),
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    Decimal: Decimal,
    bytes: lambda value: base64.b64decode(value, validate=True),
}


def _union(readers: list[_Reader]) -> _Reader:
    def read(value: Any) -> Any:
        reasons = []
        for reader in readers:
            try:
                return reader(value)
            except (TypeError, ValueError) as error:
                reasons.append(str(error))
        raise ValueError("; ".join(reasons))

    return read


def _collection(kind: Callable[[list[Any]], Any], reader: _Reader) -> _Reader:
    is_list = _exactly(list)
    return lambda value: kind([reader(part) for part in is_list(value)])


def _tuple(readers: list[_Reader | None]) -> _Reader:
    is_list = _exactly(list)

    def read(value: Any) -> tuple[Any, ...]:
        parts = is_list(value)
        if len(readers) == 2 and readers[1] is None:  # tuple[int, ...]
            expected = [readers[0]] * len(parts)
        else:
            expected = readers
        if len(parts) != len(expected):
            raise ValueError(f"{len(parts)} values instead of {len(expected)}")
        return tuple(reader(part) for reader, part in zip(expected, parts) if reader is not None)

    return read


def _dict(reader: _Reader) -> _Reader:
    is_dict = _exactly(dict)
    return lambda value: {key: reader(part) for key, part in is_dict(value).items()}


def _dataclass(kind: type, made: dict[type, _Reader]) -> _Reader:
    if kind in made:
        return lambda value: made[kind](value)
    made[kind] = lambda value: read(value)
    hints = get_type_hints(kind)
    readers = {each.name: _reader(hints[each.name], made) for each in dataclasses.fields(kind) if each.init}

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise ValueError(f"{value!r} is not a JSON object, as {kind.__name__} needs")
        arguments: dict[str, Any] = {}
        for name, part in value.items():
            reader = readers.get(name)
            # an unknown field was added by a newer writer: this reader lives without it
            if reader is not None:
                try:
                    arguments[name] = reader(part)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{kind.__name__}.{name}: {error}") from error
        return kind(**arguments)

    return read
