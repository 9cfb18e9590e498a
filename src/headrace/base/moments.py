"""Positions in a topic as people write them, for `--from` and `--to`.

earliest, latest            the ends of each partition
1234                        an offset
-100                        a hundred records before the end
-90s  -15m  -1h  -7d  -2w   that long ago
2026-01-31T12:00:00Z        a time (UTC unless it has another UTC offset; a date alone is its midnight)
@1767225600000              milliseconds since 1970, as in a record's timestamp
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RELATIVE = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_EXAMPLES = "try earliest, latest, 1234, -100, -1h, 2026-01-31T12:00:00Z or @1767225600000"


class Edge(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    records: int


@dataclass(frozen=True, slots=True)
class AtTime:
    timestamp_ms: int


Moment = Edge | AtOffset | BeforeEnd | AtTime


def parse_moment(text: str, *, wall_ms: int) -> Moment:
    """The position that `text` means at this wall time; ValueError lists the accepted forms."""
    text = text.strip()
    if text in ("earliest", "beginning", "start"):
        return Edge.EARLIEST
    if text in ("latest", "end"):
        return Edge.LATEST
    if re.fullmatch(r"\d+", text):
        return AtOffset(int(text))
    if re.fullmatch(r"-\d+", text):
        return BeforeEnd(-int(text))
    if re.fullmatch(r"@\d+", text):
        return AtTime(int(text[1:]))
    if relative := _RELATIVE.fullmatch(text):
        return AtTime(max(0, wall_ms - round(float(relative[1]) * _UNITS_MS[relative[2]])))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither an offset nor a time; {_EXAMPLES}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return AtTime(round(moment.timestamp() * 1000))


def iso_time(timestamp_ms: int) -> str:
    """A record's timestamp for people, in UTC; empty for a record without one."""
    if timestamp_ms < 0:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError):  # a producer may send any int64
        return f"@{timestamp_ms}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
