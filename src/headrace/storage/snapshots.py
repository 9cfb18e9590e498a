"""Snapshot files of producer state: a restart replays only the log after the newest one.

    0 version i16 = 1 · 2 crc u32 of all that follows · 6 number of entries i32 · then per entry
    0 producer id i64 · 8 epoch i16 · 10 last sequence i32 · 14 last offset i64 · 22 offset delta i32
    26 timestamp i64 · 34 coordinator epoch i32 · 38 first offset of the open transaction i64 (-1: none)

A producer has an entry for each of its last batches, up to five, oldest first; Kafka writes the last batch
only. A damaged file is recognised by its checksum, and an older one is used instead.
"""

from collections.abc import Iterable
from struct import Struct

from headrace.records.checksum import crc32c
from headrace.storage.disk import Disk, read_whole
from headrace.storage.producer_state import SEQUENCE_MASK, ProducerEntry, ProducerState, RememberedBatch

VERSION = 1
_PREFIX = Struct(">hI")
_COUNT = Struct(">i")
ENTRY = Struct(">qhiqiqiq")


class DamagedSnapshot(Exception):
    """Not a snapshot, or not whole."""


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}.snapshot"


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    packed = []
    for entry in entries:
        for batch in entry.batches or (None,):
            packed.append(
                ENTRY.pack(
                    entry.producer_id,
                    entry.epoch,
                    batch.last_sequence if batch else -1,
                    batch.last_offset if batch else -1,
                    batch.offset_delta if batch else 0,
                    batch.timestamp if batch and batch is not entry.batches[-1] else entry.timestamp,
                    entry.coordinator_epoch,
                    entry.transaction_start,
                )
            )
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, wall_ms: int) -> ProducerState:
    """DamagedSnapshot for anything but what was written. Producers count as seen now: silence is measured
    again.
    """
    if len(data) < _PREFIX.size + _COUNT.size:
        raise DamagedSnapshot(f"the snapshot has only {len(data)} bytes")
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise DamagedSnapshot(f"the snapshot has version {version}, not 1")
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise DamagedSnapshot("the checksum is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * ENTRY.size:
        raise DamagedSnapshot(f"{count} entries in {len(body)} bytes")
    entries: dict[int, ProducerEntry] = {}
    for fields in ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = fields
        entry = entries.setdefault(producer_id, ProducerEntry(producer_id, epoch))
        if sequence >= 0:
            first = (sequence - delta) & SEQUENCE_MASK
            entry.batches.append(RememberedBatch(first, sequence, offset, delta, timestamp))
        entry.timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_start = start
        entry.seen_ms = wall_ms
    return ProducerState(entries.values())


def write_snapshot(disk: Disk, directory: str, offset: int, state: ProducerState) -> None:
    """Not synced: the checksum tells whether it arrived."""
    file = disk.open(snapshot_path(directory, offset), create=True)
    try:
        file.truncate(0)
        file.append(encode_snapshot(state))
    finally:
        file.close()


def read_snapshot(disk: Disk, directory: str, offset: int, wall_ms: int) -> ProducerState:
    return decode_snapshot(read_whole(disk, snapshot_path(directory, offset)), wall_ms)
