"""Batches that wait in front of their log: the order they reach it in, and all that may happen meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from harness.desk import Desk
from headrace.base import limits
from headrace.node import connection as connections
from headrace.node import partition_gate
from headrace.node.effects import Proceed
from headrace.node.faults import Refused
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
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

TIMESTAMP = 1_700_000_000_000
OPENING = {"headrace_validate_records": "true"}


def small(value: bytes, **more: int) -> bytes:
    return build_batch([(TIMESTAMP, b"k", value, ())], **more)


def large(value: bytes, **more: int) -> bytes:
    """Few bytes that are many once they are opened."""
    padding = (("padding", bytes(limits.OPENED_INLINE_BYTES_MAX)),)
    return build_batch([(TIMESTAMP, b"k", value, padding)], codec=Codec.ZSTD, **more)


def bomb() -> bytes:
    padding = (("padding", bytes(2 * limits.PRODUCED_BATCH_OPENED_BYTES_MIN)),)
    return build_batch([(TIMESTAMP, b"k", b"bomb", padding)], codec=Codec.ZSTD)


def desk_with(*, jobs_wait: bool = True, **configs: str) -> Desk:
    desk = Desk()
    desk.create_topic("t", **(OPENING | configs))
    desk.runs_jobs = not jobs_wait
    return desk


def produce(desk: Desk, connection: Any, batch: bytes, **more: int) -> None:
    desk.send(connection, desk.produce_request("t", batch, **more), 9)


def only(response: Any) -> tuple[int, int]:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition.error_code, partition.base_offset


def values_of(desk: Desk) -> list[bytes | None]:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
    records = bytes(desk.ask(request, 11).responses[0].partitions[0].records or b"")
    return [row[3] for position, header in batches(records) for row in read_rows(records, position, header)]


def partition_of(desk: Desk) -> Partition:
    partitions = desk.node.broker.partitions.of_name("t")
    assert partitions is not None
    return partitions[0]


def test_a_small_batch_is_opened_at_once() -> None:
    desk = desk_with()
    assert only(desk.ask(desk.produce_request("t", small(b"a")), 9)) == (0, 0)
    assert not desk.jobs


def test_later_batches_queue_behind_one_that_is_being_opened() -> None:
    """From any connection, by the express lane too, whether they need opening or not."""
    desk = desk_with()
    first, second = desk.connect(), desk.connect()
    produce(desk, second, small(b"a"))  # from now on it would take the express lane
    desk.receive(second)
    produce(desk, first, large(b"b"))
    produce(desk, second, small(b"c"))
    produce(desk, first, large(b"d"))
    produce(desk, second, small(b"e"), acks=1)
    assert desk.receive(first) is None
    assert desk.receive(second) is None
    assert values_of(desk) == [b"a"]
    desk.run_job()
    desk.settle()
    assert only(desk.receive(first)) == (0, 1)
    assert only(desk.receive(second)) == (0, 2)
    assert desk.receive(second) is None
    desk.run_jobs()
    assert only(desk.receive(first)) == (0, 3)
    assert only(desk.receive(second)) == (0, 4)
    assert values_of(desk) == [b"a", b"b", b"c", b"d", b"e"]
    assert not partition_of(desk).is_closed
    assert (desk.node.metrics.held, desk.node.broker.gates.held.bytes, first.held_bytes) == (0, 0, 0)


def test_jobs_that_come_back_in_another_order_do_not_change_that_of_the_log() -> None:
    desk = desk_with()
    connection = desk.connect()
    for value in (b"a", b"b", b"c"):
        produce(desk, connection, large(value))
    desk.jobs.rotate(1)
    desk.run_jobs()
    assert values_of(desk) == [b"a", b"b", b"c"]


def test_other_partitions_go_on() -> None:
    desk = desk_with()
    desk.runs_jobs = True
    desk.create_topic("u")
    desk.runs_jobs = False
    produce(desk, desk.connect(), large(b"a"))
    assert only(desk.ask(desk.produce_request("u", small(b"x")), 9)) == (0, 0)


def test_a_bomb_is_refused_alone() -> None:
    desk = desk_with()
    connection = desk.connect()
    produce(desk, connection, bomb())
    produce(desk, connection, small(b"a"))
    desk.run_jobs()
    assert only(desk.receive(connection)) == (ErrorCode.INVALID_RECORD, -1)
    assert only(desk.receive(connection)) == (0, 0)


def test_what_the_job_makes_of_a_batch_is_what_the_log_gets() -> None:
    desk = desk_with(compression_type="gzip", message_timestamp_type="LogAppendTime")
    desk.runs_jobs = True
    answer = desk.ask(desk.produce_request("t", large(b"a")), 9)
    result = answer.responses[0].partition_responses[0]
    assert (result.error_code, result.log_append_time_ms) == (0, desk.clock.now().wall_ms)
    log = partition_of(desk).log
    assert log is not None
    span = log.read(0, max_bytes=1, limit_offset=1, at_least_one=True)
    assert span is not None
    ((_, header),) = batches(span.read())
    assert (header.codec, header.is_log_append_time) == (Codec.GZIP, True)
    assert values_of(desk) == [b"a"]


def test_repeated_batches_are_found_out_behind_the_gate() -> None:
    desk = desk_with()
    connection = desk.connect()
    again = large(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    for batch in (again, again, small(b"b", producer_id=5, producer_epoch=0, base_sequence=1)):
        produce(desk, connection, batch)
    desk.run_jobs()
    assert [only(desk.receive(connection)) for _ in range(3)] == [(0, 0), (0, 0), (0, 1)]
    assert values_of(desk) == [b"a", b"b"]


def test_answers_keep_the_order_of_the_requests() -> None:
    desk = desk_with()
    connection = desk.connect()
    produce(desk, connection, large(b"a"))
    desk.send(connection, MetadataRequest(topics=[]), 4)
    assert desk.receive(connection) is None
    desk.run_jobs()
    assert only(desk.receive(connection)) == (0, 0)
    assert desk.receive(connection).brokers


def test_one_request_for_several_partitions_waits_for_all_of_them() -> None:
    desk = Desk()
    desk.create_topic("t", 2, **OPENING)
    desk.runs_jobs = False
    data = [
        PartitionProduceData(index=0, records=large(b"a")),
        PartitionProduceData(index=1, records=small(b"b")),
    ]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    connection = desk.connect()
    desk.send(connection, request, 9)
    assert desk.receive(connection) is None
    desk.run_jobs()
    (topic,) = desk.receive(connection).responses
    assert [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses] == [
        (0, 0, 0),
        (1, 0, 0),
    ]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_client_that_hangs_up_has_sent_its_batch(acks: int) -> None:
    desk = desk_with()
    connection = desk.connect()
    produce(desk, connection, large(b"a"), acks=acks)
    produce(desk, connection, small(b"b"), acks=acks)
    desk.node.disconnected(desk.clock.now(), connection)
    desk.run_jobs()
    assert values_of(desk) == [b"a", b"b"]
    assert desk.node.metrics.parked == 0


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection() -> None:
    desk = desk_with()
    connection = desk.connect()
    produce(desk, connection, large(b"a"), acks=0)
    desk.run_jobs()
    assert desk.receive(connection) is None
    assert values_of(desk) == [b"a"]
    produce(desk, connection, bomb(), acks=0)
    assert not desk.closed
    desk.run_jobs()
    assert "INVALID_RECORD" in desk.closed[connection.id]


def test_the_timeout_withdraws_a_batch_that_is_not_in_the_log() -> None:
    desk = desk_with()
    first, second = desk.connect(), desk.connect()
    produce(desk, first, large(b"a"), timeout_ms=100)
    produce(desk, second, small(b"b"), timeout_ms=10_000)
    desk.advance(0.2)
    assert only(desk.receive(first)) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert only(desk.receive(second)) == (0, 0)
    assert desk.node.metrics.held == 1  # its job has the bytes still
    desk.run_jobs()
    assert values_of(desk) == [b"b"]
    assert desk.node.metrics.held == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_the_answer_waits_for_the_fsync_too(acks: int) -> None:
    desk = desk_with(flush_messages="1")
    connection = desk.connect()
    produce(desk, connection, large(b"a"), acks=acks)
    desk.run_job()  # it is opened, and in the log
    desk.settle()
    assert desk.receive(connection) is None
    desk.run_jobs()
    assert only(desk.receive(connection)) == (0, 0)


def test_deleting_the_topic_refuses_what_waits() -> None:
    desk = desk_with()
    connection = desk.connect()
    produce(desk, connection, large(b"a"))
    produce(desk, connection, small(b"b"))
    waiting = list(desk.jobs)
    desk.jobs.clear()
    desk.runs_jobs = True
    desk.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    for _ in range(2):
        assert only(desk.receive(connection)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    desk.jobs.extend(waiting)
    desk.run_jobs()
    assert desk.node.metrics.held == 0


def test_a_failing_disk_refuses_what_waits() -> None:
    disk = FaultyDisk(MemoryDisk())
    desk = Desk({"metadata.log.dir": "meta", "log.dirs": "data"}, disks={"data": disk, "meta": MemoryDisk()})
    desk.create_topic("t", **OPENING)
    desk.runs_jobs = False
    connection = desk.connect()
    for batch in (large(b"a"), large(b"b"), small(b"c")):
        produce(desk, connection, batch)
    disk.faults.append(Fault(Fail(5), "append"))
    desk.run_jobs()
    for _ in range(3):
        assert only(desk.receive(connection)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert desk.node.metrics.held == 0


def test_a_job_that_fails_itself_is_not_the_clients_fault() -> None:
    desk = desk_with()
    connection = desk.connect()
    produce(desk, connection, large(b"a"))
    produce(desk, connection, small(b"b"))
    desk.node.completed(desk.clock.now(), desk.jobs.popleft().ticket, RuntimeError("killed"))
    desk.settle()
    assert only(desk.receive(connection)) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert only(desk.receive(connection)) == (0, 0)


def test_a_job_that_finds_no_process_is_tried_again_by_the_client() -> None:
    """Processes run out as disk space does. UNKNOWN_SERVER_ERROR would end the producer's retries."""
    desk = desk_with()
    connection = desk.connect()
    produce(desk, connection, large(b"a"))
    error = BlockingIOError(errno.EAGAIN, "no worker process can be started")
    desk.node.completed(desk.clock.now(), desk.jobs.popleft().ticket, error)
    desk.settle()
    assert only(desk.receive(connection)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    produce(desk, connection, large(b"a"))
    desk.run_jobs()
    assert only(desk.receive(connection)) == (ErrorCode.NONE, 0)
    assert not partition_of(desk).is_offline


def test_many_that_queued_are_let_through_a_few_at_a_time() -> None:
    desk = desk_with()
    connection = desk.connect()
    count = 3 * partition_gate.BATCHES_AT_ONCE
    produce(desk, connection, large(b"0"), timeout_ms=10_000)
    for number in range(1, count):
        produce(desk, connection, small(b"%d" % number), timeout_ms=10_000)
    desk.run_jobs()
    assert len(values_of(desk)) == partition_gate.BATCHES_AT_ONCE
    produce(desk, connection, small(b"%d" % count), timeout_ms=10_000)  # still behind them
    desk.advance(0.1)
    assert values_of(desk) == [b"%d" % number for number in range(count + 1)]
    assert not partition_of(desk).is_closed


def test_a_stop_waits_for_what_was_accepted() -> None:
    desk = desk_with()
    connection = desk.connect()
    produce(desk, connection, large(b"a"))
    desk.node.shutdown(desk.clock.now())
    desk.settle()
    assert not desk.node.is_stopped
    desk.run_jobs()
    assert desk.node.is_stopped
    assert only(desk.receive(connection)) == (0, 0)
    again = Desk(disks=desk.disks)
    assert values_of(again) == [b"a"]


def test_a_connection_with_much_that_waits_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HELD_BYTES_PER_CONNECTION_MAX", 3 * limits.HELD_OVERHEAD_BYTES)
    desk = desk_with()
    connection, other = desk.connect(), desk.connect()
    produce(desk, connection, large(b"0"), acks=0)
    assert not connection.is_full
    for number in range(3):
        produce(desk, connection, small(b"%d" % number), acks=0)
    assert connection.is_full
    assert not other.is_full
    desk.run_jobs()
    assert [effect.connection for effect in desk.effects if isinstance(effect, Proceed)] == [connection]
    assert not connection.is_full


def test_beyond_what_may_wait_clients_are_told_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_gate, "HELD_BYTES_MAX", 2 * limits.HELD_OVERHEAD_BYTES)
    desk = desk_with()
    connection = desk.connect()
    for value in (b"a", b"b"):
        produce(desk, connection, large(value))
    desk.run_jobs()
    assert only(desk.receive(connection)) == (0, 0)
    assert only(desk.receive(connection)) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def test_a_batch_that_is_refused_at_the_gate_at_once_is_answered() -> None:
    """Whoever asks for permission may hear of it before its request was parked."""
    desk = desk_with()

    class Refusing:
        def __init__(self) -> None:
            self.answers: list[Any] = [object()]

        def ask(self, now: Any) -> Any:
            if self.answers:
                return self.answers.pop()
            raise Refused(ErrorCode.INVALID_TXN_STATE)

    connection = desk.connect()
    permit = Refusing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_handler, "UNUSUAL", 0xFF)
        patch.setattr(produce_handler.Produce, "_admissible", lambda *_: permit)
        produce(desk, connection, small(b"a", codec=Codec.ZSTD))
    assert only(desk.receive(connection)) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert not partition_of(desk).is_closed


@pytest.mark.parametrize("ends_in", ["refusal", "waiting", "permission"])
def test_asking_for_permission_takes_the_directory_offline(ends_in: str) -> None:
    """A coordinator's append met the disk's fault, and the queue was refused under the batch that asked."""
    desk = desk_with()

    class Commit:
        def await_commit(self, now: Any, ticket: Any) -> None:
            ticket.settle(now, None)

    class Breaking:
        is_first = True

        def ask(self, now: Any) -> Any:
            if self.is_first:
                self.is_first = False
                return Commit()
            partition_of(desk).go_offline(now)
            if ends_in == "refusal":
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return Commit() if ends_in == "waiting" else None

    connection = desk.connect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_handler, "UNUSUAL", 0xFF)
        patch.setattr(produce_handler.Produce, "_admissible", lambda *_: Breaking())
        produce(desk, connection, small(b"a", codec=Codec.ZSTD))
    assert only(desk.receive(connection)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert desk.node.metrics.held == 0
    assert desk.node.broker.gates.held.bytes == 0
