"""Torn tails, flipped bits, a full disk and a disk that fails: what is left of a log is right, or it says
so.
"""

from __future__ import annotations

import copy
import errno
from random import Random

import pytest

from harness.batches import Batch, Row
from harness.disks import memory_of
from harness.log_judge import WALL_MS, bytes_from, content, judge, open_log, prefix_that_is
from harness.log_model import LogModel, file_faults
from headrace.records.batch import ATTRIBUTES_AT, read_header
from headrace.records.checksum import crc32c
from headrace.records.errors import CorruptBatch
from headrace.storage.config import LogConfig
from headrace.storage.errors import DiskFull, LogOffline, StorageError
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.recovery import Trust

DIRECTORY = "orders-0"
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150, retention_ms=-1)
PRODUCER = 7000


def batch(number: int, *, producer: int = -1, sequence: int = 0) -> Batch:
    rows = [Row(WALL_MS + number * 10 + n, b"k%d" % n, b"value %d " % number * 5) for n in range(2)]
    codec = number % 5
    if producer < 0:
        return Batch(rows, codec)
    return Batch(rows, codec, producer, 0, sequence)


def a_log(disk: MemoryDisk, *, batches: int = 12, flushed: int = 8) -> tuple[PartitionLog, LogModel]:
    """Several segments, two producers; the last batches are not flushed."""
    disk.make_dir(DIRECTORY)
    disk.sync_dir("")
    log, model = open_log(disk, DIRECTORY, CONFIG, "clean"), LogModel()
    sequences = {PRODUCER: 0, PRODUCER + 1: 0}
    for number in range(batches):
        producer = (PRODUCER, PRODUCER + 1, -1)[number % 3]
        one = batch(number, producer=producer, sequence=sequences.get(producer, 0))
        if producer >= 0:
            sequences[producer] += 2
        model.append(one, 0)
        log.append(one.sent(), wall_ms=WALL_MS, leader_epoch=0)
        if number + 1 == flushed:
            job = log.flush_job()
            assert job is not None
            log.complete_flush(job.run(disk))
            model.flushed = model.end
    return log, model


def newest_log_path(disk: MemoryDisk) -> str:
    return f"{DIRECTORY}/" + max(name for name in disk.list(DIRECTORY) if name.endswith(".log"))


@pytest.mark.parametrize("trust", ["killed", "lost"])
def test_a_tail_torn_at_every_byte_of_the_last_batch(trust: Trust) -> None:
    whole = MemoryDisk()
    _, written = a_log(whole)
    last = written.batches[-1]
    path = newest_log_path(whole)
    size = whole.open(path).size()
    for torn in range(1, len(last.data) + 1):
        disk, model = whole.crash("killed"), copy.deepcopy(written)
        disk.open(path).truncate(size - torn)
        model.cut(last.base)
        log = open_log(disk, DIRECTORY, CONFIG, trust, recovery_point=model.flushed)
        assert log.log_end_offset == last.base, "nothing of the torn batch, all before it"
        judge(log, model, disk)


@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"\x5a"])
def test_a_tail_of_rubbish(filling: bytes) -> None:
    """A file that grew before its bytes were written, as some file systems leave it."""
    whole = MemoryDisk()
    _, written = a_log(whole)
    for size in (1, 11, 12, 60, 61, 62, 200, 5_000):
        disk, model = whole.crash("killed"), copy.deepcopy(written)
        disk.open(newest_log_path(disk)).append(filling * size)
        log = open_log(disk, DIRECTORY, CONFIG, "lost", recovery_point=model.flushed)
        assert log.log_end_offset == model.end, "all that was written, and nothing of the rubbish"
        judge(log, model, disk)


def test_a_bit_flipped_in_an_unflushed_batch_ends_the_log_before_it() -> None:
    whole = MemoryDisk()
    _, written = a_log(whole, batches=12, flushed=9)
    path = newest_log_path(whole)
    base = int(path[-24:-4])
    places, position = [], 0
    for stored in written.batches:
        if stored.base >= base:
            places.append((position, stored))
            position += len(stored.data)
    for start, stored in places:
        if stored.base < written.flushed:
            continue
        for byte in range(0, len(stored.data), 3):
            if 12 <= byte < 16:
                continue  # the leader epoch is not covered by the checksum
            disk, model = whole.crash("killed"), copy.deepcopy(written)
            disk.flip(path, start + byte, 1 << byte % 8)
            model.cut(stored.base)
            log = open_log(disk, DIRECTORY, CONFIG, "lost", recovery_point=model.flushed)
            assert log.log_end_offset == model.end, f"bit in byte {byte} of the batch at {stored.base}"
            judge(log, model, disk)


@pytest.mark.parametrize("suffix", ["index", "timeindex", "snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("trust", ["killed", "lost", "clean"])
def test_a_bit_flipped_beside_the_log_costs_no_record(suffix: str, trust: Trust) -> None:
    """What stands beside the log can be made again from it: right answers, or an error, and nothing made
    up.
    """
    whole = MemoryDisk()
    log, written = a_log(whole)
    log.close(clean=True)
    paths = [f"{DIRECTORY}/{name}" for name in whole.list(DIRECTORY) if name.endswith(suffix)]
    assert paths
    for path in paths:
        for byte in range(whole.open(path).size()):
            disk, model = whole.crash("killed"), copy.deepcopy(written)
            disk.flip(path, byte, 1 << byte % 8)
            log = open_log(disk, DIRECTORY, CONFIG, trust, recovery_point=0 if trust == "lost" else model.end)
            where = f"{path}, byte {byte}"
            assert (log.log_start_offset, log.log_end_offset) == (0, model.end), where
            assert content(log) == bytes_from(0, model.batches), where
            for stored in model.batches:
                span = log.read(stored.base, max_bytes=1, limit_offset=model.end, at_least_one=True)
                assert span is not None, where
                assert span.read() == stored.data, where
            if trust == "lost":
                assert file_faults(disk, DIRECTORY) == [], where
            if trust == "lost" or "index" not in suffix:  # an index that is trusted may hide a timestamp
                judge(log, model, disk)


@pytest.mark.parametrize("suffix", ["index", "timeindex", "snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("trust", ["killed", "lost", "clean"])
def test_a_file_missing_beside_the_log(suffix: str, trust: Trust) -> None:
    whole = MemoryDisk()
    log, written = a_log(whole)
    log.close(clean=True)
    for name in [name for name in whole.list(DIRECTORY) if name.endswith(suffix)]:
        disk, model = whole.crash("killed"), copy.deepcopy(written)
        disk.remove(f"{DIRECTORY}/{name}")
        log = open_log(disk, DIRECTORY, CONFIG, trust, recovery_point=0 if trust == "lost" else model.end)
        judge(log, model, disk)


@pytest.mark.parametrize("rolls", [False, True], ids=["within a segment", "into a new segment"])
def test_the_disk_is_full_after_any_number_of_bytes(rolls: bool) -> None:
    whole = MemoryDisk()
    config = LogConfig(segment_bytes=600 if rolls else 100_000, index_interval_bytes=0, retention_ms=-1)
    whole.make_dir(DIRECTORY)
    prepared, written = open_log(whole, DIRECTORY, config, "clean"), LogModel()
    for number in range(3):
        written.append(batch(number, producer=PRODUCER, sequence=number * 2), 0)
        prepared.append(written.batches[-1].batch.sent(), wall_ms=WALL_MS, leader_epoch=0)
    prepared.close(clean=True)
    one = batch(5, producer=PRODUCER, sequence=6)
    if rolls:
        one = Batch([Row(WALL_MS + 60, None, b"x" * 500)], 0, PRODUCER, 0, 6)
    room, refused = 0, 0
    while True:
        disk, model = FaultyDisk(whole.crash("killed")), copy.deepcopy(written)
        log = open_log(disk, DIRECTORY, config, "clean", recovery_point=model.end)
        disk.space_bytes = room
        try:
            log.append(one.sent(), wall_ms=WALL_MS, leader_epoch=0)
        except DiskFull:
            refused += 1
        else:
            break
        assert content(log) == bytes_from(0, model.batches), f"{room} bytes: reading goes on"
        # a kill at this very moment
        left = memory_of(disk).crash("killed")
        judge(open_log(left, DIRECTORY, config, "killed"), copy.deepcopy(model), left)
        # and space again
        disk.space_bytes = None
        again = log.append(one.sent(), wall_ms=WALL_MS, leader_epoch=0)
        assert (again.base_offset, again.is_duplicate) == (model.end, False)
        model.append(one, 0)
        judge(log, model, disk)
        room += 1
    assert refused >= len(one.stored(0, 0))


def test_an_io_error_takes_the_log_offline_until_it_is_opened_again() -> None:
    for operation in ("append", "sync"):
        memory = MemoryDisk()
        _, written = a_log(memory)
        disk = FaultyDisk(memory.crash("killed"))
        log = open_log(disk, DIRECTORY, CONFIG, "killed", recovery_point=written.flushed)
        fault = Fault(Fail(errno.EIO, written=30), operation, path=".log")
        disk.faults.append(fault)
        if operation == "append":
            with pytest.raises(LogOffline):
                log.append(batch(1).sent(), wall_ms=WALL_MS, leader_epoch=0)
        else:
            flushed = log.flushed_offset
            log.append(batch(1).sent(), wall_ms=WALL_MS, leader_epoch=0)
            written.append(batch(1), 0)
            job = log.flush_job()
            assert job is not None
            with pytest.raises(OSError) as raised:
                job.run(disk)
            log.fail_flush(raised.value)
            assert log.flushed_offset == flushed, "what failed is never called durable"
        assert fault.times == 0
        with pytest.raises(LogOffline):
            log.append(batch(2).sent(), wall_ms=WALL_MS, leader_epoch=0)
        left = memory_of(disk).crash("killed")
        log = open_log(left, DIRECTORY, CONFIG, "killed", recovery_point=written.flushed)
        judge(log, written, left)


def test_an_error_while_reading_is_an_error_and_no_short_answer() -> None:
    memory = MemoryDisk()
    log, written = a_log(memory)
    log.close(clean=True)
    disk = FaultyDisk(memory.crash("killed"))
    log = open_log(disk, DIRECTORY, CONFIG, "clean", recovery_point=written.end)
    disk.faults.append(Fault(Fail(errno.EIO), "read", times=1_000))
    with pytest.raises((StorageError, OSError)):
        content(log)


def test_a_segment_missing_in_the_middle_ends_the_log_there() -> None:
    """What follows a hole is not served as if nothing were missing."""
    whole = MemoryDisk()
    _, written = a_log(whole)
    bases = sorted(int(name[:20]) for name in whole.list(DIRECTORY) if name.endswith(".log"))
    assert len(bases) >= 3
    disk = whole.crash("killed")
    disk.remove(f"{DIRECTORY}/{bases[1]:020}.log")
    log = open_log(disk, DIRECTORY, CONFIG, "lost", recovery_point=0)
    assert log.log_end_offset == bases[1]
    assert prefix_that_is(log, written.batches) is not None


@pytest.mark.parametrize("is_damaged", [False, True], ids=["unsynced", "damaged"])
def test_producers_outlive_the_segments_they_wrote_to(is_damaged: bool) -> None:
    """Deleted segments leave nothing but a snapshot, which must be sound and durable before they go."""
    whole = MemoryDisk()
    _, written = a_log(whole)
    bases = sorted(int(name[:20]) for name in whole.list(DIRECTORY) if name.endswith(".log"))
    for base in bases[1:]:
        disk, model = whole.crash("killed"), copy.deepcopy(written)
        if is_damaged:
            disk.flip(f"{DIRECTORY}/{base:020}.snapshot", 8, 1)
        log = open_log(disk, DIRECTORY, CONFIG, "killed", recovery_point=model.flushed)
        job = log.flush_job()
        assert job is not None
        log.complete_flush(job.run(disk))
        for doomed in log.advance_log_start(base, WALL_MS):
            doomed.remove_job().run(disk)
        model.start = base
        for seed in range(10):
            lost = disk.crash("lost", Random(seed))
            again = open_log(lost, DIRECTORY, CONFIG, "lost", recovery_point=model.end, log_start=base)
            judge(again, copy.deepcopy(model), lost)


def intact_batches(log: PartitionLog) -> dict[int, bytes]:
    """What a consumer gets that reads a batch at a time and seeks past what is damaged."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            span = log.read(offset, max_bytes=1, limit_offset=log.log_end_offset, at_least_one=True)
        except CorruptBatch:
            offset += 1
            continue
        if span is None:
            break
        data = span.read()
        header = read_header(data)
        if header.size == len(data) and crc32c(data[ATTRIBUTES_AT:]) == header.crc:
            assert header.base_offset not in found, f"offset {header.base_offset} twice"
            found[header.base_offset] = data
            offset = header.next_offset
        else:
            offset += 1
    return found


@pytest.mark.parametrize("trust", ["clean", "killed", "lost"])
def test_a_damaged_batch_in_any_segment_loses_only_itself(trust: Trust) -> None:
    """Every byte of every flushed batch: the log starts and ends where it did, and all others are read."""
    whole = MemoryDisk()
    log, written = a_log(whole, batches=12, flushed=12)
    log.close(clean=True)
    names = [name for name in whole.list(DIRECTORY) if name.endswith(".log")]
    assert len(names) >= 3
    expected = {stored.base: stored.data for stored in written.batches}
    for name in names:
        path = f"{DIRECTORY}/{name}"
        base, position = int(name[:20]), 0
        last = max(stored.base for stored in written.batches)
        for stored in [one for one in written.batches if one.base >= base]:
            if position >= whole.open(path).size():
                break
            # the header byte by byte, and some of the records
            for byte in [*range(27), 40, 59, 61, len(stored.data) - 1]:
                if 12 <= byte < 16:
                    continue  # the leader epoch is not covered by the checksum
                for bit in (0, 6) if byte < 12 else (byte % 8,):
                    disk = whole.crash("killed")
                    disk.flip(path, position + byte, 1 << bit)
                    where = f"{name}, batch at {stored.base}, byte {byte}, bit {bit}"
                    try:
                        log = open_log(disk, DIRECTORY, CONFIG, trust, recovery_point=written.end)
                    except StorageError:
                        assert stored.base == last, where  # nothing tells where the log ends
                        continue
                    assert (log.log_start_offset, log.log_end_offset) == (0, written.end), where
                    found = intact_batches(log)
                    rest = {at: data for at, data in expected.items() if at != stored.base}
                    assert {at: data for at, data in found.items() if at != stored.base} == rest, where
                    if stored.base in found:  # the damaged byte says nothing about the records
                        assert found[stored.base][61:] == stored.data[61:], where
            position += len(stored.data)
