"""The express lane answers what the ordinary way would have answered, byte for byte, or does not answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.desk import Desk, joined
from headrace.node.connection import Connection
from headrace.protocol.api import request_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch

T0 = 1_700_000_000_000


def batch(value: bytes, **more: int) -> bytes:
    return build_batch([(T0, None, value, ())], **more)


def frame_of(
    desk: Desk, records: bytes, version: int, *, correlation: int = 7, partition: int = 0, acks: int = 1
) -> bytes:
    topic = (
        {"topic_id": desk.node.broker.partitions.of_name("t")[0].topic_id} if version >= 13 else {"name": "t"}
    )
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)], **topic)
        ],
    )
    body = request_codec(0, version).encode(request)
    return joined(request_frame(0, version, correlation, "client", [body]))[4:]


def answer(desk: Desk, connection: Connection, frame: bytes) -> bytes | None:
    parts = desk.node.handle(desk.clock.now(), connection, memoryview(bytearray(frame)))
    return joined(parts) if parts is not None else None


def desk_with_topic(**configs: str) -> Desk:
    desk = Desk()
    desk.create_topic("t", 3, **configs)
    return desk


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_the_same_answers_as_without_it(version: int, acks: int) -> None:
    """Two nodes, the same frames; one of them forgets its lane before each."""
    quick, slow = desk_with_topic(), desk_with_topic()
    fast, plain = quick.connect(), slow.connect()
    for i in range(20):
        records = batch(b"x" * (i * 40))
        frames = [
            frame_of(desk, records, version, correlation=i, partition=i % 3, acks=acks)
            for desk in (quick, slow)
        ]
        plain.express = None
        ours, theirs = answer(quick, fast, frames[0]), answer(slow, plain, frames[1])
        if version >= 13:  # topic ids are each node's own
            assert ours is not None
            assert theirs is not None
            ids = [desk.node.broker.partitions.of_name("t")[0].topic_id for desk in (quick, slow)]
            theirs = theirs.replace(ids[1], ids[0])
        assert ours == theirs
    assert (fast.express is not None) == (version >= 7)


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
def test_errors_take_the_ordinary_way(spoil, code: ErrorCode) -> None:  # type: ignore[no-untyped-def]
    desk = desk_with_topic()
    connection = desk.connect()
    desk.ask(desk.produce_request("t", batch(b"a"), acks=1), 9, connection)
    assert connection.express is not None
    refused = desk.ask(desk.produce_request("t", spoil(batch(b"b")), acks=1), 9, connection)
    assert refused.responses[0].partition_responses[0].error_code == code
    good = desk.ask(desk.produce_request("t", batch(b"c"), acks=1), 9, connection)
    assert good.responses[0].partition_responses[0].base_offset == 1


def test_a_deleted_topic_is_not_remembered() -> None:
    desk = desk_with_topic()
    connection = desk.connect()
    for _ in range(2):
        desk.ask(desk.produce_request("t", batch(b"a"), acks=1), 9, connection)
    desk.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    gone = desk.ask(desk.produce_request("t", batch(b"a"), acks=1), 9, connection)
    assert gone.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    desk.create_topic("t")
    again = desk.ask(desk.produce_request("t", batch(b"a"), acks=1), 9, connection)
    assert again.responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize(("topic", "acks"), [("__consumer_offsets", 1), ("__consumer_offsets", -1), ("t", 7)])
@pytest.mark.parametrize("version", [7, 9, 12])
def test_what_was_refused_is_refused_again(topic: str, acks: int, version: int) -> None:
    """The second identical request was appended: a forged commit moved a group's offset."""
    desk = desk_with_topic()
    desk.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    connection = desk.connect()
    codes = set()
    for _ in range(3):
        answer = desk.ask(desk.produce_request(topic, batch(b"a"), acks=acks), version, connection)
        codes.add(answer.responses[0].partition_responses[0].error_code)
    refusal = ErrorCode.INVALID_REQUIRED_ACKS if topic == "t" else ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == {refusal}
    log = desk.node.broker.partitions.of_name(topic)[0].log
    assert log is None or log.log_end_offset == 0
    assert connection.express is None


def test_nothing_is_learned_from_a_batch_that_was_refused() -> None:
    desk = desk_with_topic()
    connection = desk.connect()
    desk.ask(desk.produce_request("t", batch(b"a")[:-1], acks=1), 9, connection)
    assert connection.express is None


def test_a_second_replica_ends_it_for_acks_all() -> None:
    desk = desk_with_topic()
    connection = desk.connect()
    for _ in range(2):
        desk.ask(desk.produce_request("t", batch(b"a")), 9, connection)
    desk.node.broker.partitions.of_name("t")[0].leader.isr = frozenset({1, 2})
    desk.send(connection, desk.produce_request("t", batch(b"a")), 9)
    assert desk.receive(connection) is None


def test_it_wakes_those_who_wait() -> None:
    from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    desk = desk_with_topic()
    writer, reader = desk.connect(), desk.connect()
    for _ in range(2):
        desk.ask(desk.produce_request("t", batch(b"a"), acks=1), 9, writer)
    wanted = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1000)
    desk.send(
        reader,
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]),
        11,
    )
    assert desk.receive(reader) is None
    desk.ask(desk.produce_request("t", batch(b"b"), acks=1), 9, writer)
    assert bytes(desk.receive(reader).responses[0].partitions[0].records)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([7, 9, 12]), st.binary(max_size=12), st.integers(0, 400), st.integers(0, 255))
def test_mangled_frames_never_get_another_answer(version: int, extra: bytes, at: int, value: int) -> None:
    """A learned lane and a fresh connection agree on any frame that begins like the learned one."""
    desk = desk_with_topic()
    learned, fresh = desk.connect(), desk.connect()
    frame = frame_of(desk, batch(b"v" * 200), version)
    answer(desk, learned, frame)
    mangled = bytearray(frame + extra)
    mangled[at % len(mangled)] = value
    if (key := bytes(mangled[0:2])) != b"\0\0":
        assert key  # another API: not a produce at all
        return
    ends = [p.log.log_end_offset if p.log else 0 for p in desk.node.broker.partitions.of_name("t")]
    ours = answer(desk, learned, bytes(mangled))
    moved = [p.log.log_end_offset if p.log else 0 for p in desk.node.broker.partitions.of_name("t")]
    desk.settle()
    theirs = answer(desk, fresh, bytes(mangled))
    moved_again = [p.log.log_end_offset if p.log else 0 for p in desk.node.broker.partitions.of_name("t")]
    assert (ours is None) == (theirs is None)
    assert [b - a for a, b in zip(ends, moved)] == [b - a for a, b in zip(moved, moved_again)]


def test_a_batch_that_is_refused_after_it_was_stamped_is_refused_for_the_same_reason() -> None:
    """The lane had the log stamp it with LogAppendTime, met the sequence's fault, and the ordinary way then
    refused the stamp.
    """
    desk = desk_with_topic(message_timestamp_type="LogAppendTime")
    connection = desk.connect()
    codes = []
    for sequence in (0, 1, 7, 2):
        records = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=sequence)
        answer = desk.ask(desk.produce_request("t", records, acks=1), 9, connection)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]
