"""ListOffsets by time into batches that take long to open: a job opens them, and the answer waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from harness.desk import Desk
from headrace.base.limits import OPENED_INLINE_BYTES_MAX, OPENED_INLINE_RECORDS_MAX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.records.builder import build_batch
from headrace.records.compression import Codec

TIMESTAMP = 1_700_000_000_000
MAX_TIMESTAMP = -3
PADDING = (("padding", bytes(OPENED_INLINE_BYTES_MAX)),)


def packed(start: int) -> bytes:
    """Three records, a millisecond apart; few bytes, but many when opened."""
    records = [(TIMESTAMP + start + number, None, b"v", PADDING) for number in range(3)]
    return build_batch(records, codec=Codec.ZSTD)


def numerous(start: int) -> bytes:
    count = OPENED_INLINE_RECORDS_MAX + 1
    return build_batch([(TIMESTAMP + start + min(number, 2), None, b"", ()) for number in range(count)])


def desk_with(*batches: bytes) -> Desk:
    desk = Desk()
    desk.create_topic("t", index_interval_bytes="0")
    for batch in batches:
        answer = desk.ask(desk.produce_request("t", batch), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    desk.runs_jobs = False
    return desk


def send(desk: Desk, timestamp: int, connection: Any) -> None:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[asked])]
    desk.send(connection, ListOffsetsRequest(replica_id=-1, topics=topics), 7)


def received(desk: Desk, connection: Any) -> tuple[int, int, int]:
    (told,) = desk.receive(connection).topics[0].partitions
    return told.error_code, told.offset, told.timestamp


@pytest.mark.parametrize("make", [packed, numerous])
def test_the_answer_waits_for_a_job_and_nobody_else_does(make: Any) -> None:
    desk = desk_with(make(0), make(10))
    connection = desk.connect()
    send(desk, TIMESTAMP + 1, connection)
    assert desk.receive(connection) is None
    assert desk.ask(MetadataRequest(topics=[]), 9).brokers
    desk.run_jobs()
    assert received(desk, connection) == (0, 1, TIMESTAMP + 1)


def test_the_largest_timestamp_too() -> None:
    desk = desk_with(packed(10), packed(0))
    connection = desk.connect()
    send(desk, MAX_TIMESTAMP, connection)
    assert desk.receive(connection) is None
    desk.run_jobs()
    assert received(desk, connection) == (0, 2, TIMESTAMP + 12)


def test_a_log_that_begins_inside_of_the_batch() -> None:
    desk = desk_with(packed(0), packed(10))
    desk.runs_jobs = True
    cut = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    desk.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=1000), 2)
    desk.runs_jobs = False
    connection = desk.connect()
    send(desk, TIMESTAMP, connection)
    desk.run_jobs()
    assert received(desk, connection) == (0, 2, TIMESTAMP + 2)


def test_small_batches_are_opened_at_once() -> None:
    desk = desk_with(build_batch([(TIMESTAMP, None, b"v", ())]))
    connection = desk.connect()
    send(desk, 0, connection)
    assert received(desk, connection) == (0, 0, TIMESTAMP)


def test_a_topic_that_goes_meanwhile() -> None:
    desk = desk_with(packed(0))
    connection = desk.connect()
    send(desk, 0, connection)
    look = desk.jobs.popleft()
    desk.runs_jobs = True
    desk.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    desk.jobs.append(look)
    desk.run_jobs()
    assert received(desk, connection)[0] in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
    assert not desk.node.directories["data"].is_offline


def test_a_job_that_fails_harms_no_directory() -> None:
    desk = desk_with(packed(0))
    connection = desk.connect()
    send(desk, 0, connection)
    desk.node.completed(desk.clock.now(), desk.jobs.popleft().ticket, FileNotFoundError("retired"))
    desk.settle()
    assert received(desk, connection)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert not desk.node.directories["data"].is_offline


def test_a_client_that_hangs_up() -> None:
    desk = desk_with(packed(0))
    connection = desk.connect()
    send(desk, 0, connection)
    desk.node.disconnected(desk.clock.now(), connection)
    desk.run_jobs()
    assert desk.node.metrics.parked == 0
