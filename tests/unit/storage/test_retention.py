"""What may go by time, size and log start, how it goes, and what must stay."""

import errno

import pytest

from headrace.storage.config import LogConfig
from headrace.storage.errors import OffsetOutOfRange
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.open_files import OpenFiles

HOUR_MS = 3_600_000
COMPACT = frozenset({"compact"})


def segments(scene, count, *, size=100, step_ms=HOUR_MS):
    """One batch per segment, an hour apart."""
    for number in range(count):
        if number:
            scene.log.roll(scene.wall_ms)
        scene.append(size=size)
        scene.wall_ms += step_ms


def bases(doomed):
    return [one.base_offset for one in doomed]


def test_segments_go_when_their_newest_record_is_too_old(scene):
    scene.config = LogConfig(retention_ms=4 * HOUR_MS)
    scene.open()
    segments(scene, 6)
    assert bases(scene.log.retire(scene.wall_ms)) == [0, 1]
    assert scene.log.log_start_offset == 2
    assert scene.bases() == [2, 3, 4, 5]


def test_a_quiet_topic_honours_retention_too(scene):
    scene.config = LogConfig(retention_ms=HOUR_MS)
    scene.open()
    segments(scene, 2)
    scene.wall_ms += 2 * HOUR_MS
    assert bases(scene.log.retire(scene.wall_ms)) == [0, 1]
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (2, 2)
    assert scene.append().base_offset == 2
    assert scene.log.retire(scene.wall_ms) == []


def test_the_end_of_an_emptied_log_survives_a_restart(scene):
    scene.config = LogConfig(retention_ms=HOUR_MS)
    scene.open()
    segments(scene, 2)
    scene.wall_ms += 2 * HOUR_MS
    scene.log.retire(scene.wall_ms)
    scene.files = OpenFiles()
    scene.open("killed")
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (2, 2)


def test_segments_go_while_the_log_stays_above_retention_bytes(scene):
    scene.open()
    segments(scene, 6)
    size = scene.log.size_bytes // 6
    scene.log.configure(LogConfig(retention_ms=-1, retention_bytes=3 * size + 1))
    assert bases(scene.log.retire(scene.wall_ms)) == [0, 1]
    assert scene.log.size_bytes == 4 * size


def test_nothing_goes_without_bounds_or_above_the_high_watermark(scene):
    scene.config = LogConfig(retention_ms=-1)
    scene.open()
    segments(scene, 4)
    scene.wall_ms += 1000 * HOUR_MS
    assert scene.log.retire(scene.wall_ms) == []
    scene.log.configure(LogConfig(retention_ms=1))
    assert bases(scene.log.retire(scene.wall_ms, high_watermark=2)) == [0, 1]


def test_a_compacted_topic_keeps_everything_but_what_was_deleted_on_request(scene):
    scene.config = LogConfig(retention_ms=1, cleanup_policy=COMPACT, segment_ms=1 << 60)
    scene.open()
    segments(scene, 4)
    assert scene.log.retire(scene.wall_ms) == []
    assert bases(scene.log.advance_log_start(2, scene.wall_ms)) == [0, 1]


def test_records_without_timestamps_are_as_old_as_the_write(scene):
    scene.config = LogConfig(retention_ms=HOUR_MS)
    scene.open()
    scene.append(timestamp=-1)
    assert scene.log.retire(scene.wall_ms + HOUR_MS) == []
    assert bases(scene.log.retire(scene.wall_ms + HOUR_MS + 1)) == [0]


def test_a_quiet_segment_is_rolled_when_segment_ms_has_passed(scene):
    scene.config = LogConfig(segment_ms=HOUR_MS, retention_ms=-1)
    scene.open()
    scene.append()
    scene.log.retire(scene.wall_ms + HOUR_MS)
    assert scene.log.segment_count == 1
    scene.log.retire(scene.wall_ms + HOUR_MS + 1)
    assert scene.log.segment_count == 2


def test_files_are_renamed_at_once_and_removed_later(scene):
    scene.config = LogConfig(file_delete_delay_ms=5000)
    scene.open()
    segments(scene, 3)
    [doomed] = scene.log.advance_log_start(1, scene.wall_ms)
    assert doomed.remove_at_ms == scene.wall_ms + 5000
    renamed = {f"orders-0/{name}" for name in scene.names(".deleted")}
    assert renamed
    assert renamed <= set(doomed.paths)
    assert "00000000000000000000.log" not in scene.names()
    doomed.remove_job().run(scene.disk)
    assert scene.names(".deleted") == []
    doomed.remove_job().run(scene.disk)


def test_delete_records_moves_the_start_inside_of_a_segment(scene):
    scene.open()
    for _ in range(5):
        scene.append(2)
    assert scene.log.advance_log_start(5, scene.wall_ms) == []
    assert scene.log.log_start_offset == 5
    with pytest.raises(OffsetOutOfRange):
        scene.log.read(4, max_bytes=100, limit_offset=10, at_least_one=True)
    assert scene.bases()[0] == 4
    assert scene.log.advance_log_start(3, scene.wall_ms) == []
    assert scene.log.log_start_offset == 5
    with pytest.raises(OffsetOutOfRange):
        scene.log.advance_log_start(11, scene.wall_ms)


def test_deleting_everything_leaves_an_empty_log_at_its_end(scene):
    scene.open()
    segments(scene, 3)
    assert bases(scene.log.advance_log_start(3, scene.wall_ms)) == [0, 1, 2]
    assert scene.bases() == []
    assert scene.append().base_offset == 3


def test_producers_and_epochs_outlive_their_segments(scene):
    scene.open()
    scene.write(7, 0)
    scene.log.roll(scene.wall_ms)
    scene.append(leader_epoch=3)
    scene.log.advance_log_start(1, scene.wall_ms)
    scene.files = OpenFiles()
    scene.open("killed", log_start=1)
    assert scene.write(7, 0).is_duplicate
    assert scene.log.epoch_end_offset(0) == (0, 1)
    assert scene.log.latest_epoch == 3


def test_a_log_that_goes_on_for_ever_remembers_no_snapshot_that_is_gone(scene):
    """What was known of them took memory with each segment."""
    scene.config = LogConfig(file_delete_delay_ms=0)
    scene.open()
    for _ in range(40):
        scene.append()
        scene.log.roll(scene.wall_ms)
        for doomed in scene.log.advance_log_start(scene.log.log_end_offset, scene.wall_ms):
            doomed.remove_job().run(scene.disk)
    producers = scene.log.partition_producers
    assert len(scene.names(".snapshot")) < 5
    assert len(producers._sound) < 5
    assert len(producers._unsynced) < 5


def test_without_space_for_a_new_segment_all_others_go_and_make_some(scene):
    scene.config = LogConfig(retention_ms=HOUR_MS)
    scene.disk = disk = FaultyDisk(scene.disk)
    scene.open()
    segments(scene, 3)
    scene.wall_ms += 2 * HOUR_MS
    disk.faults = [Fault(Fail(errno.ENOSPC), frozenset(("create", "append")), times=1_000)]
    assert bases(scene.log.retire(scene.wall_ms)) == [0, 1]
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (2, 3)
    disk.faults = []
    assert bases(scene.log.retire(scene.wall_ms)) == [2]
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (3, 3)
    assert scene.append().base_offset == 3


class TestSegmentsThatWaitForAFlush:
    """Before segments go, the snapshot of the producers that stands for them must be durable. Where the
    caller may not wait for the disk, the segments wait.
    """

    def test_they_go_when_the_snapshot_is_durable(self, scene):
        scene.disk = FaultyDisk(scene.disk)
        scene.config = LogConfig(retention_ms=4 * HOUR_MS)
        scene.open()
        segments(scene, 6)
        scene.disk.calls.clear()
        assert scene.log.retire(scene.wall_ms, may_wait=True) == []
        assert not [call for call in scene.disk.calls if call.operation in ("sync", "sync_dir", "rename")]
        assert (scene.log.log_start_offset, scene.log.retires_before) == (0, 2)
        scene.flush()
        assert bases(scene.log.finish_retiring(scene.wall_ms)) == [0, 1]
        assert (scene.log.log_start_offset, scene.log.retires_before) == (2, None)
        assert scene.bases() == [2, 3, 4, 5]
        assert scene.log.finish_retiring(scene.wall_ms) == []

    def test_they_go_at_once_if_it_is_durable_already(self, scene):
        scene.config = LogConfig(retention_ms=4 * HOUR_MS)
        scene.open()
        segments(scene, 6)
        scene.flush()
        assert bases(scene.log.retire(scene.wall_ms, may_wait=True)) == [0, 1]
        assert scene.log.retires_before is None

    def test_a_flush_that_was_under_way_before_does_not_count(self, scene):
        scene.config = LogConfig(retention_ms=HOUR_MS)
        scene.open()
        scene.append()
        early = scene.log.flush_job()
        scene.wall_ms += 2 * HOUR_MS
        assert scene.log.retire(scene.wall_ms, may_wait=True) == []
        scene.log.complete_flush(early.run(scene.disk))
        assert scene.log.finish_retiring(scene.wall_ms) == []
        assert scene.log.retires_before == 1
        scene.flush()
        assert bases(scene.log.finish_retiring(scene.wall_ms)) == [0]

    def test_a_log_that_was_cut_meanwhile_keeps_them(self, scene):
        scene.config = LogConfig(retention_ms=4 * HOUR_MS)
        scene.open()
        segments(scene, 6)
        scene.log.retire(scene.wall_ms, may_wait=True)
        scene.log.cut_to(1, scene.wall_ms)
        scene.log.take_doomed()
        scene.flush()
        assert scene.log.finish_retiring(scene.wall_ms) == []
        assert scene.bases() == [0]
