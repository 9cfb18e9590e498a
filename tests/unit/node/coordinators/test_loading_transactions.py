"""A coordinator of transactions that is loaded after a start: most of its log is read by compiled code."""

from __future__ import annotations

from typing import Any

import pytest

from harness.disks import memory_of
from harness.node_transactions import Producer
from headrace.node.effects import Report
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.records.batch import renew_crc
from headrace.records.builder import build_batch, end_marker
from headrace.simulator.manual_host import ManualHost
from headrace.storage.memory_disk import MemoryDisk

SETTINGS = {
    "log.dirs": "data",
    "metadata.log.dir": "meta",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
LOG = "__transaction_state-0/00000000000000000000.log"


@pytest.fixture
def stopped() -> ManualHost:
    """A node that was killed: one transaction was committed, one is open."""
    host = ManualHost(SETTINGS, disks={"meta": MemoryDisk(), "data": MemoryDisk()})
    host.create_topic("t")
    ended = Producer(host, "ended")
    assert ended.write("t", version=13) == 0
    assert ended.end(commit=True, version=5).error_code == 0
    assert Producer(host, "open").write("t", version=13) == 0
    return host


def start(host: ManualHost, **settings: str) -> ManualHost:
    clone: dict[str, Any] = {name: memory_of(disk).clone() for name, disk in host.disks.items()}
    texts = {**host.texts, **{name.replace("_", "."): value for name, value in settings.items()}}
    again = ManualHost(texts, disks=clone, clock=host.clock)
    again.advance(2)
    return again


def append(host: ManualHost, batch: bytes) -> None:
    """What a coordinator would not write."""
    (partition,) = host.partitions("__transaction_state")
    now = host.clock.now()
    partition.opened(now).append(
        memoryview(bytearray(batch)),
        wall_ms=now.wall_ms,
        leader_epoch=partition.leader_epoch,
        from_client=False,
    )


def states(host: ManualHost, *names: str) -> list[str | int]:
    reply = host.ask(DescribeTransactionsRequest(transactional_ids=list(names)), 0)
    return [each.error_code or each.transaction_state for each in reply.transaction_states]


def unreadable(host: ManualHost) -> list[tuple[str, int]]:
    return [
        (effect.facts["partition"], effect.facts["offset"])
        for effect in host.effects
        if isinstance(effect, Report) and effect.event == "coordinator_record_unreadable"
    ]


@pytest.mark.parametrize("buffer_bytes", ["100", "5242880"])
def test_the_state_is_as_it_was(stopped: ManualHost, buffer_bytes: str) -> None:
    host = start(stopped, offsets_load_buffer_size=buffer_bytes)
    assert states(host, "ended", "open") == ["CompleteCommit", "Ongoing"]
    (before,), (after,) = (
        [shard.machine.state() for shard in each.node.broker.transactions.loaded_shards()]
        for each in (stopped, host)
    )
    assert before == after
    assert [type(state) for state in before.values()] == [type(state) for state in after.values()]


def test_records_that_nobody_can_read_are_reported_and_cost_no_other(stopped: ManualHost) -> None:
    rows = (
        (None, b"without a key"),
        (b"\0\x63?", b"of a kind that is not known"),
        (b"\0\0\0\4open", b"\0\1?"),
    )
    append(stopped, build_batch([(1_700_000_000_000, key, value, ()) for key, value in rows]))
    producer = Producer(stopped, "later")
    host = start(stopped)
    assert states(host, "ended", "open", producer.name) == ["CompleteCommit", "Ongoing", "Empty"]
    assert unreadable(host) == [("__transaction_state-0", 8)]


def test_markers_and_compressed_batches_are_no_obstacle(stopped: ManualHost) -> None:
    append(
        stopped,
        end_marker(committed=True, coordinator_epoch=0, producer_id=77, producer_epoch=0, timestamp=5),
    )
    append(stopped, build_batch([(5, b"\0\0\0\5ended", None, ())], codec=1))
    append(stopped, build_batch([(5, b"\0\0\0\5never", None, ())]))
    producer = Producer(stopped, "later")
    host = start(stopped)
    assert states(host, "open", producer.name) == ["Ongoing", "Empty"]
    assert states(host, "ended") == [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
    assert unreadable(host) == []


@pytest.mark.parametrize("has_sum", [False, True])
def test_behind_a_damaged_batch_nothing_is_decided(stopped: ManualHost, has_sum: bool) -> None:
    file = memory_of(stopped.disks["data"]).open(LOG)
    content = bytearray(file.read(0, file.size()))
    content[61] ^= 0x40  # the length of the first record
    if has_sum:
        renew_crc(content, 0)

    class Damaged(ManualHost):
        def run_job(self) -> None:
            if self.jobs[0].queue == "loading" and LOG in str(self.jobs[0].job):
                job = self.jobs.popleft()
                self.node.completed(self.clock.now(), job.ticket, bytes(content))
            else:
                super().run_job()

    clone: dict[str, Any] = {name: memory_of(disk).clone() for name, disk in stopped.disks.items()}
    host = Damaged(stopped.texts, disks=clone, clock=stopped.clock)
    host.advance(2)
    assert unreadable(host) == [("__transaction_state-0", 0)]
    assert states(host, "open") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
