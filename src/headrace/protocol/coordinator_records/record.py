"""Record: one change of a coordinator's state. CompactRecords: several, without an object for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headrace.protocol.notation import Data


class Record(NamedTuple):
    """A record without a value (a tombstone) removes what the key names."""

    key: Data
    value: Data | None


class CompactRecords:
    """Records of one decision that are encoded and replayed without the objects of their messages. They can
    be read like a list of records, which is what they stand for.
    """

    __slots__ = ()

    def encoded(self, timestamp: int) -> bytes:
        """All records as bytes of a batch with this base timestamp."""
        raise NotImplementedError

    def changes(self) -> Iterable[Any]:
        """What the machine that made them replays instead of the records."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Record]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Iterable) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))
