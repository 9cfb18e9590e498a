"""The fast path answers what the ordinary way would have answered, byte for byte, or does not answer."""

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.second_replica import add_second, second_fetches
from headrace.node.connection import Connection
from headrace.protocol.api import request_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.records.builder import build_batch
from headrace.simulator.frames import joined
from headrace.simulator.manual_host import ManualHost

T0 = 1_700_000_000_000


def batch(value: bytes, **more: Any) -> bytes:
    return build_batch([(T0, None, value, ())], **more)


def frame_of(
    host: ManualHost, records: bytes, version: int, *, correlation: int = 7, partition: int = 0, acks: int = 1
) -> bytes:
    topic = {"topic_id": host.partitions("t")[0].topic_id} if version >= 13 else {"name": "t"}
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)], **topic)
        ],
    )
    body = request_codec(0, version).encode(request)
    return joined(request_frame(0, version, correlation, "client", [body]))[4:]


def answer(host: ManualHost, connection: Connection, frame: bytes) -> bytes | None:
    parts = host.node.handle(host.clock.now(), connection, memoryview(bytearray(frame)))
    return joined(parts) if parts is not None else None


def host_with_topic(**configs: str) -> ManualHost:
    host = ManualHost()
    host.create_topic("t", 3, **configs)
    return host


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_the_same_answers_as_without_it(version: int, acks: int) -> None:
    """Two nodes, the same frames; one of them forgets its fast path before each."""
    quick, slow = host_with_topic(), host_with_topic()
    fast, plain = quick.connect(), slow.connect()
    for i in range(20):
        records = batch(b"x" * (i * 40))
        frames = [
            frame_of(host, records, version, correlation=i, partition=i % 3, acks=acks)
            for host in (quick, slow)
        ]
        plain.fast_path = None
        ours, theirs = answer(quick, fast, frames[0]), answer(slow, plain, frames[1])
        if version >= 13:  # topic ids are each node's own
            assert ours is not None
            assert theirs is not None
            ids = [host.partitions("t")[0].topic_id for host in (quick, slow)]
            theirs = theirs.replace(ids[1], ids[0])
        assert ours == theirs
    assert (fast.fast_path is not None) == (version >= 7)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda records: records[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda records: records[:60] + b"\xff" + records[61:], ErrorCode.CORRUPT_MESSAGE),
        (lambda records: records[:16] + b"\x01" + records[17:], ErrorCode.INVALID_RECORD),
        (lambda records: records + records, ErrorCode.INVALID_RECORD),
        (lambda records: b"", ErrorCode.INVALID_RECORD),
        (lambda records: batch(b"y" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_errors_take_the_ordinary_way(spoil, code: ErrorCode) -> None:
    host = host_with_topic()
    connection = host.connect()
    host.ask(host.produce_request("t", batch(b"a"), acks=1), 9, connection)
    assert connection.fast_path is not None
    refused = host.ask(host.produce_request("t", spoil(batch(b"b")), acks=1), 9, connection)
    assert refused.responses[0].partition_responses[0].error_code == code
    good = host.ask(host.produce_request("t", batch(b"c"), acks=1), 9, connection)
    assert good.responses[0].partition_responses[0].base_offset == 1


def test_a_deleted_topic_is_not_remembered() -> None:
    host = host_with_topic()
    connection = host.connect()
    for _ in range(2):
        host.ask(host.produce_request("t", batch(b"a"), acks=1), 9, connection)
    host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    gone = host.ask(host.produce_request("t", batch(b"a"), acks=1), 9, connection)
    assert gone.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    host.create_topic("t")
    again = host.ask(host.produce_request("t", batch(b"a"), acks=1), 9, connection)
    assert again.responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize(("topic", "acks"), [("__consumer_offsets", 1), ("__consumer_offsets", -1), ("t", 7)])
@pytest.mark.parametrize("version", [7, 9, 12])
def test_what_was_refused_is_refused_again(topic: str, acks: int, version: int) -> None:
    """The second identical request was appended: a forged commit moved a group's offset."""
    host = host_with_topic()
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    connection = host.connect()
    codes = set()
    for _ in range(3):
        answer = host.ask(host.produce_request(topic, batch(b"a"), acks=acks), version, connection)
        codes.add(answer.responses[0].partition_responses[0].error_code)
    refusal = ErrorCode.INVALID_REQUIRED_ACKS if topic == "t" else ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == {refusal}
    log = host.partitions(topic)[0].log
    assert log is None or log.log_end_offset == 0
    assert connection.fast_path is None


def test_nothing_is_learned_from_a_batch_that_was_refused() -> None:
    host = host_with_topic()
    connection = host.connect()
    host.ask(host.produce_request("t", batch(b"a")[:-1], acks=1), 9, connection)
    assert connection.fast_path is None


def test_with_a_second_replica_the_finished_answer_waits_for_it() -> None:
    host = host_with_topic()
    connection = host.connect()
    for _ in range(2):
        host.ask(host.produce_request("t", batch(b"a")), 9, connection)
    partition = host.partitions("t")[0]
    add_second(host, partition)
    for _ in range(3):
        host.send(connection, host.produce_request("t", batch(b"a")), 9)
    assert host.receive(connection) is None
    second_fetches(host, partition, 4)
    assert [base_offset(host.receive(connection)) for _ in range(2)] == [2, 3]
    assert host.receive(connection) is None
    second_fetches(host, partition, 5)
    assert base_offset(host.receive(connection)) == 4


def test_a_finished_answer_whose_time_is_over() -> None:
    host = host_with_topic()
    connection = host.connect()
    host.ask(host.produce_request("t", batch(b"a")), 9, connection)
    add_second(host, host.partitions("t")[0])
    for _ in range(2):
        host.send(connection, host.produce_request("t", batch(b"a")), 9)
        host.advance(0.6)
    assert error_code(host.receive(connection)) == ErrorCode.REQUEST_TIMED_OUT
    assert host.receive(connection) is None
    host.advance(0.6)
    assert error_code(host.receive(connection)) == ErrorCode.REQUEST_TIMED_OUT
    assert host.node.waiting.parked == 0


def test_a_fast_path_is_learned_from_requests_that_wait_for_followers() -> None:
    host = host_with_topic()
    partition = host.partitions("t")[0]
    add_second(host, partition)
    connection = host.connect()
    host.send(connection, host.produce_request("t", batch(b"a")), 9)
    assert connection.fast_path is not None
    host.send(connection, host.produce_request("t", batch(b"b")), 9)
    second_fetches(host, partition, 2)
    assert [base_offset(host.receive(connection)) for _ in range(2)] == [0, 1]


def test_another_leader_epoch_refuses_what_waits_for_followers() -> None:
    """The same offsets may come to hold records of another leader: they would acknowledge lost ones."""
    host = host_with_topic()
    partition = host.partitions("t")[0]
    connection = host.connect()
    host.ask(host.produce_request("t", batch(b"a")), 9, connection)
    add_second(host, partition)
    host.send(connection, host.produce_request("t", batch(b"b")), 9)
    image = host.node.controller.metadata.image
    state = image.topics["t"].partitions[0]
    partition.take(
        host.clock.now(), replace(state, leader=2, leader_epoch=state.leader_epoch + 1, replicas=(1, 2))
    )
    host.node.wake(host.clock.now())
    host.settle()
    assert error_code(host.receive(connection)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def base_offset(response: ProduceResponse) -> int:
    (result,) = response.responses[0].partition_responses
    assert result.error_code == 0
    return result.base_offset


def error_code(response: ProduceResponse) -> int:
    (result,) = response.responses[0].partition_responses
    return result.error_code


def test_it_wakes_those_who_wait() -> None:
    from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    host = host_with_topic()
    writer, reader = host.connect(), host.connect()
    for _ in range(2):
        host.ask(host.produce_request("t", batch(b"a"), acks=1), 9, writer)
    wanted = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1000)
    host.send(
        reader,
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]),
        11,
    )
    assert host.receive(reader) is None
    host.ask(host.produce_request("t", batch(b"b"), acks=1), 9, writer)
    assert bytes(host.receive(reader).responses[0].partitions[0].records)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([7, 9, 12]), st.binary(max_size=12), st.integers(0, 400), st.integers(0, 255))
def test_mangled_frames_never_get_another_answer(version: int, extra: bytes, at: int, value: int) -> None:
    """A learned fast path and a fresh connection agree on any frame that begins like the learned one."""
    host = host_with_topic()
    learned, fresh = host.connect(), host.connect()
    frame = frame_of(host, batch(b"v" * 200), version)
    answer(host, learned, frame)
    mangled = bytearray(frame + extra)
    mangled[at % len(mangled)] = value
    if (key := bytes(mangled[0:2])) != b"\0\0":
        assert key  # another API: not a produce at all
        return
    ends = [p.log.log_end_offset if p.log else 0 for p in host.partitions("t")]
    ours = answer(host, learned, bytes(mangled))
    moved = [p.log.log_end_offset if p.log else 0 for p in host.partitions("t")]
    host.settle()
    theirs = answer(host, fresh, bytes(mangled))
    moved_again = [p.log.log_end_offset if p.log else 0 for p in host.partitions("t")]
    assert (ours is None) == (theirs is None)
    assert [b - a for a, b in zip(ends, moved)] == [b - a for a, b in zip(moved, moved_again)]


def test_a_batch_that_is_refused_after_it_was_stamped_is_refused_for_the_same_reason() -> None:
    """The fast path had the log stamp it with LogAppendTime, met the sequence's fault, and the ordinary way
    then refused the stamp.
    """
    host = host_with_topic(message_timestamp_type="LogAppendTime")
    connection = host.connect()
    codes = []
    for sequence in (0, 1, 7, 2):
        records = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=sequence)
        answer = host.ask(host.produce_request("t", records, acks=1), 9, connection)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]


def test_a_prefix_that_would_take_much_memory_is_not_remembered() -> None:
    """A client id has up to 32 KB, and each of a topic's partitions has a prefix."""
    host = host_with_topic()
    connection = host.connect()
    body = frame_of(host, batch(b"v"), 9)[8 + 2 + len("client") :]  # from the tags of the header on
    name = b"n" * 2_000
    frame = struct.pack(">hhih", 0, 9, 7, len(name)) + name + body
    for _ in range(2):
        assert answer(host, connection, frame) is not None
    assert connection.fast_path is None
