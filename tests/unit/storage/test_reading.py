"""Whole batches, from the one that holds the offset, never past the limit."""

import pytest

from headrace.records.builder import build_batch
from headrace.records.reader import batches
from headrace.storage.config import LogConfig
from headrace.storage.errors import OffsetOutOfRange
from headrace.storage.faulty_disk import FaultyDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.tail import BATCHES_MAX


def offsets(span):
    return [] if span is None else [header.base_offset for _, header in batches(span.read())]


@pytest.fixture(params=["tail", "cold"])
def log(request, scene):
    """Ten batches of three records; cold: read through the index, since a restart has emptied the tail."""
    scene.config = LogConfig(index_interval_bytes=200)
    scene.open()
    for _ in range(10):
        scene.append(3, size=40)
    if request.param == "cold":
        scene.log.close(clean=True)
        scene.open(recovery_point=30)
    scene.size = len(scene.batch(3, size=40))
    return scene


def test_reads_up_to_the_limit(log):
    span = log.log.read(4, max_bytes=1 << 20, limit_offset=15, at_least_one=True)
    assert offsets(span) == [3, 6, 9, 12]


def test_a_batch_that_reaches_past_the_limit_is_left_out(log):
    span = log.log.read(4, max_bytes=1 << 20, limit_offset=14, at_least_one=True)
    assert offsets(span) == [3, 6, 9]
    assert log.log.read(4, max_bytes=1 << 20, limit_offset=5, at_least_one=True) is None
    assert log.log.read(4, max_bytes=1 << 20, limit_offset=4, at_least_one=True) is None
    assert log.log.read(4, max_bytes=1 << 20, limit_offset=0, at_least_one=True) is None


def test_max_bytes_counts_whole_batches(log):
    span = log.log.read(0, max_bytes=3 * log.size + 5, limit_offset=30, at_least_one=True)
    assert offsets(span) == [0, 3, 6]
    span = log.log.read(0, max_bytes=3 * log.size, limit_offset=30, at_least_one=True)
    assert offsets(span) == [0, 3, 6]


def test_one_batch_is_given_even_above_max_bytes_when_asked_for(log):
    assert offsets(log.log.read(7, max_bytes=1, limit_offset=30, at_least_one=True)) == [6]
    assert offsets(log.log.read(29, max_bytes=1, limit_offset=30, at_least_one=True)) == [27]
    assert log.log.read(7, max_bytes=1, limit_offset=30, at_least_one=False) is None


def test_the_end_is_empty_and_beyond_it_is_an_error(log):
    assert log.log.read(30, max_bytes=1000, limit_offset=30, at_least_one=True) is None
    with pytest.raises(OffsetOutOfRange) as caught:
        log.log.read(31, max_bytes=1000, limit_offset=31, at_least_one=True)
    assert (caught.value.start, caught.value.end) == (0, 30)
    with pytest.raises(OffsetOutOfRange):
        log.log.read(-1, max_bytes=1000, limit_offset=31, at_least_one=True)


def test_a_reader_that_goes_on_gets_every_batch_once(log):
    assert log.bases() == list(range(0, 30, 3))


def test_bytes_between_counts_what_a_fetch_would_get(log):
    assert log.log.bytes_between(0, 30) == 10 * log.size
    assert log.log.bytes_between(30, 30) == 0
    assert 0 < log.log.bytes_between(9, 21) <= 10 * log.size


def test_the_tail_forgets_old_batches_and_reading_does_not_notice(scene):
    scene.open()
    for _ in range(1500):
        scene.append()
    assert scene.bases() == list(range(1500))
    for offset in range(0, 1500, 37):
        assert offsets(scene.log.read(offset, max_bytes=1, limit_offset=1500, at_least_one=True)) == [offset]


def test_a_span_outlives_the_removal_of_its_segment(scene):
    scene.config = LogConfig(segment_bytes=300, file_delete_delay_ms=0)
    scene.open()
    for _ in range(20):
        scene.append()
    span = scene.log.read(0, max_bytes=100, limit_offset=20, at_least_one=True)
    for doomed in scene.log.advance_log_start(20, scene.wall_ms):
        doomed.remove_job().run(scene.disk)
    assert offsets(span) == [0]


def test_a_quiet_log_gives_its_file_back_and_takes_it_again(scene):
    scene.disk = FaultyDisk(scene.disk)
    scene.open()
    for _ in range(5):
        scene.append(2)
    scene.log.retire(scene.wall_ms + 61_000)
    scene.files.forget_directory(scene.disk, "orders-0")
    scene.disk.calls.clear()
    assert scene.bases() == [0, 2, 4, 6, 8]
    assert "open" in {call.operation for call in scene.disk.calls}
    scene.append(2)
    assert scene.bases() == [0, 2, 4, 6, 8, 10]


def test_a_reader_that_goes_on_after_a_truncation_skips_nothing(scene):
    """Where its next batch was, a much later one begins now."""
    scene.config = LogConfig(index_interval_bytes=100)
    scene.open()
    long, short = (build_batch([(scene.wall_ms, b"key", bytes(size), ())]) for size in (171, 51))
    assert len(long) == 2 * len(short)
    for _ in range(10):
        scene.send(long)
    scene.log.close(clean=True)
    scene.files = OpenFiles()
    scene.open("clean", recovery_point=10)
    scene.log.read(4, max_bytes=len(long), limit_offset=10, at_least_one=True)  # goes on at 5
    scene.log.truncate_to(2)
    for _ in range(2, 2 * BATCHES_MAX):  # so many that the first ones are not in memory any more
        scene.send(short)
    span = scene.log.read(5, max_bytes=1, limit_offset=2 * BATCHES_MAX, at_least_one=True)
    assert offsets(span) == [5]


@pytest.mark.parametrize("max_bytes", [0, 1, 1000])
@pytest.mark.parametrize("at_least_one", [False, True])
def test_nothing_is_read_at_the_limit_however_many_bytes_are_wanted(scene, max_bytes, at_least_one):
    """At the high watermark not even the one batch that a reader gets in any case."""
    scene.open()
    for _ in range(3):
        scene.append()
    for limit in range(4):
        span = scene.log.read(limit, max_bytes=max_bytes, limit_offset=limit, at_least_one=at_least_one)
        assert span is None


@pytest.mark.parametrize("max_bytes", [0, 1, 1000])
@pytest.mark.parametrize("at_least_one", [False, True])
def test_a_batch_that_ends_behind_the_limit_is_not_read(scene, max_bytes, at_least_one):
    scene.open()
    scene.append(5)
    scene.append()
    scene.open("killed")  # positions are found in the files again
    for offset, limit in ((0, 1), (0, 3), (2, 4)):
        span = scene.log.read(offset, max_bytes=max_bytes, limit_offset=limit, at_least_one=at_least_one)
        assert span is None
