"""One byte of a log that is open is damaged: each offset is read as it was written, or said to be damaged.

The recovery of a start has its own tests; here the log trusts its files, as after a clean stop.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.records.builder import build_batch
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_rows
from headrace.storage.config import LogConfig
from headrace.storage.errors import DamagedBatch
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles

RECORDS = 2  # in each batch
BATCHES = 9
HEADER_BYTES = 61
SEGMENT = "orders-0/00000000000000000000.log"
SEALED_BATCHES = 6  # in the first segment


def written(scene: Any) -> tuple[MemoryDisk, list[bytes], list[int]]:
    """A log of two segments, its values by offset, and where the batches of the first one begin."""
    scene.config = LogConfig(segment_bytes=700, index_interval_bytes=150)
    scene.open()
    values = [b"value-%02d" % offset + bytes(10) for offset in range(RECORDS * BATCHES)]
    for first in range(0, len(values), RECORDS):
        rows = [(scene.wall_ms + first, None, value, ()) for value in values[first : first + RECORDS]]
        scene.send(build_batch(rows))
    scene.flush()
    scene.log.close(clean=True)
    disk: MemoryDisk = scene.disk
    positions = [position for position, _ in batches(scene.content("00000000000000000000.log"))]
    assert len(positions) == SEALED_BATCHES
    return disk, values, positions


def damaged(disk: MemoryDisk, path: str, position: int, mask: int) -> MemoryDisk:
    copy = disk.clone()
    file = copy.open(path)
    data = bytearray(file.read(0, file.size()))
    data[position] ^= mask
    file.truncate(0)
    file.append(bytes(data))
    file.close()
    return copy


def read(scene: Any, offset: int) -> dict[int, bytes | None] | str:
    """Values from this offset on, of the first answer; or that it is damaged."""
    try:
        span = scene.log.read(offset, max_bytes=1, limit_offset=scene.log.log_end_offset, at_least_one=True)
    except DamagedBatch:
        return "damaged"
    if span is None:
        return "nothing"
    data = span.read()
    found: dict[int, bytes | None] = {}
    try:
        for position, header in batches(data):
            found |= {row[0]: row[3] for row in read_rows(data, position, header)}
    except BadRecords:
        return "damaged"  # as a client finds out by the checksum
    return found


@pytest.mark.parametrize("number", [0, 2, SEALED_BATCHES - 1], ids=["first", "inner", "last"])
def test_a_damaged_batch_costs_only_itself(scene: Any, number: int) -> None:
    disk, values, positions = written(scene)
    lost = range(number * RECORDS, (number + 1) * RECORDS)
    for position in (*range(HEADER_BYTES), HEADER_BYTES + 12):
        for mask in (0x01, 0xFF):
            scene.disk = damaged(disk, SEGMENT, positions[number] + position, mask)
            scene.files = OpenFiles()
            scene.open("clean", recovery_point=len(values))
            where = f"byte {position} ^ {mask:x}"
            assert scene.log.log_end_offset == len(values), where
            for offset, value in enumerate(values):
                found = read(scene, offset)
                if isinstance(found, dict):
                    assert {one: values[one] for one in found} == found, f"{where}, offset {offset}"
                    if offset not in lost:
                        assert found[offset] == value, f"{where}, offset {offset}"
                else:
                    assert found == "damaged", f"{where}, offset {offset}"
                    assert offset in lost, f"{where}, offset {offset}"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_costs_nothing(scene: Any, suffix: str) -> None:
    disk, values, _ = written(scene)
    path = SEGMENT.replace(".log", suffix)
    size = disk.open(path).size()
    assert size >= 12
    for position in range(size):
        for mask in (0x01, 0xFF):
            scene.disk = damaged(disk, path, position, mask)
            scene.files = OpenFiles()
            scene.open("clean", recovery_point=len(values))
            for offset, value in enumerate(values):
                found = read(scene, offset)
                assert isinstance(found, dict), f"byte {position} ^ {mask:x}, offset {offset}: {found}"
                assert found.get(offset) == value, (
                    f"byte {position} ^ {mask:x}, offset {offset}: {list(found)}"
                )
