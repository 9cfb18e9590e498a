"""Records that a test writes and reads.

A record to write is a `Record`, a (key, value) pair, or only a value. Keys and values are bytes; text is
encoded as UTF-8; None is a tombstone; anything else (dict, list, number) is encoded as JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Header = tuple[str, bytes | None]

# What a record may be given as: too wide a type to check, so that JSON needs no cast.
Given = Any


@dataclass(frozen=True, slots=True)
class Record:
    """One record. A test sets the value and the fields that matter; a record that was read has all fields."""

    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None  # None: wherever its key leads
    timestamp_ms: int | None = None  # None: when it is sent
    topic: str = ""
    offset: int = -1

    @classmethod
    def of(
        cls,
        value: Any = None,
        *,
        key: Any = None,
        headers: Mapping[str, Any] | tuple[Header, ...] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "Record":
        """From text, JSON or bytes."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return cls(
            as_bytes(value),
            as_bytes(key),
            tuple((name, as_bytes(held)) for name, held in pairs),
            partition,
            timestamp_ms,
        )

    @property
    def text(self) -> str:
        """The value as text."""
        return "" if self.value is None else self.value.decode()

    @property
    def json(self) -> Any:
        """The value, read as JSON."""
        return None if self.value is None else json.loads(self.value)

    def __str__(self) -> str:
        told = [f"key={shown(self.key)}"] if self.key is not None else []
        told.append(f"value={shown(self.value)}")
        told += [f"{name}:{shown(value)}" for name, value in self.headers]
        return " ".join(told)


def as_bytes(given: Any) -> bytes | None:
    match given:
        case None | bytes():
            return given
        case bytearray() | memoryview():
            return bytes(given)
        case str():
            return given.encode()
        case _:
            return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()


def as_record(given: Given) -> Record:
    if isinstance(given, Record):
        return given
    pair = as_pair(given)
    return Record.of(given) if pair is None else Record.of(pair[1], key=pair[0])


def as_pair(given: Given) -> tuple[Any, Any] | None:
    """Key and value of what is a tuple; a list is a value like any other JSON."""
    if not isinstance(given, tuple):
        return None
    if len(given) != 2:
        raise ValueError(f"{given!r}: a tuple must be a (key, value) pair")
    return given


def shown(data: bytes | None) -> str:
    """As a person reads it: text where it is text."""
    if data is None:
        return "None"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return repr(text) if text.isprintable() else repr(data)
