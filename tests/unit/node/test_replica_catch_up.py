"""Followers that lag behind get everything, however much there is and wherever the leader's log starts."""

from __future__ import annotations

from typing import Any

import pytest

from harness.replica_brokers import ReplicaBrokers
from headrace.base.time import Now
from headrace.node.following import Following
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.simulator.manual_host import ManualHost
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE


def end(brokers: ReplicaBrokers, id: int, index: int = 0) -> int:
    return brokers.partition(id, index).opened(brokers.clock.now()).log_end_offset


def test_what_does_not_fit_into_an_answer_comes_with_the_next() -> None:
    brokers = ReplicaBrokers(2, {"replica.fetch.response.max.bytes": "10000"})
    brokers.create_topic(partitions=3)
    brokers.exchange()
    brokers.separate(1, 2)
    for index in range(3):
        brokers.produce(1, b"." * 7_000, index=index)
    brokers.heal()
    brokers.advance(5.0)
    assert [end(brokers, 2, index) for index in range(3)] == [1, 1, 1]


def test_so_does_a_batch_that_is_larger_than_a_partition_may_have() -> None:
    brokers = ReplicaBrokers(2, {"replica.fetch.max.bytes": "1000"})
    brokers.create_topic(partitions=3)
    brokers.exchange()
    brokers.separate(1, 2)
    for index in range(3):
        brokers.produce(1, b"." * 7_000, index=index)
    brokers.heal()
    brokers.advance(5.0)
    assert [end(brokers, 2, index) for index in range(3)] == [1, 1, 1]


def test_a_follower_begins_with_the_batch_in_which_the_leaders_log_starts() -> None:
    brokers = ReplicaBrokers(2)
    brokers.create_topic()
    brokers.exchange()
    brokers.separate(1, 2)
    brokers.produce(1, b"a", b"b", b"c", b"d")
    brokers.advance(2.0)
    assert brokers.control() == [ErrorCode.NONE]
    host = brokers.hosts[1]
    connection = host.connect()
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    host.send(connection, DeleteRecordsRequest(topics=[topic], timeout_ms=60_000), 2)
    brokers.heal()
    brokers.advance(5.0)
    assert end(brokers, 2) == 4
    log = brokers.partition(2).opened(brokers.clock.now())
    assert log.log_start_offset == 2
    assert brokers.content(1) == brokers.content(2)
    brokers.control()
    assert brokers.state().isr == (1, 2)


def test_where_each_message_is_flushed_a_new_leader_epoch_does_not_make_it_durable() -> None:
    brokers = ReplicaBrokers(2)
    brokers.create_topic(flush_messages="1")
    brokers.exchange()
    brokers.hosts[2].runs_jobs = False
    brokers.produce(1, b"a")
    brokers.exchange()
    assert end(brokers, 2) == 1  # and not flushed
    (flush,) = brokers.hosts[2].jobs
    brokers.hosts[2].jobs.clear()
    brokers.hosts[2].runs_jobs = True
    brokers.lead(1, (1, 2))
    brokers.exchange()
    assert brokers.partition(2).leader_epoch == 1
    assert brokers.partition(1).high_watermark == 0
    brokers.hosts[2].jobs.append(flush)
    brokers.hosts[2].run_jobs()
    brokers.exchange()
    assert brokers.partition(1).high_watermark == 1


def test_who_leads_while_its_log_is_being_cut_promises_no_more_than_is_left() -> None:
    """After two unclean elections."""
    brokers = ReplicaBrokers()
    brokers.create_topic()
    brokers.separate(1, 3)
    brokers.produce(1, b"a", b"b")
    brokers.advance(2.0)
    brokers.control()
    brokers.advance(1.0)
    assert brokers.partition(2).high_watermark == 2
    host = brokers.hosts[2]
    brokers.lead(3, (3,))
    host.runs_jobs = False
    brokers.exchange()
    while end(brokers, 2) and host.jobs:
        host.run_job()
        host.settle()
    assert end(brokers, 2) == 0
    assert host.jobs  # the cut is not flushed yet
    host.jobs.clear()
    host.runs_jobs = True
    brokers.lead(2, (2,))
    assert brokers.partition(2).high_watermark == 0


def test_a_new_leader_epoch_costs_no_checkpoint_where_logs_start_alike() -> None:
    """Logs of which retention has deleted the beginning: each checkpoint has all partitions in it."""
    brokers = ReplicaBrokers(2)
    brokers.create_topic(partitions=5)
    brokers.exchange()
    for index in range(5):
        brokers.produce(1, b"a", index=index)
        brokers.produce(1, b"b", index=index)
    brokers.advance(1.0)
    for id in (1, 2):
        for index in range(5):
            brokers.partition(id, index).opened(brokers.clock.now()).advance_log_start(1, 0)
    queues = queues_of(brokers.hosts[2])
    for index in range(5):
        brokers.lead(1, (1, 2), index)
    brokers.advance(1.0)
    assert [brokers.partition(2, index).leader_epoch for index in range(5)] == [1] * 5
    assert queues.count(CHECKPOINT_QUEUE) == 0


def test_new_starts_of_many_logs_are_few_checkpoints() -> None:
    """The leader's retention has deleted the beginning of all of them."""
    brokers = ReplicaBrokers(2)
    brokers.create_topic(partitions=50)
    brokers.exchange()
    for index in range(50):
        brokers.produce(1, b"a", index=index)
        brokers.produce(1, b"b", index=index)
    brokers.advance(1.0)
    host = brokers.hosts[2]
    host.runs_jobs = False
    for index in range(50):
        brokers.partition(1, index).opened(brokers.clock.now()).advance_log_start(1, 0)
        brokers.produce(1, b"c", index=index)
    brokers.exchange()
    queues = queues_of(host)
    host.run_jobs()
    starts = [brokers.partition(2, index).opened(brokers.clock.now()).log_start_offset for index in range(50)]
    assert starts == [1] * 50
    assert queues.count(CHECKPOINT_QUEUE) == 2


def queues_of(host: ManualHost) -> list[str]:
    """Of the jobs that run from now on."""
    queues: list[str] = []
    run = host.run_job

    def counted() -> None:
        queues.append(host.jobs[0].queue)
        run()

    host.run_job = counted  # type: ignore[method-assign]
    return queues


def test_a_mistake_with_one_partition_keeps_no_other_from_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader takes what it has sent for received, until a new session tells it otherwise."""
    brokers = ReplicaBrokers(2)
    brokers.create_topic(partitions=3)
    brokers.exchange()
    brokers.separate(1, 2)
    for index in range(3):
        brokers.produce(1, b"a", index=index)
    answered = Following.answered

    def mistaken(self: Following, now: Now, asked: tuple[int, int], data: Any) -> None:
        if self.partition.index == 1:
            raise ArithmeticError("a mistake")
        answered(self, now, asked, data)

    monkeypatch.setattr(Following, "answered", mistaken)
    brokers.heal()
    with pytest.raises(ArithmeticError):
        brokers.advance(1.0)
    monkeypatch.undo()
    brokers.advance(1.0)
    assert [end(brokers, 2, index) for index in range(3)] == [1, 1, 1]
