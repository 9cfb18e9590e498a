"""What a partition's log must hold, as a plain list; and what its files must look like, read byte by byte."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from harness.batches import CONTROL, Batch, Row, rows_of, split
from headrace.storage.disk import Disk, read_whole

REMEMBERED_BATCHES = 5  # per producer, as Kafka's clients rely on


@dataclass(slots=True)
class Stored:
    base: int
    data: bytes
    batch: Batch

    @property
    def end(self) -> int:
        return self.base + len(self.batch.rows)

    def rows(self) -> list[Row]:
        return rows_of(self.data)


class LogModel:
    def __init__(self) -> None:
        self.batches: list[Stored] = []  # all that was ever accepted and not cut off, deleted or not
        self.origin = 0  # where the first of them begins, or would
        self.start = 0
        self.flushed = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.origin

    def append(self, batch: Batch, leader_epoch: int) -> Stored:
        stored = Stored(self.end, batch.stored(self.end, leader_epoch), batch)
        self.batches.append(stored)
        return stored

    def cut(self, end: int) -> None:
        """Keep only batches that lie wholly below end."""
        self.batches = [stored for stored in self.batches if stored.end <= end]
        self.flushed = min(self.flushed, self.end)

    def from_offset(self, offset: int) -> list[Stored]:
        return [stored for stored in self.batches if stored.end > offset]

    def visible_rows(self, limit: int) -> list[Row]:
        return [
            row
            for stored in self.from_offset(self.start)
            if stored.end <= limit
            for row in stored.rows()
            if row.offset >= self.start
        ]

    def producers(self) -> dict[int, list[Stored]]:
        """The batches by which each producer's repeats are known: the last few of its newest epoch."""
        remembered: dict[int, list[Stored]] = {}
        for stored in self.batches:
            batch = stored.batch
            if batch.producer_id < 0:
                continue
            known = remembered.setdefault(batch.producer_id, [])
            if known and known[-1].batch.producer_epoch != batch.producer_epoch:
                known.clear()
            if not batch.attributes & CONTROL:
                known.append(stored)
                del known[:-REMEMBERED_BATCHES]
        return {producer: known for producer, known in remembered.items() if known}


def log_bytes(disk: Disk, directory: str) -> dict[int, bytes]:
    """The bytes of each segment by base offset."""
    return {
        int(name[:20]): read_whole(disk, f"{directory}/{name}")
        for name in disk.list(directory)
        if name.endswith(".log") and len(name) == 24
    }


def file_faults(disk: Disk, directory: str) -> list[str]:
    """What is wrong with the files of a log that was opened: an empty list when all is well."""
    faults: list[str] = []
    expected = None
    segments = log_bytes(disk, directory)
    for base, data in segments.items():
        places: dict[int, tuple[int, int, int]] = {}  # position: first offset, last offset, largest timestamp
        position = 0
        for batch in split(data):
            first, delta, newest = (struct.unpack_from(form, batch, at)[0] for form, at in _PLACE)
            if expected is not None and first != expected:
                faults.append(f"segment {base}: offset {first} where {expected} should be")
            if first < base:
                faults.append(f"segment {base}: offset {first}")
            expected = first + delta + 1
            places[position] = (first, first + delta, newest)
            position += len(batch)
        faults += _index_faults(_file(disk, directory, base, "index"), base, places)
        faults += _time_index_faults(_file(disk, directory, base, "timeindex"), base, places)
    names = set(disk.list(directory))
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        if suffix in ("index", "timeindex", "txnindex") and f"{stem}.log" not in names:
            faults.append(f"{name} without its log")
    return faults


_PLACE = ((">q", 0), (">i", 23), (">q", 35))


def _file(disk: Disk, directory: str, base: int, suffix: str) -> bytes:
    path = f"{directory}/{base:020}.{suffix}"
    return read_whole(disk, path) if disk.exists(path) else b""


def _index_faults(data: bytes, base: int, places: dict[int, tuple[int, int, int]]) -> list[str]:
    faults = [] if len(data) % 8 == 0 else [f"index {base}: {len(data)} bytes"]
    before = (-1, -1)
    for relative, position in struct.iter_unpack(">ii", data[: len(data) // 8 * 8]):
        if position not in places:
            faults.append(f"index {base}: offset {base + relative} at {position}, where no batch begins")
        elif not places[position][0] <= base + relative <= places[position][1]:
            faults.append(
                f"index {base}: offset {base + relative} at {position} is not in {places[position]}"
            )
        if before[0] >= relative or before[1] >= position:
            faults.append(f"index {base}: {(relative, position)} after {before}")
        before = (relative, position)
    return faults


def _time_index_faults(data: bytes, base: int, places: dict[int, tuple[int, int, int]]) -> list[str]:
    faults = [] if len(data) % 12 == 0 else [f"time index {base}: {len(data)} bytes"]
    before = (-1, -1)
    for timestamp, relative in struct.iter_unpack(">qi", data[: len(data) // 12 * 12]):
        older = [newest for first, _, newest in places.values() if first <= base + relative]
        if not older or max(older) != timestamp:
            faults.append(
                f"time index {base}: {timestamp} at offset {base + relative}, newest are {older[-3:]}"
            )
        if before[0] >= timestamp or before[1] >= relative:
            faults.append(f"time index {base}: {(timestamp, relative)} after {before}")
        before = (timestamp, relative)
    return faults
