"""Authorization and quotas each have one place where they are asked; handlers know nothing of either."""

import pytest

from harness.authorizers import Nobody
from harness.desk import Desk
from headrace.base.time import Instant
from headrace.node.authorization import Operation, Resource
from headrace.node.effects import Mute
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.records.builder import build_batch

BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])


class Slow:
    """Tells everybody to be quiet for a while."""

    def throttle_ms(self, request: Request, response_bytes: int) -> int:
        assert response_bytes > 0
        return 250


def desk_with_topic() -> Desk:
    desk = Desk()
    desk.create_topic("t")
    return desk


def fetch() -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])])


def test_without_the_right_nothing_is_written_or_read_also_by_express() -> None:
    desk = desk_with_topic()
    connection = desk.connect()
    for _ in range(2):
        desk.ask(desk.produce_request("t", BATCH, acks=1), 9, connection)
    assert connection.express is not None
    nobody = desk.node.access.authorizer = Nobody()
    refused = desk.ask(desk.produce_request("t", BATCH, acks=1), 9, connection)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    read = desk.ask(fetch(), 11).responses[0].partitions[0]
    assert (read.error_code, bytes(read.records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    listed = desk.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5).topics[0].partitions[0]
    assert (listed.error_code, listed.offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    assert nobody.asked == [
        (Operation.WRITE, Resource.TOPIC, "t"),
        (Operation.READ, Resource.TOPIC, "t"),
        (Operation.DESCRIBE, Resource.TOPIC, "t"),
    ]
    assert desk.node.broker.partitions.of_name("t")[0].leader.high_watermark == 2


@pytest.mark.parametrize("is_fetch", [True, False])
def test_who_is_throttled_is_answered_at_once_and_then_muted(is_fetch: bool) -> None:
    """KIP-219: the answer tells the delay, and the connection is not read from meanwhile."""
    desk = desk_with_topic()
    connection = desk.connect()
    desk.ask(desk.produce_request("t", BATCH, acks=1), 9, connection)
    desk.node.waiting.quotas = Slow()
    answer = (
        desk.ask(fetch(), 11, connection)
        if is_fetch
        else desk.ask(desk.produce_request("t", BATCH, acks=1), 9, connection)
    )
    assert answer.throttle_time_ms == 250
    (mute,) = [effect for effect in desk.effects if isinstance(effect, Mute)]
    assert mute.connection is connection
    assert mute.until == Instant(desk.clock.mono + 0.25)
