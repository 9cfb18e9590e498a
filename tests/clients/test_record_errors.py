"""A refused batch names the records that the topic does not take (KIP-467): the answers of both brokers are
the same bytes, but for the moments in their texts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from harness.broker import Broker
from harness.message_socket import MessageSocket
from harness.wait import eventually
from headrace.protocol.api import response_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.records.builder import build_batch
from headrace.records.compression import Codec

pytestmark = pytest.mark.steady  # one connection, to one broker

PRODUCE = 0
DAY_MS = 86_400_000
TOPICS = {
    "kept": {"cleanup.policy": "compact"},
    "kept-stamped": {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
    "timely": {"message.timestamp.after.max.ms": "3600000", "message.timestamp.before.max.ms": "3600000"},
    "late": {"message.timestamp.after.max.ms": "3600000"},
    "kept-timely": {"cleanup.policy": "compact", "message.timestamp.after.max.ms": "3600000"},
}
WITHOUT_KEY = "Compacted topic cannot accept message without key in topic partition {}-0"
WRONG_TIME = "One or more records have been rejected due to invalid timestamp"
MOMENTS = re.compile(r"-?\d{13,}")


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[MessageSocket]:
    connection = MessageSocket(broker.port)  # of the node with the first id, which shall lead them
    here = CreatableReplicaAssignment(partition_index=0, broker_ids=broker.node_ids)
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[here],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in TOPICS.items()
    ]
    connection.send("test", CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    assert {told.error_code for told in connection.receive().topics} == {0}

    def leaders() -> set[int]:
        asked = [MetadataRequestTopic(name=name) for name in TOPICS]
        connection.send("test", MetadataRequest(topics=asked), 9)
        return {one.error_code for told in connection.receive().topics for one in told.partitions}

    eventually(leaders, {0})
    for name in TOPICS:  # a leader that Metadata names may not know its partition yet
        good = build_batch(rows([True]))
        eventually(partial(produced_error, connection, name, good), 0)
    yield connection
    connection.socket.close()


def produced(connection: MessageSocket, topic: str, batch: bytes, version: int) -> PartitionProduceResponse:
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    connection.send("test", request, version)
    ((result,),) = (told.partition_responses for told in connection.receive().responses)
    return result


def produced_error(connection: MessageSocket, topic: str, batch: bytes) -> int:
    return produced(connection, topic, batch, 9).error_code


def rows(keys: list[bool], shifts_ms: dict[int, int] | None = None) -> list[Any]:
    now = int(time.time() * 1000)
    return [
        (now + (shifts_ms or {}).get(number, 0), b"k" if has_key else None, b"v", ())
        for number, has_key in enumerate(keys)
    ]


def answer(result: PartitionProduceResponse, topic: str, version: int) -> str:
    """The answer's bytes, as Kafka and we would send them, without the moments."""
    whole = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[result])])
    return MOMENTS.sub("#", response_codec(PRODUCE, version).encode(whole).decode("latin-1"))


def expected(code: ErrorCode, message: str, errors: dict[int, str]) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=0,
        error_code=code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=0,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in errors.items()
        ],
        error_message=message,
    )


def keyless(topic: str, indexes: list[int]) -> PartitionProduceResponse:
    text = WITHOUT_KEY.format(topic)
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index in indexes[:3])
    message = (
        f"One or more records have been rejected due to {len(indexes)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return expected(ErrorCode.INVALID_RECORD, message, dict.fromkeys(indexes, text))


@pytest.mark.parametrize("version", [7, 8, 9, 12])
@pytest.mark.parametrize("topic", ["kept", "kept-stamped"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_ten_of_a_hundred_records_have_no_key(
    connection: MessageSocket, topic: str, codec: Codec, version: int
) -> None:
    batch = build_batch(rows([number % 10 != 3 for number in range(100)]), codec=codec)
    result = produced(connection, topic, batch, version)
    assert answer(result, topic, version) == answer(keyless(topic, list(range(3, 100, 10))), topic, version)
    assert len(result.record_errors) == (10 if version >= 8 else 0)


def test_a_large_batch_is_named_as_a_small_one_is(connection: MessageSocket) -> None:
    """Headrace opens it in another process."""
    batch = build_batch(rows([number % 100 != 7 for number in range(3_000)]))
    result = produced(connection, "kept", batch, 9)
    assert answer(result, "kept", 9) == answer(keyless("kept", list(range(7, 3_000, 100))), "kept", 9)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("topic", "shifts_ms"),
    [
        ("timely", {2: DAY_MS, 5: DAY_MS}),
        ("timely", {2: -DAY_MS, 5: -DAY_MS}),
        ("timely", {0: -DAY_MS, 7: DAY_MS}),
        ("late", {3: DAY_MS}),
    ],
)
def test_some_records_are_too_old_or_too_new(
    connection: MessageSocket, topic: str, shifts_ms: dict[int, int], codec: Codec
) -> None:
    result = produced(connection, topic, build_batch(rows([True] * 8, shifts_ms), codec=codec), 9)
    text = "Timestamp # of message with offset {} is out of range. The timestamp should be within [#, #]"
    wanted = expected(ErrorCode.INVALID_TIMESTAMP, WRONG_TIME, {at: text.format(at) for at in shifts_ms})
    assert [MOMENTS.sub("#", str(one.batch_index_error_message)) for one in result.record_errors] == [
        one.batch_index_error_message for one in wanted.record_errors
    ]
    for one in result.record_errors:
        one.batch_index_error_message = MOMENTS.sub("#", str(one.batch_index_error_message))
    assert answer(result, topic, 9) == answer(wanted, topic, 9)


def test_a_wrong_time_counts_before_a_missing_key(connection: MessageSocket) -> None:
    keys = [number % 3 != 0 for number in range(8)]
    result = produced(connection, "kept-timely", build_batch(rows(keys, {5: DAY_MS})), 9)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_TIMESTAMP, WRONG_TIME)
    assert [one.batch_index for one in result.record_errors] == [0, 3, 5, 6]
    assert result.record_errors[0].batch_index_error_message == WITHOUT_KEY.format("kept-timely")
