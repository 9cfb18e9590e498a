"""The first record at or after a timestamp, and the largest one, as the obvious search finds them."""

from random import Random

import pytest

from headrace.records.builder import build_batch
from headrace.storage.config import LogConfig
from headrace.storage.faulty_disk import FaultyDisk
from headrace.storage.open_files import OpenFiles


def filled(scene, seed, *, codecs=(0,)):
    rng = Random(seed)
    scene.config = LogConfig(
        segment_bytes=3000, index_interval_bytes=300, message_timestamp_after_max_ms=1 << 60
    )
    scene.open()
    rows = []
    now = scene.wall_ms
    for _ in range(80):
        now += rng.randrange(-5, 10)
        times = [now + rng.randrange(-3, 4) for _ in range(rng.randrange(1, 5))]
        batch = build_batch([(time, b"k", b"v" * 30, ()) for time in times], codec=rng.choice(codecs))
        appended = scene.send(batch)
        rows += [(appended.base_offset + delta, time) for delta, time in enumerate(times)]
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_finds_the_first_record_since_every_timestamp(scene, seed):
    rows = filled(scene, seed)
    end = scene.log.log_end_offset
    for target in range(min(time for _, time in rows) - 2, max(time for _, time in rows) + 3):
        found = scene.log.offset_for_timestamp(target, end)
        expected = next((row for row in rows if row[1] >= target), None)
        assert (found and (found.offset, found.timestamp)) == expected


def test_opens_compressed_batches(scene):
    rows = filled(scene, 9, codecs=(1, 2, 3, 4))
    for offset, time in rows[::7]:
        found = scene.log.offset_for_timestamp(time, scene.log.log_end_offset)
        assert (found.offset, found.timestamp) == next(row for row in rows if row[1] >= time)
        assert found.offset <= offset


@pytest.mark.parametrize("trust", ["clean", "killed", "lost"])
def test_finds_the_same_after_a_restart(scene, trust):
    rows = filled(scene, 5)
    end = scene.log.log_end_offset
    if trust == "clean":
        scene.log.close(clean=True)
    scene.files = OpenFiles()
    scene.open(trust, recovery_point=end if trust == "clean" else 0)
    for _, time in rows:
        found = scene.log.offset_for_timestamp(time, end)
        assert (found.offset, found.timestamp) == next(row for row in rows if row[1] >= time)
    largest = scene.log.max_timestamp(end)
    assert (largest.offset, largest.timestamp) == max(rows, key=lambda row: (row[1], -row[0]))


def test_knows_nothing_below_the_start_or_beyond_the_limit(scene):
    scene.open()
    for minute in range(6):
        scene.append(timestamp=scene.wall_ms + minute, leader_epoch=2)
    found = scene.log.offset_for_timestamp(scene.wall_ms + 3, 6)
    assert found == (3, scene.wall_ms + 3, 2)
    assert scene.log.offset_for_timestamp(scene.wall_ms + 3, 3) is None
    assert scene.log.max_timestamp(3) == (2, scene.wall_ms + 2, 2)
    scene.log.advance_log_start(4, scene.wall_ms)
    assert scene.log.offset_for_timestamp(scene.wall_ms, 6) == (4, scene.wall_ms + 4, 2)
    assert scene.log.max_timestamp(4) is None


def test_a_start_inside_of_a_batch_hides_the_records_before_it(scene):
    scene.open()
    scene.send(build_batch([(scene.wall_ms + shift, None, b"", ()) for shift in (5, 1, 5, 2)]))
    scene.log.advance_log_start(1, scene.wall_ms)
    assert scene.log.offset_for_timestamp(scene.wall_ms + 3, 4) == (2, scene.wall_ms + 5, 0)


def test_an_empty_log_has_no_timestamps(scene):
    scene.open()
    assert scene.log.offset_for_timestamp(0, 0) is None
    assert scene.log.max_timestamp(0) is None


def test_a_look_up_reads_one_index_interval_of_the_log(scene):
    scene.config = LogConfig(index_interval_bytes=1000)
    scene.open()
    for number in range(2000):
        # the clock stands still for most of the log, so that the time index is nearly empty
        scene.append(timestamp=scene.wall_ms + (1 if number == 1500 else 0), size=100)
    scene.log.close(clean=True)
    scene.disk = FaultyDisk(scene.disk)
    scene.files = OpenFiles()
    scene.open(recovery_point=2000)
    scene.disk.calls.clear()
    assert scene.log.offset_for_timestamp(scene.wall_ms + 1, 2000).offset == 1500
    reads = [call for call in scene.disk.calls if call.operation == "read" and call.path.endswith(".log")]
    assert len(reads) <= 4
