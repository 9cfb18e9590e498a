"""The node cleans compacted logs unasked: the dirtiest of a directory first, one at a time."""

from __future__ import annotations

import errno
from typing import Any

from harness.compaction import newest, rows
from harness.disks import memory_of
from headrace.node.cleaner import Cleaner
from headrace.node.effects import Report
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.checkpoints import CLEANER_OFFSETS, parse_offsets
from headrace.storage.cleaning import CleanJob
from headrace.storage.disk import read_whole
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

COMPACT = {"cleanup_policy": "compact", "segment_bytes": "1048576", "min_cleanable_dirty_ratio": "0.1"}


def host_with(settings: dict[str, str] | None = None, **options: Any) -> ManualHost:
    return ManualHost({"log.cleaner.backoff.ms": "1000", **(settings or {})}, **options)


def fill(host: ManualHost, topic: str, index: int = 0, *, keys: int = 3, count: int = 12) -> None:
    """Overwritten keys in two sealed and flushed segments."""
    partition = host.partitions(topic)[index]
    now = host.clock.now()
    log = partition.opened(now)
    for number in range(count):
        record = (now.wall_ms, b"k%d" % (number % keys), b"%d" % number * 100, ())
        partition.append(memoryview(bytearray(build_batch([record]))), now)
        if number in (count // 2, count - 1):
            log.roll(now.wall_ms)
    job = log.flush_job()
    assert job is not None
    log.complete_flush(job.run(host.disks[partition.directory]))


def log_of(host: ManualHost, topic: str, index: int = 0) -> Any:
    return host.partitions(topic)[index].log


def events(host: ManualHost, name: str) -> list[dict[str, Any]]:
    return [one.facts for one in host.effects if isinstance(one, Report) and one.event == name]


def test_a_dirty_log_is_cleaned_and_reported() -> None:
    host = host_with()
    host.create_topic("t", **COMPACT)
    fill(host, "t")
    expected = newest(log_of(host, "t"))
    host.advance(2)
    log = log_of(host, "t")
    assert [row.offset for row in rows(log)] == [9, 10, 11]
    assert newest(log) == expected
    (event,) = events(host, "segments_cleaned")
    assert event["partition"] == "t-0"
    assert (event["segments"], event["records_before"], event["records_after"]) == (2, 12, 3)
    assert event["first_dirty_offset"] == log.first_dirty_offset == 12
    assert host.node.metrics.cleanings == 1
    assert host.node.metrics.cleaned_bytes == event["bytes_before"]
    host.advance(60)
    assert len(events(host, "segments_cleaned")) == 1, "a clean log is left alone"


def test_the_files_that_were_merged_go_after_their_delay() -> None:
    host = host_with()
    host.create_topic("t", file_delete_delay_ms="5000", **COMPACT)
    fill(host, "t")
    host.advance(2)
    assert any(name.endswith(".deleted") for name in host.disks["data"].list("t-0"))
    host.advance(6)
    assert not any(name.endswith(".deleted") for name in host.disks["data"].list("t-0"))


def test_where_the_next_pass_begins_outlives_a_restart() -> None:
    host = host_with()
    host.create_topic("t", **COMPACT)
    fill(host, "t")
    host.advance(20)
    assert parse_offsets(read_whole(host.disks["data"], CLEANER_OFFSETS)) == {("t", 0): 12}
    again = host_with(disks={"data": memory_of(host.disks["data"]).crash("killed")})
    partition = again.partitions("t")[0]
    assert partition.opened(again.clock.now()).first_dirty_offset == 12
    again.advance(20)
    assert events(again, "segments_cleaned") == []


def test_one_pass_at_a_time_in_a_directory_and_the_dirtiest_first() -> None:
    host = host_with()
    host.create_topic("little", **COMPACT)
    host.create_topic("much", **COMPACT)
    host.create_topic("plain")
    for topic in ("little", "much"):
        fill(host, topic)
    host.advance(2)
    fill(host, "little", count=4)
    fill(host, "much", count=40)
    host.runs_jobs = False
    host.advance(5)
    assert [run.job.directory for run in host.jobs if isinstance(run.job, CleanJob)] == ["much-0"]
    host.effects.clear()
    host.run_jobs()
    assert [event["partition"] for event in events(host, "segments_cleaned")] == ["much-0", "little-0"]


def test_directories_do_not_wait_for_each_other() -> None:
    host = host_with(disks={"a": MemoryDisk(), "b": MemoryDisk()})
    host.create_topic("t", 2, **COMPACT)
    fill(host, "t", 0)
    fill(host, "t", 1)
    host.runs_jobs = False
    host.advance(2)
    assert sorted(run.directory for run in host.jobs if isinstance(run.job, CleanJob)) == ["a", "b"]


def test_the_cleaner_can_be_turned_off() -> None:
    host = host_with({"log.cleaner.enable": "false"})
    host.create_topic("t", **COMPACT)
    fill(host, "t")
    host.advance(60)
    assert len(rows(log_of(host, "t"))) == 12


def test_the_cleaners_limits_reach_the_job() -> None:
    host = host_with(
        {
            "log.cleaner.dedupe.buffer.size": "1000000",
            "log.cleaner.io.buffer.load.factor": "0.5",
            "log.cleaner.io.buffer.size": "300000",
            "log.cleaner.io.max.bytes.per.second": "2000000",
        }
    )
    host.create_topic("t", **COMPACT)
    fill(host, "t")
    host.runs_jobs = False
    host.advance(2)
    (job,) = [run.job for run in host.jobs if isinstance(run.job, CleanJob)]
    assert job.limits.map_bytes == 500_000
    assert job.limits.io_bytes == 300_000
    assert job.bytes_per_second == 2_000_000


def test_a_log_that_cannot_be_cleaned_is_reported_once() -> None:
    host = host_with()
    host.create_topic("t", **COMPACT)
    fill(host, "t")
    path = "t-0/" + "0" * 20 + ".log"
    memory_of(host.disks["data"]).flip(
        path, 8, 0x40
    )  # the length of the first batch: nobody can tell where it ends
    host.advance(60)
    (event,) = events(host, "partition_uncleanable")
    assert event["partition"] == "t-0"
    assert events(host, "segments_cleaned") == []
    assert host.halted is None


def test_a_full_disk_postpones_a_pass() -> None:
    disk = FaultyDisk(MemoryDisk())
    host = host_with(disks={"data": disk})
    host.create_topic("t", **COMPACT)
    fill(host, "t")
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", path=".cleaned"))
    host.advance(1.5)
    assert len(events(host, "cleaning_postponed")) == 1
    assert not any(name.endswith(".cleaned") for name in disk.list("t-0"))
    host.advance(2)
    assert len(events(host, "segments_cleaned")) == 1


def test_a_topic_deleted_during_a_pass() -> None:
    host = host_with()
    host.create_topic("t", **COMPACT)
    fill(host, "t")
    host.runs_jobs = False
    host.advance(2)
    (run,) = [run for run in host.jobs if isinstance(run.job, CleanJob)]
    host.jobs.remove(run)
    host.runs_jobs = True
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    assert host.ask(request, 6).responses[0].error_code == 0
    host.create_topic("t", **COMPACT)
    host.jobs.append(run)
    host.settle()
    assert events(host, "segments_cleaned") == events(host, "partition_uncleanable") == []
    fill(host, "t")
    host.advance(2)
    assert len(events(host, "segments_cleaned")) == 1


def test_a_log_that_moves_after_it_was_found_dirty_is_cleaned_in_a_later_round() -> None:
    """In its new directory another may be at work: a move whose copy must not be rewritten under it."""
    host = host_with(disks={"a": MemoryDisk(), "b": MemoryDisk()})
    host.create_topic("t", **COMPACT)
    fill(host, "t")
    (partition,) = host.partitions("t")
    broker, directories = host.node.broker, host.node.directories
    cleaner = Cleaner(broker.partitions, directories, broker.settings, broker.ports, broker.metrics)
    cleaner.partitions()
    cleaner.look_at(host.clock.now(), partition)
    target = "b" if partition.directory == "a" else "a"
    host.node.broker.moves.order(host.clock.now(), partition, target)
    host.settle()
    assert partition.directory == target
    directories.begin_rewrite(target)
    cleaner.start(host.clock.now())
    host.settle()
    assert not directories.may_rewrite(target)
    assert not events(host, "segments_cleaned")
    directories.end_rewrite(target)
    host.advance(3)
    assert len(events(host, "segments_cleaned")) == 1
