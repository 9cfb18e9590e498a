"""ListOffsets by time into batches that take long to open: a job opens them, and the answer waits for it."""

from __future__ import annotations

from typing import Any

import pytest

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
from headrace.simulator.manual_host import ManualHost

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


def host_with(*batches: bytes) -> ManualHost:
    host = ManualHost()
    host.create_topic("t", index_interval_bytes="0")
    for batch in batches:
        answer = host.ask(host.produce_request("t", batch), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    host.runs_jobs = False
    return host


def send(host: ManualHost, timestamp: int, connection: Any) -> None:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[asked])]
    host.send(connection, ListOffsetsRequest(replica_id=-1, topics=topics), 7)


def received(host: ManualHost, connection: Any) -> tuple[int, int, int]:
    (told,) = host.receive(connection).topics[0].partitions
    return told.error_code, told.offset, told.timestamp


@pytest.mark.parametrize("make", [packed, numerous])
def test_the_answer_waits_for_a_job_and_nobody_else_does(make: Any) -> None:
    host = host_with(make(0), make(10))
    connection = host.connect()
    send(host, TIMESTAMP + 1, connection)
    assert host.receive(connection) is None
    assert host.ask(MetadataRequest(topics=[]), 9).brokers
    host.run_jobs()
    assert received(host, connection) == (0, 1, TIMESTAMP + 1)


def test_the_largest_timestamp_too() -> None:
    host = host_with(packed(10), packed(0))
    connection = host.connect()
    send(host, MAX_TIMESTAMP, connection)
    assert host.receive(connection) is None
    host.run_jobs()
    assert received(host, connection) == (0, 2, TIMESTAMP + 12)


def test_a_log_that_begins_inside_of_the_batch() -> None:
    host = host_with(packed(0), packed(10))
    host.runs_jobs = True
    cut = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    host.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=1000), 2)
    host.runs_jobs = False
    connection = host.connect()
    send(host, TIMESTAMP, connection)
    host.run_jobs()
    assert received(host, connection) == (0, 2, TIMESTAMP + 2)


def test_small_batches_are_opened_at_once() -> None:
    host = host_with(build_batch([(TIMESTAMP, None, b"v", ())]))
    connection = host.connect()
    send(host, 0, connection)
    assert received(host, connection) == (0, 0, TIMESTAMP)


def test_a_topic_that_goes_meanwhile() -> None:
    host = host_with(packed(0))
    connection = host.connect()
    send(host, 0, connection)
    look = host.jobs.popleft()
    host.runs_jobs = True
    host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    host.jobs.append(look)
    host.run_jobs()
    assert received(host, connection)[0] in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
    assert not host.node.directories["data"].is_offline


def test_a_job_that_fails_harms_no_directory() -> None:
    host = host_with(packed(0))
    connection = host.connect()
    send(host, 0, connection)
    host.node.completed(host.clock.now(), host.jobs.popleft().ticket, FileNotFoundError("retired"))
    host.settle()
    assert received(host, connection)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert not host.node.directories["data"].is_offline


def test_a_client_that_hangs_up() -> None:
    host = host_with(packed(0))
    connection = host.connect()
    send(host, 0, connection)
    host.node.disconnected(host.clock.now(), connection)
    host.run_jobs()
    assert host.node.metrics.parked == 0
