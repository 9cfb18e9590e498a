"""Answers leave in the order of their requests, whoever settles which of them when."""

import struct
from collections.abc import Callable

import pytest

from harness.answer_order import AnswerOrder, answer_ids
from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.node.waiting import Waiting
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.simulator.manual_host import ManualHost

SETTINGS = {"group.initial.rebalance.delay.ms": "3000", "offsets.topic.num.partitions": "1"}


def ids_sent(host: ManualHost, connection: Connection) -> list[int]:
    return [struct.unpack(">i", frame[4:8])[0] for frame in host.answers[connection.id]]


def wish() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def host_with_group() -> ManualHost:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    return host


def joining(host: ManualHost) -> tuple[Connection, JoinGroupRequest]:
    """A member whose JoinGroup waits for the others."""
    connection = host.connect()
    request = wish()
    request.member_id = host.ask(request, 9, connection).member_id
    host.send(connection, request, 9)
    assert not host.answers[connection.id]
    return connection, request


def leave(member_id: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])


def test_a_member_that_leaves_behind_its_own_join_is_answered_the_join_first() -> None:
    """How a consumer closes during a rebalance. kafka-python raised CorrelationIdError."""
    host = host_with_group()
    connection, request = joining(host)
    first = host._correlation
    host.send(connection, leave(request.member_id), 5)
    assert ids_sent(host, connection) == [first, first + 1]
    assert host.receive(connection).error_code  # of JoinGroup: it is no longer a member
    assert host.receive(connection).error_code == 0


def test_all_requests_behind_a_join_keep_their_places_when_a_later_one_settles_it() -> None:
    host = host_with_group()
    connection, request = joining(host)
    first = host._correlation
    host.send(connection, MetadataRequest(topics=[]), 9)
    host.send(connection, leave(request.member_id), 5)
    host.send(connection, MetadataRequest(topics=[]), 9)
    assert ids_sent(host, connection) == [first, first + 1, first + 2, first + 3]


def test_a_fetch_between_them_still_holds_back_what_is_behind_it() -> None:
    host = host_with_group()
    connection, request = joining(host)
    first = host._correlation
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])])
    host.send(connection, fetch, 11)
    host.send(connection, leave(request.member_id), 5)
    assert ids_sent(host, connection) == [first]
    host.advance(1)
    assert ids_sent(host, connection) == [first, first + 1, first + 2]


def test_an_unknown_version_of_api_versions_waits_for_its_turn() -> None:
    host = host_with_group()
    connection, _ = joining(host)
    first = host._correlation
    host.send_frame(connection, struct.pack(">hhih", 18, 127, 99, -1) + b"\0")
    assert not host.answers[connection.id]
    host.advance(10)
    assert ids_sent(host, connection) == [first, 99]


def test_a_sync_that_ends_the_waits_of_others_is_answered_once() -> None:
    """Two members on one connection: the leader's SyncGroup settles the follower's, asked before."""
    host = host_with_group()
    connection, leader = joining(host)
    other = wish()
    other.member_id = host.ask(other, 9).member_id
    host.send(connection, other, 9)
    host.advance(7)
    answers = [host.receive(connection), host.receive(connection)]
    assert [answer.generation_id for answer in answers] == [1, 1]
    first = host._correlation
    leads, follows = sorted((other, leader), key=lambda one: one.member_id != answers[0].leader)
    host.send(connection, SyncGroupRequest(group_id="g", generation_id=1, member_id=follows.member_id), 3)
    host.send(connection, SyncGroupRequest(group_id="g", generation_id=1, member_id=leads.member_id), 3)
    assert ids_sent(host, connection) == [first + 1, first + 2]


def frame(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


@pytest.mark.parametrize(
    "cut", [lambda whole: [whole], lambda whole: [whole[i : i + 1] for i in range(len(whole))]]
)
def test_the_judge_finds_frames_however_they_are_cut(cut: Callable[[bytes], Parts]) -> None:
    assert answer_ids(cut(frame(5, b"abc") + frame(6) + frame(7, b"x"))) == [5, 6, 7]


def test_the_judge_names_an_answer_that_came_too_early() -> None:
    seen: list[str] = []
    order = AnswerOrder("socket", seen.append, knows_all=True)
    for correlation_id in (1, 2):
        order.asked(9, memoryview(struct.pack(">hhih", 3, 1, correlation_id, -1)))
    order.answered(9, [frame(2)])
    order.answered(9, [frame(1)])
    order.answered(9, [frame(1)])
    assert seen == [
        "socket: request 2 of connection 9 was answered while [1, 2] were owed, in this order",
        "socket: request 1 of connection 9 was answered while no answer was owed",
    ]


def test_the_judge_watches_every_node_of_this_process(
    monkeypatch: pytest.MonkeyPatch, misplaced_answers: list[str]
) -> None:
    """A planted fault: an answer is returned though one before it is still owed."""
    monkeypatch.setattr(Waiting, "in_turn", lambda waiting, connection, parts: parts)
    host = host_with_group()
    connection, request = joining(host)
    host.send(connection, leave(request.member_id), 5)
    assert len(misplaced_answers) == 1
    misplaced_answers.clear()
