"""Records with every feature the record format has, and the row that each client's view is reduced to."""

from __future__ import annotations

import time
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Row(NamedTuple):
    """One record as every client can tell it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


# yesterday, to the hour: young enough for the default retention of a week
BASE_MS = int(time.time()) // 3600 * 3_600_000 - 86_400_000
TEXT = b"the same words again and again compress well. " * 50

SAMPLES: tuple[Row, ...] = tuple(
    Row(offset, BASE_MS + offset * 1000, key, value, headers)
    for offset, (key, value, headers) in enumerate(
        [
            (b"key", b"value", ()),
            (None, b"no key", ()),
            (b"tombstone", None, ()),
            (b"", b"", ()),
            (b"one byte", b"\x00", ()),
            (bytes(range(256)), bytes(reversed(range(256))), ()),
            (b"headers", b"v", (("trace", b"\xff\x00"), ("empty", b""), ("trace", b"twice"))),
            ("schlüssel".encode(), "größer als ASCII: 水".encode(), (("größe", b"1"),)),
            (b"text", TEXT, ()),
        ]
    )
)

# neither key nor value, and a header without a value: legal, but the Python-only clients refuse to send it
NOTHING = Row(len(SAMPLES), BASE_MS + len(SAMPLES) * 1000, None, None, (("nothing", None),))
