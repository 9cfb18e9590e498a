"""A record as it comes out of a topic."""

from typing import NamedTuple

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record and where it lies; `timestamp_ms` is -1 when the batch carries none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
