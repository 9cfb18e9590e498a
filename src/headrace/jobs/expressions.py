"""Expressions over a record, for filters and keys: Python's own syntax, and nothing that can do harm.

    json.amount >= 100 and headers["source"] == "web"
    key.startswith("user-") or value is None
    json.items[0].sku in ("a1", "b2")

Names: key, value (text), json (the value as JSON), headers, topic, partition, offset, timestamp_ms. What a
record does not have is None: a field, an index, a value that is not JSON. A comparison with None is false,
except `is None`, `==` and `!=`. So an expression never fails for a record.

The text is parsed by Python's own parser and then made into functions here; it is never run as Python.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable
from typing import Any, Final

from headrace.records._messages import Message

Evaluate = Callable[["Record"], Any]
Condition = Callable[[Message], bool]

LENGTH_MAX: Final = 10_000  # of the text: a deep tree would exhaust the stack
_EXAMPLE: Final = 'try json.amount >= 100, or key.startswith("user-")'


class NotAnExpression(ValueError):
    """The text cannot be used; the message says which part."""


class Record:
    """A record, of which only what the expression asks for is decoded, once."""

    __slots__ = ("_json", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._json: Any = self

    @property
    def json(self) -> Any:
        if self._json is self:
            try:
                self._json = json.loads(self.message.value) if self.message.value is not None else None
            except (ValueError, RecursionError):
                self._json = None
        return self._json


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _headers(record: Record) -> dict[str, str | None]:
    """The last one counts, as for most readers."""
    return {name: _text(value) for name, value in record.message.headers}


def _remainder(one: Any, other: Any) -> Any:
    """Of numbers only: text on the left would be a format, which a record could make arbitrarily large."""
    if isinstance(one, str):
        raise TypeError("text has no remainder")
    return one % other


_NAMES: Final[dict[str, Evaluate]] = {
    "key": lambda record: _text(record.message.key),
    "value": lambda record: _text(record.message.value),
    "json": lambda record: record.json,
    "headers": _headers,
    "topic": lambda record: record.message.topic,
    "partition": lambda record: record.message.partition,
    "offset": lambda record: record.message.offset,
    "timestamp_ms": lambda record: record.message.timestamp_ms,
}
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mod: _remainder,
}
# Methods of text without side effects, and whose results are no larger than the text.
_METHODS: Final = frozenset(("startswith", "endswith", "lower", "upper", "strip"))
_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {"len": len, "str": str, "int": int, "float": float}


def parse_condition(text: str) -> Condition:
    evaluate = parse_expression(text)
    return lambda message: bool(evaluate(message))


def parse_expression(text: str) -> Callable[[Message], Any]:
    if len(text) > LENGTH_MAX:
        raise NotAnExpression(f"it is longer than {LENGTH_MAX} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAnExpression(f"{getattr(error, 'msg', error)}; {_EXAMPLE}") from None
    evaluate = _compile(tree.body)
    return lambda message: evaluate(Record(message))


def _compile(node: ast.expr) -> Evaluate:
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, str | int | float | bool):
            return lambda _: value
        case ast.Name(id=name):
            if name not in _NAMES:
                raise NotAnExpression(f"unknown name {name}; known are {', '.join(_NAMES)}")
            return _NAMES[name]
        case ast.Attribute(value=inner, attr=name):
            return _item(_compile(inner), lambda _: name)
        case ast.Subscript(value=inner, slice=index):
            return _item(_compile(inner), _compile(index))
        case ast.BoolOp(op=op, values=values):
            return _boolean(isinstance(op, ast.And), [_compile(one) for one in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inside = _compile(operand)
            return lambda record: not inside(record)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _safe(operator.neg, _compile(operand))
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _ARITHMETIC:
            return _safe(_ARITHMETIC[type(operation)], _compile(left), _compile(right))
        case ast.Compare(left=left, ops=[one], comparators=[right]) if type(one) in _COMPARISONS:
            compare = _safe(_COMPARISONS[type(one)], _compile(left), _compile(right))
            return lambda record: bool(compare(record))
        case ast.Compare():
            raise NotAnExpression("write `a < b and b < c` in place of a chain of comparisons")
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            members = [_compile(one) for one in elements]
            return lambda record: tuple(one(record) for one in members)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=arguments, keywords=[]) if (
            name in _METHODS
        ):
            return _method(name, _compile(inner), [_compile(one) for one in arguments])
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _safe(_FUNCTIONS[name], _compile(argument))
    raise NotAnExpression(f"{ast.unparse(node)!r} is not allowed in an expression; {_EXAMPLE}")


def _item(inner: Evaluate, index: Evaluate) -> Evaluate:
    """A field of a mapping or an element of a list; None if there is none."""

    def evaluate(record: Record) -> Any:
        value, place = inner(record), index(record)
        if isinstance(value, dict):
            return value.get(place) if isinstance(place, str) else None
        if isinstance(value, list | tuple | str) and isinstance(place, int):
            return value[place] if -len(value) <= place < len(value) else None
        return None

    return evaluate


def _boolean(is_and: bool, parts: list[Evaluate]) -> Evaluate:
    if is_and:
        return lambda record: all(part(record) for part in parts)
    return lambda record: any(part(record) for part in parts)


def _safe(function: Callable[..., Any], *parts: Evaluate) -> Evaluate:
    """None where the function does not take the values, as for `None < 3`."""

    def evaluate(record: Record) -> Any:
        try:
            return function(*[part(record) for part in parts])
        except (TypeError, ValueError, OverflowError, ZeroDivisionError):
            return None

    return evaluate


def _method(name: str, inner: Evaluate, arguments: list[Evaluate]) -> Evaluate:
    def evaluate(record: Record) -> Any:
        value = inner(record)
        if not isinstance(value, str):
            return None
        try:
            return getattr(value, name)(*[one(record) for one in arguments])
        except TypeError:
            return None

    return evaluate
