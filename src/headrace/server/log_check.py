"""Verification of log files: each segment is read once, and its indexes are compared with it.

A segment has whole batches, correct checksums, rising offsets that begin at its name, and readable records.
An offset index entry names the last offset of the batch at its position; a time index entry the largest
timestamp so far and the last offset of the batch that has it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.records.batch import check_crc
from headrace.records.errors import BadRecords
from headrace.records.reader import validate_records
from headrace.server.log_files import (
    Damaged,
    base_offset_of,
    batches_of,
    kind_of,
    rows_of,
)


class Fault(NamedTuple):
    path: Path
    what: str


def check(path: Path) -> Iterator[Fault]:
    """Everything that is wrong with one file; an index is compared with the segment beside it, if there is
    one.
    """
    try:
        match kind_of(path):
            case "segment":
                yield from _check_segment(path)
            case "index":
                yield from _check_index(path)
            case "timeindex":
                yield from _check_time_index(path)
            case _:
                for _ in rows_of(path, with_records=False):
                    pass
    except (Damaged, ValueError) as error:
        yield Fault(path, str(error))


def _check_segment(path: Path) -> Iterator[Fault]:
    next_offset = base_offset_of(path) if path.suffix != ".checkpoint" else 0
    for position, header, view in batches_of(path):
        where = f"batch at position {position}, offset {header.base_offset}"
        if header.base_offset < next_offset:
            yield Fault(
                path, f"{where}: the offset must be at least {next_offset}, after the batch before it"
            )
        if (
            header.last_offset_delta < 0
            or header.record_count < 0
            or header.record_count > header.last_offset_delta + 1
        ):
            yield Fault(
                path,
                f"{where}: {header.record_count} records do not fit {header.last_offset_delta + 1} offsets",
            )
        next_offset = header.next_offset
        try:
            check_crc(view, position)
            if header.record_count == header.last_offset_delta + 1:
                # a compacted batch has gaps: it is read, but not validated
                validate_records(view, position, header, keys_required=False)
        except BadRecords as error:
            yield Fault(path, f"{where}: {error}")


def _segment_beside(path: Path) -> dict[int, tuple[int, int]] | None:
    """Last offset and largest timestamp of each batch by position; None without a segment."""
    segment = path.with_name(path.name.replace(".timeindex", ".log").replace(".index", ".log"))
    if not segment.exists():
        return None
    found: dict[int, tuple[int, int]] = {}
    try:
        for position, header, _ in batches_of(segment):
            found[position] = (header.last_offset, header.max_timestamp)
    except Damaged:
        return found  # the segment's own check reports it
    return found


def _check_index(path: Path) -> Iterator[Fault]:
    batches = _segment_beside(path)
    last = (-1, -1)
    for row in rows_of(path, with_records=False):
        entry = (row["offset"], row["position"])
        if entry[0] <= last[0] or entry[1] <= last[1]:
            yield Fault(path, f"entry {entry} is not larger than the entry before it, {last}")
        last = entry
        if batches is None:
            continue
        if row["position"] not in batches:
            yield Fault(path, f"entry {entry}: no batch begins at that position")
        elif batches[row["position"]][0] != row["offset"]:
            yield Fault(path, f"entry {entry}: the batch there ends at offset {batches[row['position']][0]}")


def _check_time_index(path: Path) -> Iterator[Fault]:
    batches = _segment_beside(path)
    stamps = None if batches is None else dict(batches.values())
    last = (-1, -1)
    for row in rows_of(path, with_records=False):
        entry = (row["timestamp"], row["offset"])
        if entry[0] <= last[0] or entry[1] < last[1]:
            yield Fault(path, f"entry {entry} is not larger than the entry before it, {last}")
        last = entry
        if stamps is None:
            continue
        if row["offset"] not in stamps:
            yield Fault(path, f"entry {entry}: no batch ends at that offset")
        elif stamps[row["offset"]] != row["timestamp"]:
            yield Fault(path, f"entry {entry}: the batch there has timestamp {stamps[row['offset']]}")
