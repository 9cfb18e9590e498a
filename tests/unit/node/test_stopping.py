"""A clean stop: what was taken is finished, what is durable is answered, and nothing is written after it."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from harness.node_records import batch, look_up, only, values_of
from harness.node_transactions import Producer, latest
from headrace.base.time import Now
from headrace.node.effects import Report, Run
from headrace.simulator.manual_host import ManualHost
from headrace.storage.directory_jobs import CheckpointJob
from headrace.storage.errors import LogClosed
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.stop_record import CLEAN_MARKER


def stop(host: ManualHost) -> None:
    host.node.shutdown(host.clock.now())
    host.settle()


def run_only(host: ManualHost, wanted: Any) -> None:
    """Jobs that are wanted, in their order, until none is left; the others stay in their queues."""
    while (job := next((one for one in host.jobs if wanted(one)), None)) is not None:
        host.jobs.remove(job)
        host.jobs.appendleft(job)
        host.run_job()
        host.settle()


def is_checkpoint(run: Run) -> bool:
    return isinstance(run.job, CheckpointJob)


def test_a_checkpoint_under_way_is_not_written_over_the_last_one() -> None:
    """Three records are checkpointed by a job that is still queued when six more are there and the node is
    told to stop.
    """
    host = ManualHost()
    host.create_topic("t")
    host.runs_jobs = False
    for number in range(3):
        host.ask(host.produce_request("t", batch(b"%d" % number)), 9)
    host.advance(5.1)
    run_only(host, lambda run: not is_checkpoint(run))
    host.advance(5.1)
    run_only(host, lambda run: not is_checkpoint(run))
    assert any(map(is_checkpoint, host.jobs)), "there is a checkpoint to come late"
    for number in range(3, 9):
        host.ask(host.produce_request("t", batch(b"%d" % number)), 9)
    stop(host)
    run_only(host, lambda run: not is_checkpoint(run))
    late = list(host.jobs) if host.node.is_stopped else []
    host.run_jobs()
    assert not late, "the node has stopped while a checkpoint was under way"
    assert host.node.is_stopped
    again = ManualHost(disks=host.disks)
    assert values_of(again, "t") == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_whoever_waits_for_the_last_flush_is_answered(boot_id: str) -> None:
    host = ManualHost()
    host.create_topic("t", flush_messages="1")
    host.runs_jobs = False
    connection = host.connect()
    host.send(connection, host.produce_request("t", batch(b"durable"), timeout_ms=60_000), 9)
    assert host.receive(connection) is None
    stop(host)
    assert not host.node.is_stopped
    host.run_jobs()
    assert host.node.is_stopped
    assert only(host.receive(connection)).error_code == 0
    assert values_of(ManualHost(disks=host.disks, boot_id=boot_id), "t") == [b"durable"]


def test_a_request_of_the_last_moment_is_not_served() -> None:
    host = ManualHost()
    host.create_topic("t", flush_messages="1")
    host.runs_jobs = False
    waiting, late = host.connect(), host.connect()
    host.send(waiting, host.produce_request("t", batch(b"first"), timeout_ms=60_000), 9)
    stop(host)
    host.send(late, host.produce_request("t", batch(b"late")), 9)
    host.send(waiting, host.produce_request("t", batch(b"behind")), 9)
    host.run_jobs()
    assert host.node.is_stopped
    assert "shutting down" in host.closed[late.id]
    assert waiting.id not in host.closed, "its first answer is still owed"
    assert only(host.receive(waiting)).error_code == 0
    assert host.receive(waiting) is None
    assert values_of(ManualHost(disks=host.disks), "t") == [b"first"]


def test_no_log_takes_a_record_after_the_clean_marker() -> None:
    host = ManualHost()
    host.create_topic("t")
    host.ask(host.produce_request("t", batch(b"v")), 9)
    stop(host)
    assert host.node.is_stopped
    (partition,) = host.partitions("t")
    with pytest.raises(LogClosed):
        partition.append(memoryview(bytearray(batch(b"w"))), host.clock.now())
    assert host.node.deadline() is None
    assert host.halted is None


def test_a_long_frame_that_was_taken_is_served_before_the_stop() -> None:
    host = ManualHost()
    host.create_topic("t")
    connection = host.connect()
    host.send(connection, look_up(), 1)
    assert connection.is_decoding
    stop(host)
    assert not host.node.is_stopped
    host.advance(1)
    assert host.node.is_stopped
    assert not connection.is_decoding


def test_an_end_marker_that_waits_for_space_is_left_to_the_next_start() -> None:
    disk = FaultyDisk(MemoryDisk())
    settings = {"log.dirs": "data", "metadata.log.dir": "meta", "transaction.state.log.num.partitions": "1"}
    host = ManualHost(settings, disks={"meta": MemoryDisk(), "data": disk})
    host.create_topic("t")
    producer = Producer(host)
    assert producer.write("t", version=13) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "t-0"))
    assert producer.end(commit=True, version=5).error_code == 0
    host.runs_jobs = False
    stop(host)
    host.advance(1.1)  # when it would be tried again
    host.run_jobs()
    assert host.node.is_stopped
    again = ManualHost(settings, disks=host.disks, clock=host.clock)
    again.advance(3)
    assert latest(again, "t", 1) == 2


def test_a_job_that_comes_back_after_the_stop_is_nobodys_concern() -> None:
    host = ManualHost()
    host.create_topic("t")
    host.runs_jobs = False

    def unexpected(now: Now, result: Any) -> None:
        raise AssertionError(result)

    host.node.jobs.run("data", "removal", CheckpointJob({}, []), unexpected)
    stop(host)
    assert host.node.is_stopped
    host.run_jobs()


def test_a_full_disk_costs_its_own_directory_the_marker_and_no_record() -> None:
    settings = {"log.dirs": "data", "metadata.log.dir": "meta"}
    disk = FaultyDisk(MemoryDisk())
    host = ManualHost(settings, disks={"meta": MemoryDisk(), "data": disk})
    host.create_topic("t")
    host.ask(host.produce_request("t", batch(b"v")), 9)
    disk.faults = [Fault(Fail(errno.ENOSPC), "create", "recovery-point", times=99)]
    stop(host)
    assert host.node.is_stopped
    assert host.halted is None
    reports = [one.event for one in host.effects if isinstance(one, Report)]
    assert "stop_not_clean" in reports
    assert host.disks["meta"].exists(CLEAN_MARKER)
    assert not disk.exists(CLEAN_MARKER)
    disk.faults.clear()
    assert values_of(ManualHost(settings, disks=host.disks), "t") == [b"v"]
