"""Names of stray partitions: directories that the metadata does not know, renamed and kept.

    orders-0.<topic id, 32 hex>_20261116T162712Z_unknown-stray/

The suffix is Kafka's, and so is the rule that the last dot ends the partition's own name. Between them are
the topic's id, since when the directory is a stray, and why.
"""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from headrace.storage.disk import Disk

STRAY = "-stray"

Why = Literal["unknown", "partition", "duplicate", "renamed"]

REASONS: dict[str, str] = {
    "unknown": "the metadata does not know its topic",
    "partition": "its topic has fewer partitions",
    "duplicate": "another log directory has the same partition",
    "renamed": "its topic has another name than its directory",
}

_NAME_BYTES_MAX = 255
_STAMP = "%Y%m%dT%H%M%SZ"
_OURS = re.compile(r"(.+)\.([0-9a-f]{32})_([0-9]{8}T[0-9]{6}Z)_([a-z]+)" + STRAY)


class Stray(NamedTuple):
    name: str  # of the directory now
    original: str  # before it was put aside; a very long topic name has lost its end
    topic_id: bytes | None
    since_ms: int | None  # None for one that Kafka put aside
    why: str


def stray_name(original: str, topic_id: bytes, since_ms: int, why: str) -> str:
    from datetime import UTC, datetime  # few nodes ever have a stray: no start waits for this module

    stamp = datetime.fromtimestamp(since_ms // 1000, UTC).strftime(_STAMP)
    suffix = f".{topic_id.hex()}_{stamp}_{why}{STRAY}"
    return original[: _NAME_BYTES_MAX - len(suffix)] + suffix


def rename_to_stray(
    disk: Disk, directory: str, original: str, topic_id: bytes, since_ms: int, why: Why
) -> str:
    """Durable; the new name."""
    while disk.exists(name := stray_name(original, topic_id, since_ms, why)):
        since_ms += 1000
    disk.rename(directory, name)
    disk.sync_dir("")
    return name


def strays(names: Iterable[str]) -> list[Stray]:
    return [stray for name in names if (stray := parse_stray(name)) is not None]


def parse_stray(name: str) -> Stray | None:
    """What a directory's name says; None when it is not that of a stray."""
    if not name.endswith(STRAY):
        return None
    match = _OURS.fullmatch(name)
    if match is None:
        return Stray(name, name.rpartition(".")[0], None, None, "put aside by Kafka")
    from datetime import UTC, datetime

    try:
        since = datetime.strptime(match[3], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
    why = REASONS.get(match[4], match[4])
    return Stray(name, match[1], bytes.fromhex(match[2]), round(since.timestamp() * 1000), why)
