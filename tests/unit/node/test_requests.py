"""Frames that are not requests, or not of an API that is served, cost their sender the connection."""

import struct
from collections.abc import Callable
from gc import collect, get_objects
from typing import Any

import pytest

from headrace.base.limits import FRAME_WITHOUT_RECORDS_BYTES_MAX
from headrace.node.routes import SERVED
from headrace.protocol.api import response_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.join_sink import JoinSinkRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.simulator.manual_host import ManualHost


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0" * 7,
        struct.pack(">hhih", 3, 1, 1, 30_000),  # a client id longer than the frame
        struct.pack(">hhih", 3, 1, 1, -1),  # a body that is not there
        struct.pack(">hhih", 3, 99, 1, -1),  # a version that does not exist
        struct.pack(">hhih", 52, 0, 1, -1) + b"\0" * 30,  # an API that is not for clients
        struct.pack(">hhih", 77, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 0, 2, 1, -1) + b"\0" * 30,  # Produce 0-2 is advertised and not served
        struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1),  # two billion topics
        struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff" * 12,  # an endless varint
    ],
)
def test_garbage_closes_the_connection_and_nothing_else(frame: bytes) -> None:
    host = ManualHost()
    bad, good = host.connect(), host.connect()
    host.send_frame(bad, frame)
    assert bad.id in host.closed
    assert host.receive(bad) is None
    assert host.ask(MetadataRequest(topics=[]), 1, good).brokers[0].node_id == 1


def test_an_unknown_version_of_api_versions_is_told_the_known_ones() -> None:
    host = ManualHost()
    connection = host.connect()
    host.send_frame(connection, struct.pack(">hhih", 18, 127, 42, -1) + b"\0")
    (answer,) = host.answers[connection.id]
    assert struct.unpack(">i", answer[4:8]) == (42,)
    body = response_codec(18, 0).decode(answer[8:], 0)
    assert body.error_code == 35
    assert [(key.api_key, key.min_version, key.max_version) for key in body.api_keys] == [(18, 0, 4)]


def test_only_what_is_served_is_advertised() -> None:
    answer = ManualHost().ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    assert {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys} == {
        key: (first, last) for key, (first, last) in SERVED.items()
    }


def test_a_long_request_without_records_is_not_decoded() -> None:
    host = ManualHost()
    connection = host.connect()
    count = FRAME_WITHOUT_RECORDS_BYTES_MAX // 2
    host.send_frame(connection, struct.pack(">hhihi", 3, 1, 1, -1, count) + b"\0\0" * count)
    assert "more than the limit" in host.closed[connection.id]


def waiting_fetch(reason: str) -> Any:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    return FetchRequest(max_wait_ms=500_000, min_bytes=1, topics=topics, rack_id=reason)


def waiting_join(reason: str) -> Any:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        reason=reason,
    )


@pytest.mark.parametrize(("make", "version"), [(waiting_fetch, 12), (waiting_join, 9)])
def test_what_waits_does_not_hold_what_it_does_not_need(make: Callable[[str], Any], version: int) -> None:
    """A text of 8 MB fits in a request, a hundred of those wait on a connection, each for minutes."""
    host = ManualHost()
    host.create_topic("t")
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    connection = host.connect()
    request = make("long" * 5_000)
    host.send(connection, request, version)
    assert len(connection.pending) == 1
    collect()
    held = [one for one in get_objects() if type(one) is type(request) and one is not request]
    assert [one for one in held if "long" in repr(one)] == []


def test_followers_that_wait_for_their_share_hold_no_shares_of_others() -> None:
    host = ManualHost({"group.initial.rebalance.delay.ms": "100"})
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    members = [host.connect(), host.connect()]
    for number, member in enumerate(members):
        request = waiting_join("")
        request.group_instance_id = f"i{number}"
        host.send(member, request, 9)
    host.advance(5)
    joined = [host.receive(member) for member in members]
    follower = next(one for one in joined if one.member_id != one.leader)
    share = SyncGroupRequestAssignment(member_id="nobody", assignment=b"long" * 5_000)
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=follower.generation_id,
        member_id=follower.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[share],
    )
    connection = host.connect()
    host.send(connection, sync, 5)
    assert len(connection.pending) == 1
    collect()
    held = [one for one in get_objects() if type(one) is SyncGroupRequest and one is not sync]
    assert held == []


LONG = "n" * 5_000


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (FindCoordinatorRequest(key_type=0, coordinator_keys=[LONG]), 4),
        (InitProducerIdRequest(transactional_id=LONG, transaction_timeout_ms=1_000), 5),
        (EndTxnRequest(transactional_id=LONG), 5),
        (AddOffsetsToTxnRequest(transactional_id="t", group_id=LONG), 4),
        (JoinSinkRequest(app_id="a", query_id=LONG, run_id="r", batch_id=1, timeout_ms=1_000), 0),
        (JoinSinkRequest(app_id=LONG, query_id="q", run_id="r", batch_id=1, timeout_ms=1_000), 0),
        (
            ConsumerGroupHeartbeatRequest(
                group_id="g", member_id=LONG, rebalance_timeout_ms=1_000, subscribed_topic_names=["t"]
            ),
            1,
        ),
    ],
)
def test_names_that_coordinators_would_keep_are_not_long(request_: Any, version: int) -> None:
    """Each may have 8 MB: its hash takes half a second, and a hundred thousand of them are remembered."""
    host = ManualHost()
    for kind in (0, 1, 100):
        host.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["a"]), 4)
    answer = host.ask(request_, version)
    (told,) = getattr(answer, "coordinators", None) or [answer]
    assert told.error_code == ErrorCode.INVALID_REQUEST
