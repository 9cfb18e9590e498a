"""What a member of a classic group makes of each error code, as Java's consumer does."""

from __future__ import annotations

from itertools import pairwise

import pytest

from harness.scripted_member import A0, BOTH, ScriptedMember, failure
from headrace.client.assignors import ASSIGNORS
from headrace.client.errors import ConnectionLost
from headrace.client.membership.classic_protocol import write_assignment
from headrace.client.membership.events import (
    Failed,
    Lost,
    OffsetsFetched,
    Revoked,
)
from headrace.client.membership.subscription import Subscription
from headrace.client.network.connection import ByVersion
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

HOPELESS = [
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


class TestJoin:
    def test_is_given_an_id(self) -> None:
        member = ScriptedMember()
        asked, ticket = member.subscribed()
        assert asked.member_id == ""
        member.answer(ticket, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
        asked, _ = member.next(JoinGroupRequest)
        assert asked.member_id == "me"

    @pytest.mark.parametrize(
        ("code", "searches"),
        [
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1),
            (ErrorCode.REBALANCE_IN_PROGRESS, 1),
            (ErrorCode.UNKNOWN_MEMBER_ID, 1),
            (ErrorCode.NOT_COORDINATOR, 2),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, 2),
        ],
    )
    def test_tries_again(self, code: ErrorCode, searches: int) -> None:
        member = ScriptedMember()
        _, ticket = member.subscribed()
        member.answer(ticket, JoinGroupResponse(error_code=code))
        member.next(JoinGroupRequest)
        assert member.searches == searches
        assert member.take() == []

    @pytest.mark.parametrize(
        "code",
        [
            *HOPELESS,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ErrorCode.INVALID_SESSION_TIMEOUT,
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ],
    )
    def test_gives_up(self, code: ErrorCode) -> None:
        member = ScriptedMember()
        _, ticket = member.subscribed()
        member.answer(ticket, JoinGroupResponse(error_code=code))
        assert failure(member.take()) == code.name
        assert member.group.deadline() > member.now + 200, "nothing more is tried"

    @pytest.mark.parametrize("metadata", [b"", b"\xff\xff", b"\x00\x03\x00"])
    def test_a_leader_survives_what_others_say(self, metadata: bytes) -> None:
        member = ScriptedMember()
        _, ticket = member.subscribed()
        other = JoinGroupResponseMember(member_id="other", metadata=metadata)
        member.answer(
            ticket,
            JoinGroupResponse(
                generation_id=1, protocol_name="range", leader="me", member_id="me", members=[other]
            ),
        )
        (event,) = member.take()
        assert isinstance(event, Failed)
        assert "the subscription of another member cannot be read" in str(event.error)

    def test_a_lost_connection_is_a_reason_to_search(self) -> None:
        member = ScriptedMember()
        _, ticket = member.subscribed()
        member.answer(ticket, ConnectionLost("gone"))
        member.next(JoinGroupRequest)
        assert member.searches == 2

    def test_an_answer_to_a_question_that_was_given_up_changes_nothing(self) -> None:
        member = ScriptedMember()
        _, ticket = member.subscribed()
        member.group.leave(member.now)
        member.take()
        member.answer(ticket, JoinGroupResponse(generation_id=4, protocol_name="range", member_id="me"))
        assert member.take() == []
        assert member.group.membership.is_out


class TestSync:
    @pytest.mark.parametrize(
        ("code", "member_id", "searches"),
        [
            (ErrorCode.REBALANCE_IN_PROGRESS, "me", 1),
            (ErrorCode.ILLEGAL_GENERATION, "me", 1),
            (ErrorCode.UNKNOWN_MEMBER_ID, "", 1),
            (ErrorCode.NOT_COORDINATOR, "me", 2),
        ],
    )
    def test_joins_again(self, code: ErrorCode, member_id: str, searches: int) -> None:
        member = ScriptedMember()
        _, ticket = member.subscribed()
        _, ticket = member.entered(ticket)
        member.answer(ticket, SyncGroupResponse(error_code=code))
        asked, _ = member.next(JoinGroupRequest)
        assert (asked.member_id, member.searches) == (member_id, searches)

    @pytest.mark.parametrize("code", HOPELESS)
    def test_gives_up(self, code: ErrorCode) -> None:
        member = ScriptedMember()
        _, ticket = member.subscribed()
        _, ticket = member.entered(ticket)
        member.answer(ticket, SyncGroupResponse(error_code=code))
        assert failure(member.take()) == code.name

    def test_an_assignment_that_cannot_be_read(self) -> None:
        member = ScriptedMember()
        _, ticket = member.subscribed()
        _, ticket = member.entered(ticket)
        member.answer(ticket, SyncGroupResponse(assignment=b"\x00\x03\x00"))
        (event,) = member.take()
        assert isinstance(event, Failed)
        assert "cannot be read" in str(event.error)

    def test_topics_that_nobody_wants_any_more_are_not_taken(self) -> None:
        """The application subscribed again while the group rebalanced."""
        member = ScriptedMember()
        _, ticket = member.subscribed()
        _, ticket = member.entered(ticket)
        member.group.subscribe(member.now, Subscription(frozenset({"b"})))
        member.answer(ticket, SyncGroupResponse(assignment=write_assignment(BOTH)))
        assert member.take() == []
        member.next(JoinGroupRequest)


class TestHeartbeat:
    def beat(self, code: ErrorCode) -> ScriptedMember:
        member = ScriptedMember()
        member.settled()
        asked, ticket = member.next(HeartbeatRequest)
        assert (asked.generation_id, asked.member_id) == (1, "me")
        member.answer(ticket, HeartbeatResponse(error_code=code))
        return member

    def test_comes_every_interval(self) -> None:
        member = ScriptedMember()
        member.settled()
        moments = []
        for _ in range(3):
            _, ticket = member.next(HeartbeatRequest)
            moments.append(member.now)
            member.answer(ticket, HeartbeatResponse())
        assert [round(later - earlier, 3) for earlier, later in pairwise(moments)] == [3.0, 3.0]

    def test_tells_of_a_rebalance(self) -> None:
        member = self.beat(ErrorCode.REBALANCE_IN_PROGRESS)
        assert member.take() == [Revoked(BOTH)]
        member.group.acknowledge(member.now)
        asked, _ = member.next(JoinGroupRequest)
        assert asked.member_id == "me"

    def test_goes_on_while_the_application_gives_up(self) -> None:
        """Its session must not end over it."""
        member = self.beat(ErrorCode.REBALANCE_IN_PROGRESS)
        for _ in range(3):
            _, ticket = member.next(HeartbeatRequest)
            member.answer(ticket, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        assert member.take() == [Revoked(BOTH)]

    @pytest.mark.parametrize(
        ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "me"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
    )
    def test_tells_that_all_is_lost(self, code: ErrorCode, member_id: str) -> None:
        member = self.beat(code)
        assert member.take() == [Lost(BOTH)]
        asked, _ = member.next(JoinGroupRequest)
        assert asked.member_id == member_id

    @pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
    def test_goes_to_the_new_coordinator(self, code: ErrorCode) -> None:
        member = self.beat(code)
        member.next(HeartbeatRequest)
        assert member.searches == 2
        assert member.take() == []

    def test_of_a_session_without_answers_is_brought_elsewhere(self) -> None:
        member = ScriptedMember(session_timeout_s=10.0)
        member.settled()
        member.next(HeartbeatRequest)
        while member.searches == 1:
            member.cluster.now = member.group.deadline()
            member.take()
        assert 10.0 <= member.now < 11.0

    @pytest.mark.parametrize("code", HOPELESS)
    def test_gives_up(self, code: ErrorCode) -> None:
        events = self.beat(code).take()
        assert failure(events) == code.name
        assert events[-1] == Lost(BOTH)


def test_the_search_for_a_coordinator_may_be_hopeless() -> None:
    member = ScriptedMember()
    member.group.subscribe(member.now, Subscription(frozenset({"a"})))
    member.group.fetch_committed(member.now, [A0])
    outgoing = next(
        each for each in member.group.requests(member.now) if isinstance(each.question, ByVersion)
    )
    refusal = Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.answer(outgoing.ticket, FindCoordinatorResponse(coordinators=[refusal]))
    events = member.take()
    assert failure(events) == "GROUP_AUTHORIZATION_FAILED"
    assert any(isinstance(event, OffsetsFetched) and event.error is not None for event in events)


def test_the_cooperative_protocol_needs_all_assignors_to_agree() -> None:
    """With an eager one among them, everything is given up before each rebalance."""
    for assignors, revoked in [
        (("cooperative-sticky",), []),
        (("cooperative-sticky", "range"), [Revoked(BOTH)]),
    ]:
        member = ScriptedMember(assignors=tuple(ASSIGNORS[name] for name in assignors))
        _, ticket = member.subscribed()
        member.answer(
            ticket,
            JoinGroupResponse(
                generation_id=1, protocol_name="cooperative-sticky", leader="other", member_id="me"
            ),
        )
        _, ticket = member.next(SyncGroupRequest)
        member.answer(ticket, SyncGroupResponse(assignment=write_assignment(BOTH)))
        _, ticket = member.next(HeartbeatRequest)
        member.take()
        member.answer(ticket, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        assert member.take() == revoked
