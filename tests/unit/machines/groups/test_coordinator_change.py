"""Another coordinator takes over: it knows what was written, and gives everybody a session's time."""

from __future__ import annotations

from harness.group_shard import GroupShard
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupRequestProtocol
from unit.machines.groups.classic_groups import (
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


def group_of(shard: GroupShard) -> ClassicGroup:
    group = shard.machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def test_members_of_a_stable_group_go_on_without_noticing() -> None:
    shard = GroupShard()
    leader, follower = stable(shard)
    assert shard.crash() == []
    for member in (leader, follower):
        assert shard.ask(heartbeat_request(member, 1), 4).error_code == ErrorCode.NONE
    assert shard.ask(sync_request(follower, 1), 3).assignment == b"share-1"
    (topic,) = shard.ask(commit_request(follower, 1), 8).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE
    group = group_of(shard)
    assert (group.status, group.leader) == (State.STABLE, leader)


def test_every_member_has_a_whole_session_and_not_more() -> None:
    shard = GroupShard()
    leader, _ = stable(shard)
    shard.advance(SESSION_MS - 1)
    shard.crash()
    shard.advance(SESSION_MS - 1)
    assert shard.ask(heartbeat_request(leader, 1), 4).error_code == ErrorCode.NONE
    shard.advance(1)
    assert list(group_of(shard).members) == [leader]
    assert shard.ask(heartbeat_request(leader, 1), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_whoever_waited_is_handed_back_and_the_former_generation_holds() -> None:
    shard = GroupShard()
    leader, follower = stable(shard)
    shard.ask(join_request(leader), 9, ticket="leader")
    shard.ask(join_request(), 3, ticket="new")
    assert shard.crash() == ["leader", "new"]
    group = group_of(shard)
    assert (group.status, group.generation, list(group.members)) == (State.STABLE, 1, [leader, follower])


def test_a_generation_that_nobody_synced_never_was() -> None:
    shard = GroupShard()
    leader, _ = joined(shard)
    shard.crash()
    assert group_of(shard).is_empty
    assert shard.ask(sync_request(leader, 1), 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_loaded_member_has_only_the_chosen_protocol() -> None:
    """The record does not contain the others: it offers them again when it joins."""
    shard = GroupShard()
    both = [JoinGroupRequestProtocol(name=name, metadata=b"meta") for name in ("range", "sticky")]
    leader, _ = stable(shard, protocols=both)
    shard.crash()
    sticky = [JoinGroupRequestProtocol(name="sticky", metadata=b"meta")]
    refused = shard.ask(join_request(protocols=sticky), 3, ticket="new")
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.ask(join_request(leader, protocols=both), 9, ticket="leader") is None


def test_a_group_that_is_too_large_by_now_begins_with_a_rebalance() -> None:
    shard = GroupShard()
    members = stable(shard, 3)
    shard.settings = GroupSettings(group_max_size=2)
    shard.crash()
    assert group_of(shard).status is State.PREPARING_REBALANCE
    for member in members[:2]:
        assert shard.ask(join_request(member), 9, ticket=member) is None
    refused = shard.ask(join_request(members[2]), 9)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    shard.advance(30_000)
    assert sorted(take_answers(shard)) == sorted(members[:2])


def test_groups_and_their_offsets_survive_compaction() -> None:
    shard = GroupShard()
    leader, _ = stable(shard)
    for offset in range(3):
        shard.ask(commit_request(leader, 1, committed_offset=offset), 8)
    before = shard.machine.state()
    length = len(shard.lines)
    shard.compact()
    assert len(shard.lines) < length
    assert shard.rebuilt().state() == before


def test_a_deleted_group_is_gone_after_a_restart() -> None:
    shard = GroupShard()
    leader, follower = stable(shard)
    shard.ask(commit_request(leader, 1), 8)
    assert shard.machine.delete_group(shard.now, "g").reply == ErrorCode.NON_EMPTY_GROUP
    shard.ask(leave_request(leader, follower), 5)
    decision = shard.machine.delete_group(shard.now, "g")
    assert shard.apply(decision) == ErrorCode.NONE
    assert [record.value for record in decision.records] == [None, None]
    shard.crash()
    assert shard.machine.groups == {}
    assert shard.machine.delete_group(shard.now, "g").reply == ErrorCode.GROUP_ID_NOT_FOUND
