"""What a member of a classic group says to its coordinator."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.client.assignors.model import NO_GENERATION
from headrace.client.assignors.wire import LastAssignment, write_subscription
from headrace.client.cluster import TopicPartition
from headrace.client.connection import ByVersion
from headrace.client.membership.settings import GroupSettings
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PROTOCOL_TYPE = "consumer"
LEAVE_MANY_SINCE = 3  # before, LeaveGroup names one member
REASON_CHARACTERS_MAX = 255  # Java's; the broker logs it


class Generation(NamedTuple):
    """One rebalance's outcome for one member; without an id there is none, but perhaps a member id."""

    id: int = NO_GENERATION
    member_id: str = ""
    protocol: str = ""  # the assignor that the group chose


def join_request(
    settings: GroupSettings,
    generation: Generation,
    *,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    last: LastAssignment,
    reason: str | None,
) -> JoinGroupRequest:
    protocols = [
        JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=write_subscription(
                assignor,
                topics=topics,
                owned=owned,
                generation=generation.id,
                last=last,
                rack=settings.rack,
            ),
        )
        for assignor in settings.assignors
    ]
    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=int(settings.session_timeout_s * 1000),
        rebalance_timeout_ms=int(settings.max_poll_interval_s * 1000),
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=None if reason is None else reason[:REASON_CHARACTERS_MAX],
    )


def sync_request(
    settings: GroupSettings, generation: Generation, shares: list[SyncGroupRequestAssignment]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=generation.protocol,
        assignments=shares,
    )


def heartbeat_request(settings: GroupSettings, generation: Generation) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=settings.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
    )


def leave_request(settings: GroupSettings, generation: Generation, reason: str) -> ByVersion:
    def make(version: int) -> LeaveGroupRequest:
        if version < LEAVE_MANY_SINCE:
            return LeaveGroupRequest(group_id=settings.group_id, member_id=generation.member_id)
        member = MemberIdentity(member_id=generation.member_id, reason=reason[:REASON_CHARACTERS_MAX])
        return LeaveGroupRequest(group_id=settings.group_id, members=[member])

    return ByVersion(LeaveGroupRequest, make)
