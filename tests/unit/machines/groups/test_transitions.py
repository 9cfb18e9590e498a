"""Every state of a classic group against everything that may happen in it: what is decided, as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from harness.group_requests import in_columns
from harness.group_shard import GroupShard
from headrace.machines.coordination import Caller, Decision
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.classic.requests import Joined, JoinedMember, Leaving, Left, Synced
from headrace.machines.groups.settings import GroupSettings
from headrace.node.handlers import join_group, offset_commit, sync_group
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupResponse
from unit.machines.groups.classic_groups import (
    INITIAL_DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    commit_request,
    heartbeat_request,
    join_request,
    joined,
    leave_request,
    stable,
    sync_request,
    take_answers,
)

CALLER = Caller("c", "/127.0.0.1")
NONE, REBALANCING = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN, ILLEGAL = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION


def group_of(shard: GroupShard) -> ClassicGroup:
    group = shard.machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def in_state(state: State) -> tuple[GroupShard, str, str]:
    """A group with a leader and a follower; in an empty one they were members once."""
    shard = GroupShard()
    if state is State.COMPLETING_REBALANCE:
        leader, follower = joined(shard)
    else:
        leader, follower = stable(shard)
    if state is State.PREPARING_REBALANCE:
        assert shard.ask(join_request(leader), 9, ticket="leader") is None
    if state is State.EMPTY:
        shard.ask(leave_request(leader, follower), 5)
    assert group_of(shard).status is state
    return shard, leader, follower


EMPTY, PREPARING = State.EMPTY, State.PREPARING_REBALANCE
COMPLETING, STABLE = State.COMPLETING_REBALANCE, State.STABLE


@pytest.mark.parametrize(
    ("state", "of_member", "of_stranger", "of_former_generation"),
    [
        (EMPTY, UNKNOWN, UNKNOWN, UNKNOWN),
        (PREPARING, REBALANCING, UNKNOWN, ILLEGAL),
        (COMPLETING, NONE, UNKNOWN, ILLEGAL),
        (STABLE, NONE, UNKNOWN, ILLEGAL),
    ],
)
def test_heartbeat(
    state: State, of_member: ErrorCode, of_stranger: ErrorCode, of_former_generation: ErrorCode
) -> None:
    shard, _, follower = in_state(state)

    def beat(member: str, generation: int) -> Decision:
        return shard.machine.heartbeat(shard.now, "g", generation, member, None)

    assert beat(follower, 1) == Decision(of_member)
    assert beat("stranger", 1) == Decision(of_stranger)
    assert beat(follower, 0) == Decision(of_former_generation)


@pytest.mark.parametrize(
    ("state", "of_member", "without_group", "of_former_generation"),
    [
        (EMPTY, UNKNOWN, NONE, UNKNOWN),
        (PREPARING, NONE, UNKNOWN, ILLEGAL),
        (COMPLETING, REBALANCING, UNKNOWN, ILLEGAL),
        (STABLE, NONE, UNKNOWN, ILLEGAL),
    ],
)
def test_commit(
    state: State, of_member: ErrorCode, without_group: ErrorCode, of_former_generation: ErrorCode
) -> None:
    shard, _, follower = in_state(state)
    for request, expected in (
        (commit_request(follower, 1), of_member),
        (commit_request(), without_group),
        (commit_request(follower, 0), of_former_generation),
    ):
        committer = offset_commit.committer_of(request, 8)
        offsets = offset_commit.offsets_of(in_columns(request), shard.topics)
        decision = shard.machine.commit_offsets(shard.now, committer, offsets)
        assert decision.reply == [expected]
        assert len(decision.records) == (expected is NONE)


@pytest.mark.parametrize("state", [EMPTY, PREPARING, COMPLETING, STABLE])
def test_a_sync_of_the_follower(state: State) -> None:
    shard, _, follower = in_state(state)
    decision = shard.machine.sync(shard.now, sync_group.asked(sync_request(follower, 1)), "ticket")
    assert (
        decision
        == {
            EMPTY: Decision(Synced(UNKNOWN)),
            PREPARING: Decision(Synced(REBALANCING)),
            COMPLETING: Decision(),
            STABLE: Decision(Synced(protocol_type="consumer", protocol="range", assignment=b"share-1")),
        }[state]
    )


def test_the_leader_syncs_and_everybody_is_told_together_with_the_record() -> None:
    shard, leader, follower = in_state(COMPLETING)
    shard.ask(sync_request(follower, 1), 3, ticket="follower")
    request = sync_request(leader, 1, **{leader: b"all"})
    decision = shard.machine.sync(shard.now, sync_group.asked(request), "leader")
    assert dict(decision.answers) == {
        "follower": Synced(protocol_type="consumer", protocol="range"),
        "leader": Synced(protocol_type="consumer", protocol="range", assignment=b"all"),
    }
    assert decision.records == [group_of(shard).record()]
    assert decision.reply is None
    assert group_of(shard).recorded != decision.records[0].value, "only replay changes what is recorded"
    shard.apply(decision)
    assert group_of(shard).recorded == decision.records[0].value


@pytest.mark.parametrize(
    ("state", "who", "leads_to"),
    [
        (EMPTY, "follower", EMPTY),
        (PREPARING, "follower", COMPLETING),
        (COMPLETING, "follower", COMPLETING),
        (COMPLETING, "leader", COMPLETING),
        (STABLE, "follower", STABLE),
        (STABLE, "leader", PREPARING),
        (STABLE, "changed follower", PREPARING),
        (COMPLETING, "changed follower", PREPARING),
        (STABLE, "new", PREPARING),
        (COMPLETING, "new", PREPARING),
        (PREPARING, "new", PREPARING),
        (EMPTY, "new", PREPARING),
    ],
)
def test_where_a_join_leads(state: State, who: str, leads_to: State) -> None:
    shard, leader, follower = in_state(state)
    member_id = "" if who == "new" else leader if who == "leader" else follower
    metadata = b"changed" if who.startswith("changed") else b"meta"
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    request = join_group.asked(join_request(member_id, protocols=protocols), 3)
    decision = shard.machine.join(shard.now, request, CALLER, "ticket")
    assert group_of(shard).status is leads_to
    if leads_to is PREPARING:
        assert decision.reply is None
    elif state is EMPTY:
        assert decision == Decision(Joined(follower, UNKNOWN))
    elif state is PREPARING:
        generations = {ticket: answer.generation for ticket, answer in decision.answers}
        assert generations == {"leader": 2, "ticket": 2}
    else:
        members = [leader, follower] if who == "leader" else []
        assert decision == Decision(
            Joined(
                member_id,
                generation=1,
                protocol_type="consumer",
                protocol="range",
                leader=leader,
                members=tuple(JoinedMember(each, None, b"meta") for each in members),
            )
        )


@pytest.mark.parametrize(
    ("state", "leads_to"), [(PREPARING, COMPLETING), (COMPLETING, PREPARING), (STABLE, PREPARING)]
)
@pytest.mark.parametrize("how", ["leaves", "is not heard of"])
def test_where_the_loss_of_the_follower_leads(state: State, leads_to: State, how: str) -> None:
    shard, leader, follower = in_state(state)
    if how == "leaves":
        decision = shard.machine.leave(shard.now, "g", [Leaving(follower)])
        assert decision.reply == Left(members=(NONE,))
        shard.apply(decision)
    else:
        shard.advance(SESSION_MS - 1)
        if state is not PREPARING:  # there the leader waits for an answer
            shard.ask(heartbeat_request(leader, 1), 4)
        shard.advance(1)
    assert group_of(shard).status is leads_to
    assert list(group_of(shard).members) == [leader]
    assert list(take_answers(shard)) == (["leader"] if state is PREPARING else [])


def test_in_a_rebalance_whoever_waited_for_its_share_is_told_to_join_again() -> None:
    shard, _, follower = in_state(COMPLETING)
    shard.ask(sync_request(follower, 1), 3, ticket="follower")
    shard.ask(join_request(), 3, ticket="new")
    assert take_answers(shard) == {"follower": SyncGroupResponse(error_code=REBALANCING)}


@pytest.mark.parametrize(("ask", "error"), [("join", REBALANCING), ("sync", REBALANCING)])
def test_who_asks_twice_is_answered_twice(ask: str, error: ErrorCode) -> None:
    """A ticket that nobody answers would hold up its connection for ever."""
    if ask == "join":
        shard, leader, _ = in_state(STABLE)
        request: Any = join_request(leader)
    else:
        shard, _, follower = in_state(COMPLETING)
        request = sync_request(follower, 1)
    shard.ask(request, 3, ticket="first")
    shard.ask(request, 3, ticket="second")
    answers = take_answers(shard)
    assert list(answers) == ["first"]
    assert answers["first"].error_code == error
    assert shard.machine.abandon() == ["second"]


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    shard, _, follower = in_state(COMPLETING)
    shard.ask(sync_request(follower, 1), 3, ticket="share")
    shard.ask(leave_request(follower), 5)
    assert take_answers(shard) == {"share": SyncGroupResponse(error_code=UNKNOWN)}


def test_an_id_that_was_given_out_does_not_make_a_static_member() -> None:
    """It would stand beside the one that has the instance id already."""
    shard = GroupShard()
    shard.ask(join_request(group_instance_id="i"), 9, ticket="static")
    pending = shard.ask(join_request(), 9, ticket="new").member_id
    refused = shard.ask(join_request(pending, group_instance_id="i"), 9, ticket="both")
    assert refused.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert [member.instance_id for member in group_of(shard).members.values()] == ["i"]


def test_the_initial_delay_grows_with_joins_up_to_the_rebalance_timeout() -> None:
    shard = GroupShard()
    for _ in range(REBALANCE_MS // INITIAL_DELAY_MS):
        shard.ask(join_request(), 3, ticket=object())
        assert not shard.answers, "everybody still has time to come"
        shard.advance(INITIAL_DELAY_MS - 1)
    shard.ask(join_request(), 3, ticket="last")
    shard.advance(REBALANCE_MS // INITIAL_DELAY_MS)
    assert len(take_answers(shard)) == REBALANCE_MS // INITIAL_DELAY_MS + 1


def test_without_an_initial_delay_the_first_member_is_answered_when_the_timers_are_looked_at() -> None:
    shard = GroupShard(GroupSettings(group_initial_rebalance_delay_ms=0))
    shard.ask(join_request(), 3, ticket="first")
    shard.advance(0)
    assert take_answers(shard)["first"].generation_id == 1


def test_a_new_member_that_never_hears_of_its_generation_is_given_up() -> None:
    """It waits longer than any client does: what waits there is nobody any more."""
    shard = GroupShard()
    leader, follower = stable(shard, rebalance_timeout_ms=20 * 60_000)
    shard.ask(join_request(rebalance_timeout_ms=20 * 60_000), 3, ticket="new")
    for _ in range(5 * 60):
        for member in (leader, follower):
            shard.ask(heartbeat_request(member, 1), 4)
        shard.advance(1000)
    answers = take_answers(shard)
    assert answers["new"] == JoinGroupResponse(error_code=UNKNOWN, member_id="")
    assert list(group_of(shard).members) == [leader, follower]


def test_the_time_for_joining_begins_once_per_rebalance() -> None:
    """A member that crashes and comes back again and again must not hold up everybody else."""
    shard = GroupShard()
    leader, follower = stable(shard)
    shard.ask(join_request(leader), 9, ticket="leader")
    for number in range(REBALANCE_MS // 1000):
        pending = shard.ask(join_request(), 9, f"c{number}").member_id
        shard.ask(join_request(pending), 9, ticket=number)
        if number % 2:
            shard.ask(leave_request(pending), 5)
        assert group_of(shard).status is PREPARING
        shard.ask(heartbeat_request(follower, 1), 4)  # alive, and does not join
        shard.advance(1000)
    assert group_of(shard).status is COMPLETING
    assert follower not in group_of(shard).members
    assert take_answers(shard)["leader"].generation_id == 2


def test_a_member_that_joins_while_others_sync_waits_longer_than_its_session() -> None:
    """It cannot send heartbeats before it has a generation."""
    shard, leader, follower = in_state(COMPLETING)
    shard.ask(join_request(), 3, ticket="new")
    assert group_of(shard).status is PREPARING
    for _ in range(2):
        shard.advance(SESSION_MS - 1)
        shard.ask(heartbeat_request(leader, 1), 4)
        shard.ask(heartbeat_request(follower, 1), 4)
    assert take_answers(shard) == {}
    shard.ask(join_request(leader), 9, ticket="leader")
    shard.ask(join_request(follower), 9, ticket="follower")
    answers = take_answers(shard)
    assert {ticket: answer.generation_id for ticket, answer in answers.items()} == {
        "new": 2,
        "leader": 2,
        "follower": 2,
    }


def test_a_member_that_did_not_sync_is_not_given_another_session_by_a_rebalance() -> None:
    """As in Kafka: a session begins again for whoever waited for its share, when nobody looked after it."""
    shard, leader, follower = in_state(COMPLETING)
    shard.ask(sync_request(follower, 1), 3, ticket="follower")
    shard.advance(SESSION_MS - 1)
    shard.ask(join_request(), 3, ticket="new")
    shard.advance(1)
    assert leader not in group_of(shard).members
    assert follower in group_of(shard).members
