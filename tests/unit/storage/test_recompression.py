"""Sealed segments with a stronger codec: fewer bytes, the same records, and no harm from a crash."""

import errno
from dataclasses import replace
from random import Random

import pytest

from harness.compaction import committed_rows
from headrace.records.batch import renew_crc
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.storage.config import LogConfig
from headrace.storage.errors import DiskFull
from headrace.storage.faulty_disk import SPACE_NEEDING, Crash, DiskCrashed, Fail, Fault, FaultyDisk
from headrace.storage.jobs import JobKind
from headrace.storage.open_files import OpenFiles

PACKED = LogConfig(segment_bytes=20_000, sealed_compression_type="zstd")
COMPACTED = LogConfig(
    segment_bytes=20_000,
    sealed_compression_type="zstd",
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
)


def rows(scene):
    found = []
    offset = scene.log.log_start_offset
    while (
        span := scene.log.read(
            offset, max_bytes=5000, limit_offset=scene.log.log_end_offset, at_least_one=True
        )
    ) is not None:
        data = span.read()
        for at, header in batches(data):
            found += read_rows(data, at, header)
            offset = header.next_offset
    return found


@pytest.fixture
def sealed(scene):
    scene.config = PACKED
    scene.open()
    for number in range(60):
        scene.send(build_batch([(scene.wall_ms + number, b"k%d" % number, b"value " * 60, ())] * 3))
        if number == 20:
            scene.write(7, 0, transactional=True)
            scene.end(7, committed=False)
    scene.flush()
    return scene


def keys(scene):
    """Of the records that a reader of committed ones sees."""
    return [row.key for row in committed_rows(scene.log)]


def recompress_all(scene):
    results = []
    while (job := scene.log.recompress_job()) is not None:
        assert job.kind is JobKind.CPU
        result = job.run(scene.disk)
        scene.log.complete_recompression(result)
        results.append(result)
    return results


def test_the_same_records_in_fewer_bytes(sealed):
    before, size = rows(sealed), sealed.log.size_bytes
    results = recompress_all(sealed)
    assert len(results) == sealed.log.segment_count - 1 >= 2
    assert rows(sealed) == before
    assert sealed.log.size_bytes < size / 2
    assert sealed.log.aborted_transactions(0, 1000) == [(7, 63)]
    assert all(result.after_bytes < result.before_bytes for result in results)
    found = sealed.log.offset_for_timestamp(sealed.wall_ms + 3, 1000)
    assert (found.offset, found.timestamp) == (9, sealed.wall_ms + 3)
    assert [name for name in sealed.names() if name.count(".") > 1] == []


@pytest.mark.parametrize("seed", range(6))
def test_every_time_is_found_as_before(scene, seed):
    """The time index went by the old offset index: between entries of the new one, records were skipped."""
    rng = Random(seed)
    scene.config = LogConfig(segment_bytes=40_000, sealed_compression_type="zstd", index_interval_bytes=400)
    scene.open()
    times = []
    for number in range(300):
        # rising, standing still, and falling back
        time = scene.wall_ms + number * rng.choice((0, 1, 1)) + rng.randrange(20)
        value = b"v" * rng.randrange(300) if rng.random() < 0.8 else rng.randbytes(2_000)
        scene.send(build_batch([(time + one, b"k", value, ()) for one in range(2)]))
        times += [time, time + 1]
    scene.flush()
    assert recompress_all(scene)
    end = scene.log.log_end_offset
    for time in sorted(set(times)):
        first = next(offset for offset, one in enumerate(times) if one >= time)
        assert scene.log.offset_for_timestamp(time, end).offset == first
    assert scene.log.offset_for_timestamp(max(times) + 1, end) is None


def test_survives_restarts(sealed):
    before = rows(sealed)
    recompress_all(sealed)
    for trust in ("killed", "lost"):
        sealed.files = OpenFiles()
        sealed.open(trust, recovery_point=sealed.log.flushed_offset if trust == "lost" else 0)
        assert rows(sealed) == before


def test_the_active_segment_and_unflushed_ones_are_left_alone(scene):
    scene.config = PACKED
    scene.open()
    scene.append(size=1000)
    scene.log.roll(scene.wall_ms)
    assert scene.log.recompress_job() is None
    scene.flush()
    assert scene.log.recompress_job() is not None


def test_nothing_happens_where_the_topic_does_not_ask_for_it(sealed):
    sealed.log.configure(LogConfig(segment_bytes=20_000))
    assert sealed.log.recompress_job() is None


def test_control_batches_and_batches_that_cannot_be_opened_are_kept_verbatim(scene):
    scene.config = PACKED
    scene.open()
    broken = bytearray(build_batch([(scene.wall_ms, None, b"x" * 500, ())], codec=1))
    broken[70:80] = bytes(10)
    renew_crc(broken, 0)
    scene.send(bytes(broken))
    scene.write(7, 0, transactional=True)
    scene.end(7, committed=True)
    scene.append(size=4000)
    scene.log.roll(scene.wall_ms)
    scene.flush()
    name = scene.names(".log")[0]
    before = split(scene.content(name))
    recompress_all(scene)
    after = split(scene.content(name))
    assert after[0] == before[0]
    assert after[2] == before[2]
    assert len(after[3]) < len(before[3])


def split(data):
    return [data[at : at + header.size] for at, header in batches(data, check=False)]


def test_a_segment_that_does_not_shrink_stays_as_it_is(scene):
    scene.config = PACKED
    scene.open()
    scene.append(size=3000, codec=4)
    scene.log.roll(scene.wall_ms)
    scene.flush()
    before = scene.content("00000000000000000000.log")
    [result] = recompress_all(scene)
    assert not result.is_swap_ready
    assert scene.content("00000000000000000000.log") == before


def test_a_result_that_comes_after_the_segment_is_gone_is_thrown_away(sealed):
    result = sealed.log.recompress_job().run(sealed.disk)
    for doomed in sealed.log.advance_log_start(sealed.log.log_end_offset, sealed.wall_ms):
        doomed.remove_job().run(sealed.disk)
    sealed.log.complete_recompression(result)
    assert [name for name in sealed.names() if name.endswith(".swap")] == []


def test_a_crash_at_any_call_leaves_the_old_segment_or_the_new_one(sealed):
    before = rows(sealed)
    flushed = sealed.log.flushed_offset
    memory = sealed.disk
    for calls in range(200):
        disk = memory.clone()
        sealed.disk = FaultyDisk(disk)
        sealed.files = OpenFiles()
        sealed.open("killed")
        sealed.log.flushed_offset = flushed
        sealed.disk.faults = [Fault(Crash(), skip=calls)]
        try:
            recompress_all(sealed)
        except DiskCrashed:
            for trust in ("killed", "lost"):
                sealed.disk, sealed.files = disk.crash(trust, Random(calls)), OpenFiles()
                sealed.open(trust, recovery_point=flushed)
                assert rows(sealed) == before
                assert sealed.log.offset_for_timestamp(sealed.wall_ms + 3, 1000).offset == 9
                assert [name for name in sealed.names() if name.count(".") > 1] == []
        else:
            return
    raise AssertionError("it never came to an end")


def test_every_record_is_found_by_its_time_afterwards(sealed):
    """The packed segment's index has fewer entries than its time index: neither speaks for the other."""
    end = sealed.log.log_end_offset
    times = sorted({row[1] for row in rows(sealed)})
    before = [sealed.log.offset_for_timestamp(time, end) for time in times]
    recompress_all(sealed)
    after = [sealed.log.offset_for_timestamp(time, end) for time in times]
    assert [(one.offset, one.timestamp) for one in after] == [(one.offset, one.timestamp) for one in before]


def test_a_swap_that_finds_no_space_is_finished_later_and_hides_nothing_meanwhile(sealed):
    before = rows(sealed)
    sealed.disk = FaultyDisk(sealed.disk)
    sealed.files = OpenFiles()
    sealed.open("killed")
    sealed.flush()
    job = sealed.log.recompress_job()
    result = job.run(sealed.disk)
    for renames in range(3):
        sealed.disk.faults = [Fault(Fail(errno.ENOSPC), "rename", skip=renames, times=50)]
        if renames:
            with pytest.raises(DiskFull):
                sealed.log.retire(0)
        else:
            sealed.log.complete_recompression(result)
        assert sealed.log.recompress_job() is None, "one segment at a time"
        assert rows(sealed) == before
    sealed.disk.faults.clear()
    sealed.log.retire(0)
    recompress_all(sealed)
    assert rows(sealed) == before
    assert sealed.names(".swap") == []
    sealed.files = OpenFiles()
    sealed.open("killed")
    assert rows(sealed) == before


def test_a_log_start_that_is_durable_is_the_logs_even_if_a_swap_finds_no_space(sealed):
    """DeleteRecords had written it: the log went on serving what the next start would not."""
    sealed.disk = FaultyDisk(sealed.disk)
    sealed.files = OpenFiles()
    sealed.open("killed")
    sealed.flush()
    result = sealed.log.recompress_job().run(sealed.disk)
    sealed.disk.faults = [Fault(Fail(errno.ENOSPC), "rename", times=50)]
    sealed.log.complete_recompression(result)
    end = sealed.log.log_end_offset
    with pytest.raises(DiskFull):
        sealed.log.advance_log_start(end - 1, sealed.wall_ms)
    assert sealed.log.log_start_offset == end - 1
    sealed.disk.faults.clear()
    sealed.log.retire(sealed.wall_ms)
    assert sealed.log.log_start_offset == end - 1
    assert sealed.names(".swap") == []
    assert [row[0] for row in rows(sealed) if row[0] >= end - 1] == [end - 1]


@pytest.fixture
def aborted(scene):
    """Compacted segments, each with an aborted transaction."""
    scene.config = COMPACTED
    scene.open()
    for number in range(4):
        scene.send(build_batch([(scene.wall_ms, b"k%d" % number, b"value " * 60, ())]))
        key = b"aborted %d" % number
        scene.send(
            build_batch(
                [(scene.wall_ms, key, b"value " * 60, ())],
                producer_id=7,
                producer_epoch=0,
                base_sequence=number,
                transactional=True,
            )
        )
        scene.end(7, committed=False)
        scene.log.configure(replace(COMPACTED, segment_bytes=700))
        scene.log.roll(scene.wall_ms)
    scene.flush()
    return scene


def test_a_pass_of_compaction_that_was_killed_leaves_nothing_that_is_taken_for_a_part_of_it(aborted):
    """A transaction index of the pass, without what compaction had removed, hid no aborted record any
    more.
    """
    memory = aborted.disk
    expected = [b"k0", b"k1", b"k2", b"k3"]
    assert keys(aborted) == expected
    flushed = aborted.log.flushed_offset
    for calls in range(200):
        aborted.disk = memory.clone()
        aborted.files = OpenFiles()
        aborted.open("killed")
        aborted.log.configure(replace(COMPACTED, segment_bytes=700))
        aborted.log.flushed_offset = flushed
        job = aborted.log.clean_job(aborted.wall_ms, aborted.log.log_end_offset)
        try:
            # the child process ends, the broker goes on
            job.run(FaultyDisk(aborted.disk, [Fault(Crash(), skip=calls)]))
        except DiskCrashed:
            assert recompress_all(aborted)
            assert keys(aborted) == expected
            aborted.files = OpenFiles()
            aborted.open("killed")
            assert keys(aborted) == expected
        else:
            return
    raise AssertionError("it never came to an end")


def test_a_job_that_finds_no_space_leaves_nothing_behind(sealed):
    before, names = rows(sealed), sealed.names()
    memory = sealed.disk
    for calls in range(100):
        fault = Fault(Fail(errno.ENOSPC, written=1), SPACE_NEEDING, skip=calls)
        job = sealed.log.recompress_job()
        try:
            job.run(FaultyDisk(memory, [fault]))
        except OSError:
            assert sealed.names() == names
            assert rows(sealed) == before
        else:
            assert calls > 5
            return
    raise AssertionError("it never came to an end")
