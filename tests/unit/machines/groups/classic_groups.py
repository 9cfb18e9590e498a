"""A classic group brought into each of its states, with as few words as a test wants to say."""

from __future__ import annotations

from typing import Any

from harness.group_shard import GroupShard
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS, REBALANCE_MS = 10_000, 30_000
INITIAL_DELAY_MS = 3_000


def join_request(member_id: str = "", **changes: Any) -> JoinGroupRequest:
    """Of version 3 at most, unless it has a member id: members enter without a second round."""
    words: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    }
    return JoinGroupRequest(**words | changes)


def sync_request(member_id: str, generation: int, **shares: bytes) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=share) for each, share in shares.items()
        ],
    )


def heartbeat_request(member_id: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)


def leave_request(*member_ids: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=each) for each in member_ids])


def commit_request(
    member_id: str = "", generation: int = -1, topic: str = "t", **offsets: Any
) -> OffsetCommitRequest:
    words: dict[str, Any] = {"committed_offset": 5, "committed_metadata": "note"} | offsets
    partition = OffsetCommitRequestPartition(partition_index=0, **words)
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def take_answers(shard: GroupShard) -> dict[Any, Any]:
    return dict(shard.take_answers())


def joined(shard: GroupShard, count: int = 2, **changes: Any) -> list[str]:
    """Members of the first generation, which the first of them leads; nobody has synced."""
    for number in range(count):
        assert shard.ask(join_request(**changes), 3, f"c{number}", number) is None
    # Who comes during the delay makes it longer, by one more.
    shard.advance(2 * INITIAL_DELAY_MS)
    answers = take_answers(shard)
    return [answers[number].member_id for number in range(count)]


def stable(shard: GroupShard, count: int = 2, **changes: Any) -> list[str]:
    """The same, and each has `share-<number>`."""
    members = joined(shard, count, **changes)
    shares = {member: f"share-{number}".encode() for number, member in enumerate(members)}
    for member in reversed(members):
        assert shard.ask(sync_request(member, 1, **shares), 3, ticket=member) is None
    assert {ticket: answer.assignment for ticket, answer in take_answers(shard).items()} == shares
    return members
