"""Batches that wait in front of their log: the order they reach it in, and all that may happen meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.base import limits
from headrace.node import append_queue
from headrace.node import connection as connections
from headrace.node.broker import DRAIN_MS_MAX
from headrace.node.effects import Proceed
from headrace.node.error_codes import Refused
from headrace.node.handlers import produce as produce_handler
from headrace.node.partition import Partition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

TIMESTAMP = 1_700_000_000_000
OPENING = {"headrace_validate_records": "true"}


def small(value: bytes, **more: Any) -> bytes:
    return build_batch([(TIMESTAMP, b"k", value, ())], **more)


def large(value: bytes, **more: Any) -> bytes:
    """Few bytes that are many once they are opened."""
    padding = (("padding", bytes(limits.OPENED_INLINE_BYTES_MAX)),)
    return build_batch([(TIMESTAMP, b"k", value, padding)], codec=Codec.ZSTD, **more)


def bomb() -> bytes:
    padding = (("padding", bytes(2 * limits.PRODUCED_BATCH_OPENED_BYTES_MIN)),)
    return build_batch([(TIMESTAMP, b"k", b"bomb", padding)], codec=Codec.ZSTD)


def host_with(*, jobs_wait: bool = True, **configs: str) -> ManualHost:
    host = ManualHost()
    host.create_topic("t", **(OPENING | configs))
    host.runs_jobs = not jobs_wait
    return host


def produce(host: ManualHost, connection: Any, batch: bytes, **more: int) -> None:
    host.send(connection, host.produce_request("t", batch, **more), 9)


def only(response: Any) -> tuple[int, int]:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition.error_code, partition.base_offset


def values_of(host: ManualHost) -> list[bytes | None]:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
    records = bytes(host.ask(request, 11).responses[0].partitions[0].records or b"")
    return [row[3] for position, header in batches(records) for row in read_rows(records, position, header)]


def partition_of(host: ManualHost) -> Partition:
    partitions = host.partitions("t")
    assert partitions is not None
    return partitions[0]


def test_a_small_batch_is_opened_at_once() -> None:
    host = host_with()
    assert only(host.ask(host.produce_request("t", small(b"a")), 9)) == (0, 0)
    assert not host.jobs


def test_later_batches_queue_behind_one_that_is_being_opened() -> None:
    """From any connection, by the fast path too, whether they need opening or not."""
    host = host_with()
    first, second = host.connect(), host.connect()
    produce(host, second, small(b"a"))  # from now on it would take the fast path
    host.receive(second)
    produce(host, first, large(b"b"))
    produce(host, second, small(b"c"))
    produce(host, first, large(b"d"))
    produce(host, second, small(b"e"), acks=1)
    assert host.receive(first) is None
    assert host.receive(second) is None
    assert values_of(host) == [b"a"]
    host.run_job()
    host.settle()
    assert only(host.receive(first)) == (0, 1)
    assert only(host.receive(second)) == (0, 2)
    assert host.receive(second) is None
    host.run_jobs()
    assert only(host.receive(first)) == (0, 3)
    assert only(host.receive(second)) == (0, 4)
    assert values_of(host) == [b"a", b"b", b"c", b"d", b"e"]
    assert not partition_of(host).has_queue
    assert (host.node.metrics.held, host.node.broker.append_queues.held.bytes, first.held_bytes) == (0, 0, 0)


def test_jobs_that_come_back_in_another_order_do_not_change_that_of_the_log() -> None:
    host = host_with()
    connection = host.connect()
    for value in (b"a", b"b", b"c"):
        produce(host, connection, large(value))
    host.jobs.rotate(1)
    host.run_jobs()
    assert values_of(host) == [b"a", b"b", b"c"]


def test_other_partitions_go_on() -> None:
    host = host_with()
    host.runs_jobs = True
    host.create_topic("u")
    host.runs_jobs = False
    produce(host, host.connect(), large(b"a"))
    assert only(host.ask(host.produce_request("u", small(b"x")), 9)) == (0, 0)


def test_a_bomb_is_refused_alone() -> None:
    host = host_with()
    connection = host.connect()
    produce(host, connection, bomb())
    produce(host, connection, small(b"a"))
    host.run_jobs()
    assert only(host.receive(connection)) == (ErrorCode.INVALID_RECORD, -1)
    assert only(host.receive(connection)) == (0, 0)


def test_what_the_job_makes_of_a_batch_is_what_the_log_gets() -> None:
    host = host_with(compression_type="gzip", message_timestamp_type="LogAppendTime")
    host.runs_jobs = True
    answer = host.ask(host.produce_request("t", large(b"a")), 9)
    result = answer.responses[0].partition_responses[0]
    assert (result.error_code, result.log_append_time_ms) == (0, host.clock.now().wall_ms)
    log = partition_of(host).log
    assert log is not None
    span = log.read(0, max_bytes=1, limit_offset=1, at_least_one=True)
    assert span is not None
    ((_, header),) = batches(span.read())
    assert (header.codec, header.is_log_append_time) == (Codec.GZIP, True)
    assert values_of(host) == [b"a"]


def test_repeated_batches_are_found_out_in_the_queue() -> None:
    host = host_with()
    connection = host.connect()
    again = large(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    for batch in (again, again, small(b"b", producer_id=5, producer_epoch=0, base_sequence=1)):
        produce(host, connection, batch)
    host.run_jobs()
    assert [only(host.receive(connection)) for _ in range(3)] == [(0, 0), (0, 0), (0, 1)]
    assert values_of(host) == [b"a", b"b"]


def test_answers_keep_the_order_of_the_requests() -> None:
    host = host_with()
    connection = host.connect()
    produce(host, connection, large(b"a"))
    host.send(connection, MetadataRequest(topics=[]), 4)
    assert host.receive(connection) is None
    host.run_jobs()
    assert only(host.receive(connection)) == (0, 0)
    assert host.receive(connection).brokers


def test_one_request_for_several_partitions_waits_for_all_of_them() -> None:
    host = ManualHost()
    host.create_topic("t", 2, **OPENING)
    host.runs_jobs = False
    data = [
        PartitionProduceData(index=0, records=large(b"a")),
        PartitionProduceData(index=1, records=small(b"b")),
    ]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    connection = host.connect()
    host.send(connection, request, 9)
    assert host.receive(connection) is None
    host.run_jobs()
    (topic,) = host.receive(connection).responses
    assert [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses] == [
        (0, 0, 0),
        (1, 0, 0),
    ]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_client_that_hangs_up_has_sent_its_batch(acks: int) -> None:
    host = host_with()
    connection = host.connect()
    produce(host, connection, large(b"a"), acks=acks)
    produce(host, connection, small(b"b"), acks=acks)
    host.node.disconnected(host.clock.now(), connection)
    host.run_jobs()
    assert values_of(host) == [b"a", b"b"]
    assert host.node.metrics.parked == 0


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection() -> None:
    host = host_with()
    connection = host.connect()
    produce(host, connection, large(b"a"), acks=0)
    host.run_jobs()
    assert host.receive(connection) is None
    assert values_of(host) == [b"a"]
    produce(host, connection, bomb(), acks=0)
    assert not host.closed
    host.run_jobs()
    assert "INVALID_RECORD" in host.closed[connection.id]


def test_the_timeout_withdraws_a_batch_that_is_not_in_the_log() -> None:
    host = host_with()
    first, second = host.connect(), host.connect()
    produce(host, first, large(b"a"), timeout_ms=100)
    produce(host, second, small(b"b"), timeout_ms=10_000)
    host.advance(0.2)
    assert only(host.receive(first)) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert only(host.receive(second)) == (0, 0)
    assert host.node.metrics.held == 1  # its job has the bytes still
    host.run_jobs()
    assert values_of(host) == [b"b"]
    assert host.node.metrics.held == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_the_answer_waits_for_the_fsync_too(acks: int) -> None:
    host = host_with(flush_messages="1")
    connection = host.connect()
    produce(host, connection, large(b"a"), acks=acks)
    host.run_job()  # it is opened, and in the log
    host.settle()
    assert host.receive(connection) is None
    host.run_jobs()
    assert only(host.receive(connection)) == (0, 0)


def test_deleting_the_topic_refuses_what_waits() -> None:
    host = host_with()
    connection = host.connect()
    produce(host, connection, large(b"a"))
    produce(host, connection, small(b"b"))
    waiting = list(host.jobs)
    host.jobs.clear()
    host.runs_jobs = True
    host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    for _ in range(2):
        assert only(host.receive(connection)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    host.jobs.extend(waiting)
    host.run_jobs()
    assert host.node.metrics.held == 0


def test_a_failing_disk_refuses_what_waits() -> None:
    disk = FaultyDisk(MemoryDisk())
    host = ManualHost(
        {"metadata.log.dir": "meta", "log.dirs": "data"}, disks={"data": disk, "meta": MemoryDisk()}
    )
    host.create_topic("t", **OPENING)
    host.runs_jobs = False
    connection = host.connect()
    for batch in (large(b"a"), large(b"b"), small(b"c")):
        produce(host, connection, batch)
    disk.faults.append(Fault(Fail(5), "append"))
    host.run_jobs()
    for _ in range(3):
        assert only(host.receive(connection)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert host.node.metrics.held == 0


def test_a_job_that_fails_itself_is_not_the_clients_fault() -> None:
    host = host_with()
    connection = host.connect()
    produce(host, connection, large(b"a"))
    produce(host, connection, small(b"b"))
    host.node.completed(host.clock.now(), host.jobs.popleft().ticket, RuntimeError("killed"))
    host.settle()
    assert only(host.receive(connection)) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert only(host.receive(connection)) == (0, 0)


def test_a_job_that_finds_no_process_is_tried_again_by_the_client() -> None:
    """Processes run out as disk space does. UNKNOWN_SERVER_ERROR would end the producer's retries."""
    host = host_with()
    connection = host.connect()
    produce(host, connection, large(b"a"))
    error = BlockingIOError(errno.EAGAIN, "no worker process can be started")
    host.node.completed(host.clock.now(), host.jobs.popleft().ticket, error)
    host.settle()
    assert only(host.receive(connection)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    produce(host, connection, large(b"a"))
    host.run_jobs()
    assert only(host.receive(connection)) == (ErrorCode.NONE, 0)
    assert not partition_of(host).is_offline


def test_many_that_queued_are_let_through_a_few_at_a_time() -> None:
    host = host_with()
    connection = host.connect()
    count = 3 * append_queue.BATCHES_AT_ONCE
    produce(host, connection, large(b"0"), timeout_ms=10_000)
    for number in range(1, count):
        produce(host, connection, small(b"%d" % number), timeout_ms=10_000)
    host.run_jobs()
    assert len(values_of(host)) == append_queue.BATCHES_AT_ONCE
    produce(host, connection, small(b"%d" % count), timeout_ms=10_000)  # still behind them
    host.advance(0.1)
    assert values_of(host) == [b"%d" % number for number in range(count + 1)]
    assert not partition_of(host).has_queue


def test_a_stop_waits_for_what_was_accepted() -> None:
    host = host_with()
    connection = host.connect()
    produce(host, connection, large(b"a"))
    host.node.shutdown(host.clock.now())
    host.settle()
    assert not host.node.is_stopped
    host.run_jobs()
    assert host.node.is_stopped
    assert only(host.receive(connection)) == (0, 0)
    again = ManualHost(disks=host.disks)
    assert values_of(again) == [b"a"]


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_a_stop_does_not_wait_for_ever_for_what_others_have_to_agree_to(is_withdrawn: bool) -> None:
    """The replicas of the transaction's coordinator are gone, and its commit never comes."""
    host = host_with()

    class Waiting:
        def ask(self, now: Any) -> Any:
            return self

        def await_commit(self, now: Any, ticket: Any) -> None:
            pass

        def drop(self) -> None:
            pass

    connection = host.connect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_handler, "UNUSUAL", 0xFF)
        patch.setattr(produce_handler.Produce, "_admissible", lambda *_: Waiting())
        produce(host, connection, small(b"a", codec=Codec.ZSTD), timeout_ms=100 if is_withdrawn else 60_000)
    if is_withdrawn:
        host.advance(0.2)
        assert only(host.receive(connection)) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    host.node.shutdown(host.clock.now())
    host.run_jobs()
    if not is_withdrawn:
        assert not host.node.is_stopped
        host.advance(DRAIN_MS_MAX / 1000)
        host.run_jobs()
        assert only(host.receive(connection)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert host.node.is_stopped


def test_a_connection_with_much_that_waits_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HELD_BYTES_PER_CONNECTION_MAX", 3 * limits.HELD_OVERHEAD_BYTES)
    host = host_with()
    connection, other = host.connect(), host.connect()
    produce(host, connection, large(b"0"), acks=0)
    assert not connection.is_full
    for number in range(3):
        produce(host, connection, small(b"%d" % number), acks=0)
    assert connection.is_full
    assert not other.is_full
    host.run_jobs()
    assert [effect.connection for effect in host.effects if isinstance(effect, Proceed)] == [connection]
    assert not connection.is_full


def test_beyond_what_may_wait_clients_are_told_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_queue, "HELD_BYTES_MAX", 2 * limits.HELD_OVERHEAD_BYTES)
    host = host_with()
    connection = host.connect()
    for value in (b"a", b"b"):
        produce(host, connection, large(value))
    host.run_jobs()
    assert only(host.receive(connection)) == (0, 0)
    assert only(host.receive(connection)) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def test_a_batch_that_is_refused_in_the_queue_at_once_is_answered() -> None:
    """Whoever asks for permission may hear of it before its request was parked."""
    host = host_with()

    class Refusing:
        def __init__(self) -> None:
            self.answers: list[Any] = [object()]

        def ask(self, now: Any) -> Any:
            if self.answers:
                return self.answers.pop()
            raise Refused(ErrorCode.INVALID_TXN_STATE)

        def drop(self) -> None:
            pass

    connection = host.connect()
    permit = Refusing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_handler, "UNUSUAL", 0xFF)
        patch.setattr(produce_handler.Produce, "_admissible", lambda *_: permit)
        produce(host, connection, small(b"a", codec=Codec.ZSTD))
    assert only(host.receive(connection)) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert not partition_of(host).has_queue


@pytest.mark.parametrize("ends_in", ["refusal", "waiting", "permission"])
def test_asking_for_permission_takes_the_directory_offline(ends_in: str) -> None:
    """A coordinator's append met the disk's fault, and the queue was refused under the batch that asked."""
    host = host_with()

    class Commit:
        def await_commit(self, now: Any, ticket: Any) -> None:
            ticket.settle(now, None)

    class Breaking:
        is_first = True

        def ask(self, now: Any) -> Any:
            if self.is_first:
                self.is_first = False
                return Commit()
            partition_of(host).go_offline(now)
            if ends_in == "refusal":
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return Commit() if ends_in == "waiting" else None

        def drop(self) -> None:
            pass

    connection = host.connect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_handler, "UNUSUAL", 0xFF)
        patch.setattr(produce_handler.Produce, "_admissible", lambda *_: Breaking())
        produce(host, connection, small(b"a", codec=Codec.ZSTD))
    assert only(host.receive(connection)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert host.node.metrics.held == 0
    assert host.node.broker.append_queues.held.bytes == 0
