"""Decoding of single JSON values to a type in Python, for rows that Arrow rejects.

As in Spark, a text column accepts any value as text. Bytes are base64; times are ISO 8601, in UTC unless they
have a zone. A value that does not fit makes the whole row a failure.
"""

import base64
import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

Shape = Callable[[Any], Any]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class JsonValues:
    """Reads objects of one type. ValueError says what is wrong."""

    def __init__(self, kind: pa.StructType) -> None:
        self._shape = _shape(kind, "")
        self._decode = json.JSONDecoder(
            # a double would not keep a decimal's digits
            parse_float=Decimal if _has_decimals(kind) else None,
            parse_constant=_refuse,
        ).decode

    def read(self, data: bytes) -> Any:
        if not data:
            raise ValueError("the value is empty")
        try:
            value = self._decode(data.decode())
        except ValueError as error:
            raise ValueError(f"not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        return self._shape(value)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_decimals(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_decimals(kind.value_type)
    if pa.types.is_map(kind):
        return _has_decimals(kind.item_type)
    return bool(pa.types.is_decimal(kind))


def _shape(kind: pa.DataType, name: str) -> Shape:
    """The function that converts a JSON value to this type; null stays null."""
    made = _not_null(kind, name)
    return lambda value: None if value is None else made(value)


def _not_null(kind: pa.DataType, name: str) -> Shape:
    if pa.types.is_struct(kind):
        return _struct(kind, name)
    if pa.types.is_map(kind):
        item = _shape(kind.item_type, name)
        check = _of(dict, name, "an object")
        return lambda value: [(key, item(each)) for key, each in check(value).items()]
    if pa.types.is_list(kind):
        item = _shape(kind.value_type, name)
        check = _of(list, name, "an array")
        return lambda value: [item(each) for each in check(value)]
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_boolean(kind):
        return _of(bool, name, "a boolean")
    if pa.types.is_integer(kind):
        return _of(int, name, "a whole number")
    if pa.types.is_floating(kind):
        return _number(name)
    if pa.types.is_decimal(kind):
        return _decimal(name)
    if pa.types.is_timestamp(kind):
        return _timestamp(kind, name)
    if pa.types.is_date(kind):
        return _parsed(dt.date.fromisoformat, name, "a date")
    if pa.types.is_binary(kind):
        return _parsed(lambda text: base64.b64decode(text, validate=True), name, "base64")
    return lambda value: value


def _struct(kind: pa.StructType, name: str) -> Shape:
    shapes = [(field.name, _shape(field.type, field.name)) for field in kind]
    check = _of(dict, name, "an object")

    def shaped(value: Any) -> dict[str, Any]:
        found = check(value)
        return {name: shape(found.get(name)) for name, shape in shapes}

    return shaped


def _of(wanted: type, name: str, called: str) -> Shape:
    def check(value: Any) -> Any:
        if type(value) is not wanted:
            raise _unlike(value, name, called)
        return value

    return check


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=float)


def _number(name: str) -> Shape:
    def number(value: Any) -> float:
        if type(value) not in (int, float, Decimal) or abs(made := float(value)) == float("inf"):
            raise _unlike(value, name, "a number")
        return made

    return number


def _decimal(name: str) -> Shape:
    def decimal(value: Any) -> Decimal:
        if type(value) not in (int, str, Decimal):
            raise _unlike(value, name, "a decimal")
        try:
            return Decimal(value)
        except InvalidOperation:
            raise _unlike(value, name, "a decimal") from None

    return decimal


def _timestamp(kind: pa.TimestampType, name: str) -> Shape:
    parse = _parsed(dt.datetime.fromisoformat, name, "a timestamp")
    micros = dt.timedelta(microseconds=1)
    per_second = _PER_SECOND[kind.unit]

    def timestamp(value: Any) -> int:
        moment = parse(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        return int((moment - _EPOCH) // micros * per_second // 1_000_000)

    return timestamp


def _parsed(parse: Callable[[str], Any], name: str, called: str) -> Shape:
    def parsed(value: Any) -> Any:
        if not isinstance(value, str):
            raise _unlike(value, name, called)
        try:
            return parse(value)
        except ValueError:
            raise _unlike(value, name, called) from None

    return parsed


def _unlike(value: Any, name: str, called: str) -> ValueError:
    return ValueError(f"{name} is {json.dumps(value, default=float)[:100]}, not {called}")
