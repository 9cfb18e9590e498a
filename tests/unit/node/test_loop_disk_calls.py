"""What the event loop asks of the disk itself, and does not leave to jobs: nothing that waits for it."""

from __future__ import annotations

from typing import Any

from harness.node_records import batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Call, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

SEGMENT_BYTES = 1024 * 1024
LARGE = b"x" * 300_000  # three of them fill a segment


class Loop(ManualHost):
    """A host that tells the disk calls of the node from those of its jobs."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        super().__init__(settings, disks={"data": self.disk})

    def run_job(self) -> None:
        job = self.jobs.popleft()
        before = len(self.disk.calls)
        result: Any
        try:
            result = job.job.run(self.disk)
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
