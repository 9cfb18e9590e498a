"""A clean stop: what was taken is finished, what is durable is answered, and nothing is written after it."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.unit.node.coordinators.test_transactions import Producer, latest
from tests.unit.node.test_long_frames import look_up
from tests.unit.node.test_produce import batch, only, values_of

from harness.desk import Desk
from headrace.base.time import Now
from headrace.node.effects import Report, Run
from headrace.storage.directory_jobs import CheckpointJob
from headrace.storage.errors import LogClosed
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.stop_record import CLEAN_MARKER


def stop(desk: Desk) -> None:
    desk.node.shutdown(desk.clock.now())
    desk.settle()


def run_only(desk: Desk, wanted: Any) -> None:
    """Jobs that are wanted, in their order, until none is left; the others stay in their lanes."""
    while (job := next((one for one in desk.jobs if wanted(one)), None)) is not None:
        desk.jobs.remove(job)
        desk.jobs.appendleft(job)
        desk.run_job()
        desk.settle()


def is_checkpoint(run: Run) -> bool:
    return isinstance(run.job, CheckpointJob)


def test_a_checkpoint_under_way_is_not_written_over_the_last_one() -> None:
    """Three records are checkpointed by a job that is still queued when six more are there and the node is
    told to stop.
    """
    desk = Desk()
    desk.create_topic("t")
    desk.runs_jobs = False
    for number in range(3):
        desk.ask(desk.produce_request("t", batch(b"%d" % number)), 9)
    desk.advance(5.1)
    run_only(desk, lambda run: not is_checkpoint(run))
    desk.advance(5.1)
    run_only(desk, lambda run: not is_checkpoint(run))
    assert any(map(is_checkpoint, desk.jobs)), "there is a checkpoint to come late"
    for number in range(3, 9):
        desk.ask(desk.produce_request("t", batch(b"%d" % number)), 9)
    stop(desk)
    run_only(desk, lambda run: not is_checkpoint(run))
    late = list(desk.jobs) if desk.node.is_stopped else []
    desk.run_jobs()
    assert not late, "the node has stopped while a checkpoint was under way"
    assert desk.node.is_stopped
    again = Desk(disks=desk.disks)
    assert values_of(again, "t") == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_whoever_waits_for_the_last_flush_is_answered(boot_id: str) -> None:
    desk = Desk()
    desk.create_topic("t", flush_messages="1")
    desk.runs_jobs = False
    connection = desk.connect()
    desk.send(connection, desk.produce_request("t", batch(b"durable"), timeout_ms=60_000), 9)
    assert desk.receive(connection) is None
    stop(desk)
    assert not desk.node.is_stopped
    desk.run_jobs()
    assert desk.node.is_stopped
    assert only(desk.receive(connection)).error_code == 0
    assert values_of(Desk(disks=desk.disks, boot_id=boot_id), "t") == [b"durable"]


def test_a_request_of_the_last_moment_is_not_served() -> None:
    desk = Desk()
    desk.create_topic("t", flush_messages="1")
    desk.runs_jobs = False
    waiting, late = desk.connect(), desk.connect()
    desk.send(waiting, desk.produce_request("t", batch(b"first"), timeout_ms=60_000), 9)
    stop(desk)
    desk.send(late, desk.produce_request("t", batch(b"late")), 9)
    desk.send(waiting, desk.produce_request("t", batch(b"behind")), 9)
    desk.run_jobs()
    assert desk.node.is_stopped
    assert "stops" in desk.closed[late.id]
    assert waiting.id not in desk.closed, "its first answer is still owed"
    assert only(desk.receive(waiting)).error_code == 0
    assert desk.receive(waiting) is None
    assert values_of(Desk(disks=desk.disks), "t") == [b"first"]


def test_no_log_takes_a_record_after_the_clean_marker() -> None:
    desk = Desk()
    desk.create_topic("t")
    desk.ask(desk.produce_request("t", batch(b"v")), 9)
    stop(desk)
    assert desk.node.is_stopped
    (partition,) = desk.node.broker.partitions.of_name("t") or []
    with pytest.raises(LogClosed):
        partition.append(memoryview(bytearray(batch(b"w"))), desk.clock.now())
    assert desk.node.deadline() is None
    assert desk.halted is None


def test_a_long_frame_that_was_taken_is_served_before_the_stop() -> None:
    desk = Desk()
    desk.create_topic("t")
    connection = desk.connect()
    desk.send(connection, look_up(), 1)
    assert connection.is_decoding
    stop(desk)
    assert not desk.node.is_stopped
    desk.advance(1)
    assert desk.node.is_stopped
    assert not connection.is_decoding


def test_an_end_marker_that_waits_for_space_is_left_to_the_next_start() -> None:
    disk = FaultyDisk(MemoryDisk())
    settings = {"log.dirs": "data", "metadata.log.dir": "meta", "transaction.state.log.num.partitions": "1"}
    desk = Desk(settings, disks={"meta": MemoryDisk(), "data": disk})
    desk.create_topic("t")
    producer = Producer(desk)
    assert producer.write("t", version=13) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "t-0"))
    assert producer.end(commit=True, version=5).error_code == 0
    desk.runs_jobs = False
    stop(desk)
    desk.advance(1.1)  # when it would be tried again
    desk.run_jobs()
    assert desk.node.is_stopped
    again = Desk(settings, disks=desk.disks, clock=desk.clock)
    again.advance(3)
    assert latest(again, "t", 1) == 2


def test_a_job_that_comes_back_after_the_stop_is_nobodys_concern() -> None:
    desk = Desk()
    desk.create_topic("t")
    desk.runs_jobs = False

    def unexpected(now: Now, result: Any) -> None:
        raise AssertionError(result)

    desk.node.jobs.run("data", "removal", CheckpointJob({}, []), unexpected)
    stop(desk)
    assert desk.node.is_stopped
    desk.run_jobs()


def test_a_full_disk_costs_its_own_directory_the_marker_and_no_record() -> None:
    settings = {"log.dirs": "data", "metadata.log.dir": "meta"}
    disk = FaultyDisk(MemoryDisk())
    desk = Desk(settings, disks={"meta": MemoryDisk(), "data": disk})
    desk.create_topic("t")
    desk.ask(desk.produce_request("t", batch(b"v")), 9)
    disk.faults = [Fault(Fail(errno.ENOSPC), "create", "recovery-point", times=99)]
    stop(desk)
    assert desk.node.is_stopped
    assert desk.halted is None
    reports = [one.event for one in desk.effects if isinstance(one, Report)]
    assert "stop_not_clean" in reports
    assert desk.disks["meta"].exists(CLEAN_MARKER)
    assert not disk.exists(CLEAN_MARKER)
    disk.faults.clear()
    assert values_of(Desk(settings, disks=desk.disks), "t") == [b"v"]
