"""What the event loop asks of the disk itself, and does not leave to jobs: nothing that waits for it."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from harness.node_records import batch
from headrace.node.connection import Connection
from headrace.node.group_commit import FlushTogether
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.simulator.manual_host import ManualHost
from headrace.storage.directory_jobs import CheckpointJob
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Call, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

SEGMENT_BYTES = 1024 * 1024
LARGE = b"x" * 300_000  # three of them fill a segment


class Loop(ManualHost):
    """A host that tells the disk calls of the node from those of its jobs."""

    def __init__(self, settings: dict[str, str] | None = None, **disks: Disk) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        super().__init__(settings, disks={"data": self.disk, **disks})

    def run_job(self) -> None:
        job = self.jobs.popleft()
        before = len(self.disk.calls)
        result: Any
        try:
            result = job.job.run(self.disks[job.directory])
        except Exception as error:
            result = error
        del self.disk.calls[before:]
        self.node.completed(self.clock.now(), job.ticket, result)

    def produce(self, value: bytes = LARGE) -> None:
        answer = self.ask(self.produce_request("t", batch(value)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def calls_of(self, *operations: str) -> list[Call]:
        return [call for call in self.disk.calls if call.operation in operations]

    def names(self, suffix: str) -> list[str]:
        return [name for name in self.disk.list("t-0") if name.endswith(suffix)]


def test_a_busy_log_is_rolled_without_creating_a_file() -> None:
    loop = Loop()
    loop.create_topic("t", segment_bytes=str(SEGMENT_BYTES))
    loop.produce()
    loop.advance(5.1)  # housekeeping has looked at the log
    loop.disk.calls.clear()
    for _ in range(9):
        loop.produce()
    assert len(loop.names(".log")) == 4
    assert not [call for call in loop.calls_of("create") if not call.path.endswith(".snapshot")]
    assert loop.calls_of("sync", "sync_dir") == []
    assert len([call for call in loop.calls_of("rename") if call.path.endswith(".log")]) == 3


def test_a_log_that_grows_slowly_is_prepared_for_its_roll_once() -> None:
    loop = Loop()
    loop.create_topic("t", segment_bytes=str(SEGMENT_BYTES))
    loop.produce(b"first")
    while not loop.names(".tmp"):
        loop.produce(b"x" * 50_000)
        loop.advance(6.0)
    (partition,) = loop.partitions("t")
    assert partition.log is not None
    assert SEGMENT_BYTES * 3 / 4 <= partition.log.active.size < SEGMENT_BYTES * 3 / 4 + 51_000
    loop.disk.calls.clear()
    while len(loop.names(".log")) == 1:
        loop.produce(b"x" * 50_000)
        loop.advance(6.0)
    assert not [call for call in loop.calls_of("create") if not call.path.endswith(".snapshot")]
    assert loop.calls_of("sync", "sync_dir") == []
    assert loop.names(".tmp") == [], "this segment will last a while, too"


def test_retention_makes_no_fsync() -> None:
    loop = Loop({"log.retention.check.interval.ms": "1000"})
    loop.create_topic("t", segment_bytes=str(SEGMENT_BYTES), retention_ms="60000")
    for _ in range(4):
        loop.produce()
    loop.disk.calls.clear()
    loop.advance(70.0)
    (partition,) = loop.partitions("t")
    assert partition.log is not None
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (4, 4)
    assert loop.names(".log") == ["00000000000000000004.log"]
    assert loop.calls_of("sync", "sync_dir") == []


def delete(loop: Loop, offset: int, timeout_ms: int = 30_000) -> Connection:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=[asked])
    connection = loop.connect()
    loop.send(connection, DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 2)
    return connection


def told(loop: Loop, connection: Connection) -> tuple[int, int] | None:
    answer = loop.receive(connection)
    if answer is None:
        return None
    (result,) = answer.topics[0].partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("offset", [3, 4])
def test_records_are_deleted_without_an_fsync(offset: int) -> None:
    """Those of a whole segment, and all."""
    loop = Loop()
    loop.create_topic("t", segment_bytes=str(SEGMENT_BYTES))
    for _ in range(4):
        loop.produce()
    loop.disk.calls.clear()
    assert told(loop, delete(loop, offset)) == (0, offset)
    assert loop.names(".log") == [f"{offset:020d}.log"]
    assert loop.calls_of("sync", "sync_dir") == []


def test_a_new_start_is_written_after_the_flush_of_what_stands_for_the_records() -> None:
    loop = Loop()
    loop.create_topic("t", segment_bytes=str(SEGMENT_BYTES))
    for _ in range(4):
        loop.produce()
    loop.runs_jobs = False
    connection = delete(loop, 3)
    (flush,) = loop.jobs
    assert isinstance(flush.job, FlushTogether)
    loop.run_job()
    loop.settle()
    (start,) = loop.jobs
    assert isinstance(start.job, CheckpointJob)
    assert told(loop, connection) is None
    loop.run_job()
    loop.settle()
    assert told(loop, connection) == (0, 3)


def test_a_client_that_does_not_wait_for_the_flush_deletes_nothing() -> None:
    loop = Loop()
    loop.create_topic("t", segment_bytes=str(SEGMENT_BYTES))
    for _ in range(4):
        loop.produce()
    loop.runs_jobs = False
    connection = delete(loop, 3, timeout_ms=0)
    loop.advance(0.01)
    assert told(loop, connection) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    loop.runs_jobs = True
    loop.settle()
    loop.advance(1.0)
    (partition,) = loop.partitions("t")
    assert partition.log is not None
    assert partition.log.log_start_offset == 0


def test_a_flush_that_fails_is_told() -> None:
    loop = Loop({"log.dirs": "data", "metadata.log.dir": "meta"}, meta=MemoryDisk())
    loop.create_topic("t", segment_bytes=str(SEGMENT_BYTES))
    for _ in range(4):
        loop.produce()
    loop.disk.faults.append(Fault(Fail(errno.EIO), "sync", ".snapshot"))
    assert told(loop, delete(loop, 3)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_segments_that_wait_for_a_flush_are_there_after_a_kill() -> None:
    loop = Loop({"log.retention.check.interval.ms": "1000"})
    loop.create_topic("t", segment_bytes=str(SEGMENT_BYTES), retention_ms="60000")
    for _ in range(4):
        loop.produce()
    loop.runs_jobs = False
    loop.advance(70.0)
    assert len(loop.names(".log")) == 3, "two with records, and one for those to come"
    (partition,) = loop.partitions("t")
    assert partition.log is not None
    assert (partition.log.log_start_offset, partition.log.retires_before) == (0, 4)
    loop.runs_jobs = True
    loop.restart()
    loop.advance(2.0)
    (partition,) = loop.partitions("t")
    assert partition.log is not None
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (4, 4)
    assert loop.names(".log") == ["00000000000000000004.log"]
