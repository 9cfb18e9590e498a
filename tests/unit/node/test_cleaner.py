"""The node cleans compacted logs unasked: the dirtiest of a directory first, one at a time."""

from __future__ import annotations

import errno
from typing import Any

from harness.compaction import newest, rows
from harness.desk import Desk
from headrace.node.effects import Report
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.records.builder import build_batch
from headrace.storage.checkpoints import CLEANER_OFFSETS, parse_offsets
from headrace.storage.cleaning import CleanJob
from headrace.storage.disk import read_whole
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

COMPACT = {"cleanup_policy": "compact", "segment_bytes": "1048576", "min_cleanable_dirty_ratio": "0.1"}


def desk_with(settings: dict[str, str] | None = None, **options: Any) -> Desk:
    return Desk({"log.cleaner.backoff.ms": "1000", **(settings or {})}, **options)


def fill(desk: Desk, topic: str, index: int = 0, *, keys: int = 3, count: int = 12) -> None:
    """Overwritten keys in two sealed and flushed segments."""
    partition = desk.node.broker.partitions.of_name(topic)[index]
    now = desk.clock.now()
    for number in range(count):
        record = (now.wall_ms, b"k%d" % (number % keys), b"%d" % number * 100, ())
        partition.append(memoryview(bytearray(build_batch([record]))), now)
        if number in (count // 2, count - 1):
            partition.log.roll(now.wall_ms)
    job = partition.log.flush_job()
    partition.log.complete_flush(job.run(desk.disks[partition.directory]))


def log_of(desk: Desk, topic: str, index: int = 0) -> Any:
    return desk.node.broker.partitions.of_name(topic)[index].log


def events(desk: Desk, name: str) -> list[dict[str, Any]]:
    return [one.facts for one in desk.effects if isinstance(one, Report) and one.event == name]


def test_a_dirty_log_is_cleaned_and_reported() -> None:
    desk = desk_with()
    desk.create_topic("t", **COMPACT)
    fill(desk, "t")
    expected = newest(log_of(desk, "t"))
    desk.advance(2)
    log = log_of(desk, "t")
    assert [row.offset for row in rows(log)] == [9, 10, 11]
    assert newest(log) == expected
    (event,) = events(desk, "segments_cleaned")
    assert event["partition"] == "t-0"
    assert (event["segments"], event["records_before"], event["records_after"]) == (2, 12, 3)
    assert event["first_dirty_offset"] == log.first_dirty_offset == 12
    assert desk.node.metrics.cleanings == 1
    assert desk.node.metrics.cleaned_bytes == event["bytes_before"]
    desk.advance(60)
    assert len(events(desk, "segments_cleaned")) == 1, "a clean log is left alone"


def test_the_files_that_were_merged_go_after_their_delay() -> None:
    desk = desk_with()
    desk.create_topic("t", file_delete_delay_ms="5000", **COMPACT)
    fill(desk, "t")
    desk.advance(2)
    assert any(name.endswith(".deleted") for name in desk.disks["data"].list("t-0"))
    desk.advance(6)
    assert not any(name.endswith(".deleted") for name in desk.disks["data"].list("t-0"))


def test_where_the_next_pass_begins_outlives_a_restart() -> None:
    desk = desk_with()
    desk.create_topic("t", **COMPACT)
    fill(desk, "t")
    desk.advance(20)
    assert parse_offsets(read_whole(desk.disks["data"], CLEANER_OFFSETS)) == {("t", 0): 12}
    again = desk_with(disks={"data": desk.disks["data"].crash("killed")})
    partition = again.node.broker.partitions.of_name("t")[0]
    assert partition.opened(again.clock.now()).first_dirty_offset == 12
    again.advance(20)
    assert events(again, "segments_cleaned") == []


def test_one_pass_at_a_time_in_a_directory_and_the_dirtiest_first() -> None:
    desk = desk_with()
    desk.create_topic("little", **COMPACT)
    desk.create_topic("much", **COMPACT)
    desk.create_topic("plain")
    for topic in ("little", "much"):
        fill(desk, topic)
    desk.advance(2)
    fill(desk, "little", count=4)
    fill(desk, "much", count=40)
    desk.runs_jobs = False
    desk.advance(5)
    assert [run.job.directory for run in desk.jobs if isinstance(run.job, CleanJob)] == ["much-0"]
    desk.effects.clear()
    desk.run_jobs()
    assert [event["partition"] for event in events(desk, "segments_cleaned")] == ["much-0", "little-0"]


def test_directories_do_not_wait_for_each_other() -> None:
    desk = desk_with(disks={"a": MemoryDisk(), "b": MemoryDisk()})
    desk.create_topic("t", 2, **COMPACT)
    fill(desk, "t", 0)
    fill(desk, "t", 1)
    desk.runs_jobs = False
    desk.advance(2)
    assert sorted(run.directory for run in desk.jobs if isinstance(run.job, CleanJob)) == ["a", "b"]


def test_the_cleaner_can_be_turned_off() -> None:
    desk = desk_with({"log.cleaner.enable": "false"})
    desk.create_topic("t", **COMPACT)
    fill(desk, "t")
    desk.advance(60)
    assert len(rows(log_of(desk, "t"))) == 12


def test_the_cleaners_limits_reach_the_job() -> None:
    desk = desk_with(
        {
            "log.cleaner.dedupe.buffer.size": "1000000",
            "log.cleaner.io.buffer.load.factor": "0.5",
            "log.cleaner.io.buffer.size": "300000",
            "log.cleaner.io.max.bytes.per.second": "2000000",
        }
    )
    desk.create_topic("t", **COMPACT)
    fill(desk, "t")
    desk.runs_jobs = False
    desk.advance(2)
    (job,) = [run.job for run in desk.jobs if isinstance(run.job, CleanJob)]
    assert job.limits.map_bytes == 500_000
    assert job.limits.io_bytes == 300_000
    assert job.bytes_per_second == 2_000_000


def test_a_log_that_cannot_be_cleaned_is_reported_once() -> None:
    desk = desk_with()
    desk.create_topic("t", **COMPACT)
    fill(desk, "t")
    path = "t-0/" + "0" * 20 + ".log"
    desk.disks["data"].flip(path, 8, 0x40)  # the length of the first batch: nobody can tell where it ends
    desk.advance(60)
    (event,) = events(desk, "partition_uncleanable")
    assert event["partition"] == "t-0"
    assert events(desk, "segments_cleaned") == []
    assert desk.halted is None


def test_a_full_disk_postpones_a_pass() -> None:
    disk = FaultyDisk(MemoryDisk())
    desk = desk_with(disks={"data": disk})
    desk.create_topic("t", **COMPACT)
    fill(desk, "t")
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", path=".cleaned"))
    desk.advance(1.5)
    assert len(events(desk, "cleaning_postponed")) == 1
    assert not any(name.endswith(".cleaned") for name in disk.list("t-0"))
    desk.advance(2)
    assert len(events(desk, "segments_cleaned")) == 1


def test_a_topic_deleted_during_a_pass() -> None:
    desk = desk_with()
    desk.create_topic("t", **COMPACT)
    fill(desk, "t")
    desk.runs_jobs = False
    desk.advance(2)
    (run,) = [run for run in desk.jobs if isinstance(run.job, CleanJob)]
    desk.jobs.remove(run)
    desk.runs_jobs = True
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    assert desk.ask(request, 6).responses[0].error_code == 0
    desk.create_topic("t", **COMPACT)
    desk.jobs.append(run)
    desk.settle()
    assert events(desk, "segments_cleaned") == events(desk, "partition_uncleanable") == []
    fill(desk, "t")
    desk.advance(2)
    assert len(events(desk, "segments_cleaned")) == 1
