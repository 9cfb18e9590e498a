"""Requests without a group, and what members of either kind of group take in memory."""

from __future__ import annotations

from typing import Any

import pytest

from harness.consumer_groups import GROUP, Consumer, Coordinator
from harness.group_shard import FakeTopics, GroupShard
from headrace.base.limits import MEMBER_OVERHEAD_BYTES
from headrace.machines.groups.group import Committer
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import SyncGroupRequest
from unit.machines.groups.classic_groups import join_request, joined, stable


@pytest.mark.parametrize("asked", ["join", "sync", "heartbeat", "leave"])
def test_a_group_needs_a_name(asked: str) -> None:
    request: Any
    match asked:
        case "join":
            request = join_request(group_id="")
        case "sync":
            request = SyncGroupRequest(group_id="", generation_id=1, member_id="m")
        case "heartbeat":
            request = HeartbeatRequest(group_id="", generation_id=1, member_id="m")
        case _:
            request = LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="m")])
    shard = GroupShard()
    assert shard.ask(request, 5 if asked == "leave" else 3).error_code == ErrorCode.INVALID_GROUP_ID
    assert shard.machine.groups == {}


def test_members_of_a_classic_group_count_with_what_they_brought() -> None:
    shard = GroupShard()
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"12345")]
    joined(shard, 2, protocols=protocols)
    assert shard.machine.members_bytes() == 2 * (MEMBER_OVERHEAD_BYTES + len(b"12345"))
    shard = GroupShard()
    stable(shard, 2, protocols=protocols)
    assert shard.machine.members_bytes() == 2 * (MEMBER_OVERHEAD_BYTES + 5 + len(b"share-0"))
    shard.ask(join_request(), 4)  # a member id is given, and nobody has joined with it
    assert shard.machine.members_bytes() == 2 * (MEMBER_OVERHEAD_BYTES + 12) + MEMBER_OVERHEAD_BYTES


def test_members_of_a_consumer_group_count_with_what_they_brought() -> None:
    coordinator = Coordinator(FakeTopics(orders=1, bills=1))
    Consumer(coordinator, "a", "orders").settle()
    assert coordinator.groups.members_bytes() == MEMBER_OVERHEAD_BYTES + len("orders")
    Consumer(coordinator, "b", "orders", "bills").settle()
    assert coordinator.groups.members_bytes() == 2 * MEMBER_OVERHEAD_BYTES + len("ordersordersbills")


def test_who_may_commit_and_fetch_in_a_consumer_group() -> None:
    coordinator = Coordinator(FakeTopics(orders=1))
    member = Consumer(coordinator, "a", "orders").settle()
    group = coordinator.group
    epoch = member.epoch

    def commit(member_id: str, epoch: int, *, is_transactional: bool = False, knows: bool = True) -> Any:
        committer = Committer(GROUP, member_id, None, epoch, knows)
        return group.check_commit(committer, is_transactional=is_transactional)

    assert commit("a", epoch) is ErrorCode.NONE
    assert commit("a", epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("a", epoch, knows=False) is ErrorCode.UNSUPPORTED_VERSION
    assert commit("a", epoch, knows=False, is_transactional=True) is ErrorCode.NONE
    assert commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1, is_transactional=True) is ErrorCode.NONE, "a producer outside of the group"
    assert commit("", -2, is_transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("b", -1, is_transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    older = commit("a", epoch - 1)
    orders = coordinator.topics.id_of("orders")
    assert older("orders", orders, 1) is ErrorCode.STALE_MEMBER_EPOCH, "it never had that one"
    assert older("orders", orders, 0) is ErrorCode.STALE_MEMBER_EPOCH, "it has it since this epoch"
    assert [
        group.check_fetch(*who) for who in ((None, -1), ("a", epoch), ("a", epoch - 1), ("b", epoch))
    ] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert group.check_fetch(None, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.check_delete() is ErrorCode.NON_EMPTY_GROUP
    assert group.check_offset_delete() is ErrorCode.NONE
    assert group.expires_offsets()
    listed = group.listed()
    assert tuple(listed) == (GROUP, "consumer", "Stable", "Consumer")
