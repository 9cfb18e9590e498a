"""Records as JSON, one object per line: what `consume --json` prints is what `produce --json` reads.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1767225600000,
     "key": "k", "value": "v", "headers": [["trace", "abc"]]}

Bytes that are UTF-8 travel as text. Others travel as {"base64": "…"}, so that nothing is lost on the way.
"""

import base64
import binascii
import json
from typing import NamedTuple

from headrace.records._messages import Message

Header = tuple[str, bytes | None]

_READ = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})


class NewRecord(NamedTuple):
    """A record as a producer gives it: where it will land is not decided yet."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp_ms: int | None


def _to_json(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _from_json(value: object, what: str) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(text), **rest} if not rest:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ValueError(f"{what} is not valid base64") from error
        case _:
            # numbers, objects and lists are taken as the JSON they are: {"value": {"id": 1}} is handy to type
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def write_json_line(record: Message) -> bytes:
    """One line without its line end."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _to_json(record.key),
        "value": _to_json(record.value),
        "headers": [[name, _to_json(value)] for name, value in record.headers],
    }
    try:
        return json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a header's name that is not UTF-8, kept in surrogates
        return json.dumps(fields).encode()


def read_json_line(line: bytes) -> NewRecord:
    """A record from one line; ValueError says what is wrong with it."""
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from error
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError('not an object such as {"key": "k", "value": "v"}')
    unknown = sorted(fields.keys() - _READ)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; use {', '.join(sorted(_READ))}")
    return NewRecord(
        key=_from_json(fields.get("key"), "key"),
        value=_from_json(fields.get("value"), "value"),
        headers=_read_headers(fields.get("headers")),
        partition=_whole_number(fields.get("partition"), "partition"),
        timestamp_ms=_whole_number(fields.get("timestamp"), "timestamp"),
    )


def _read_headers(headers: object) -> tuple[Header, ...]:
    if headers is None:
        return ()
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list):
        raise ValueError("headers must be an object or a list of [name, value]")
    read: list[Header] = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError("a header must be [name, value]")
        read.append((pair[0], _from_json(pair[1], f"header {pair[0]!r}")))
    return tuple(read)


def _whole_number(value: object, what: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{what} must be a whole number")
    return value
