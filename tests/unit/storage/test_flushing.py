"""What a flush syncs: all that is new, and nothing twice, since acknowledgements wait for each fsync."""

from __future__ import annotations

from typing import Any

from headrace.base.time import Instant, Now
from headrace.storage.config import LogConfig
from headrace.storage.faulty_disk import FaultyDisk
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk


def opened(scene):
    scene.disk = FaultyDisk(MemoryDisk())
    scene.disk.make_dir("orders-0")
    scene.disk.open("orders-0/partition.metadata", create=True).close()
    scene.open()
    return scene


def synced(scene):
    """The names that the next flush syncs, in order; a directory ends in a slash."""
    before = len(scene.disk.calls)
    scene.flush()
    done = [call for call in scene.disk.calls[before:] if call.operation in ("sync", "sync_dir")]
    return [call.path.rpartition("/")[2] if call.operation == "sync" else f"{call.path}/" for call in done]


NOW = Now(Instant(0.0), 1_700_000_000_000)

FIRST_LOG = "00000000000000000000.log"


def test_the_first_flush_makes_the_log_known_and_the_next_ones_sync_what_is_new(scene):
    opened(scene)
    scene.append()
    first = synced(scene)
    assert first[0] == "partition.metadata", "where a record is durable, it is known whose it is"
    assert FIRST_LOG in first
    assert {"orders-0/", "/"} <= set(first)
    scene.append()
    assert synced(scene) == [FIRST_LOG]


def test_without_anything_new_there_is_no_flush(scene):
    opened(scene)
    scene.append()
    scene.flush()
    assert scene.log.flush_job() is None
    assert synced(scene) == []


def test_a_sealed_segment_and_its_snapshot_are_synced_once(scene):
    opened(scene)
    scene.write(7, 0)
    scene.flush()
    scene.log.roll(scene.wall_ms)
    scene.write(7, 1)
    sealed = synced(scene)
    assert sorted(name for name in sealed if name.endswith(".snapshot")) == ["00000000000000000001.snapshot"]
    for sequence in (2, 3):
        scene.write(7, sequence)
        assert synced(scene) == ["00000000000000000001.log"]
    scene.log.roll(scene.wall_ms)
    scene.write(7, 4)
    again = synced(scene)
    assert [name for name in again if name.endswith(".snapshot")] == ["00000000000000000004.snapshot"]
    assert FIRST_LOG not in again


def test_a_flush_that_could_not_begin_is_made_up_for_by_the_next(scene):
    opened(scene)
    scene.append()
    expected = set(synced(scene))
    again = opened(scene)
    again.append()
    assert again.log.flush_job() is not None
    again.log.postpone_flush()
    assert set(synced(again)) >= expected


def test_a_flush_that_was_ordered_before_a_truncation_promises_nothing(scene):
    opened(scene)
    for _ in range(3):
        scene.append()
    job = scene.log.flush_job()
    scene.log.truncate_to(1)
    scene.append()
    scene.log.complete_flush(job.run(scene.disk))
    assert scene.log.flushed_offset <= 1
    scene.flush()
    assert scene.log.flushed_offset == scene.log.log_end_offset == 2


def test_a_flush_promises_what_was_there_when_it_was_ordered(scene):
    opened(scene)
    scene.append()
    job = scene.log.flush_job()
    scene.append()
    scene.log.complete_flush(job.run(scene.disk))
    assert (scene.log.flushed_offset, scene.log.log_end_offset) == (1, 2)
    assert scene.log.unflushed_bytes > 0
    scene.flush()
    assert (scene.log.flushed_offset, scene.log.unflushed_bytes) == (2, 0)


def test_after_a_truncation_the_names_and_epochs_are_synced_though_nothing_was_appended(scene):
    opened(scene)
    for _ in range(3):
        scene.append()
    scene.log.roll(scene.wall_ms)
    scene.append()
    scene.flush()
    assert synced(scene) == []
    scene.log.truncate_to(1)
    again = synced(scene)
    assert "orders-0/" in again
    assert "leader-epoch-checkpoint" in again
    assert synced(scene) == []


class TestACutThatIsAnnounced:
    def announced(self, scene: Any) -> PartitionLog:
        log = scene.open()
        for _ in range(6):
            scene.append()
        scene.flush()
        assert log.promise_less(3)
        return log

    def test_a_flush_before_the_cut_does_not_count_for_what_is_cut_off(self, scene: Any) -> None:
        log = self.announced(scene)
        scene.flush()
        assert log.flushed_offset == 3
        log.cut_to(3, scene.wall_ms)
        scene.append(2, leader_epoch=1)
        scene.append(2, leader_epoch=1)
        assert (log.flushed_offset, log.log_end_offset) == (3, 7)
        scene.flush()
        assert log.flushed_offset == 7

    def test_no_flush_is_due_before_the_cut(self, scene: Any) -> None:
        scene.config = LogConfig(flush_messages=1)
        log = self.announced(scene)
        assert not log.needs_flush(NOW)
        log.keep_all()
        assert log.needs_flush(NOW)

    def test_a_cut_that_does_not_come_is_forgotten(self, scene: Any) -> None:
        log = self.announced(scene)
        log.keep_all()
        scene.flush()
        assert log.flushed_offset == 6
