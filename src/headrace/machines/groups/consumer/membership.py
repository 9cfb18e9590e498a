"""Who is who in a group: by member id, or by the instance id that outlives it."""

from __future__ import annotations

from dataclasses import replace

from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.refusal import Refused
from headrace.machines.groups.shard import Shard
from headrace.protocol.coordinator_records import Record
from headrace.protocol.errors import ErrorCode


def check_room(shard: Shard, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """A static member that comes back under a new id takes up no more room than before."""
    size_max = shard.settings.group_consumer_max_size
    if len(group.members) < size_max or member_id in group.members:
        return
    if instance_id is None or instance_id not in group.static_members:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {size_max} members already")


def known_member(group: ConsumerGroup, member_id: str) -> Member:
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {member_id!r}")
    return member


def take_over(group: ConsumerGroup, former: Member, member_id: str, written: list[Record]) -> Member:
    """The member under its new id, with all that it had under the former one."""
    member = replace(former, member_id=member_id, epoch=0, previous_epoch=0)
    written += records.member_gone(group.group_id, former.member_id)
    written.append(records.member_metadata(group.group_id, member))
    written.append(records.member_target(group.group_id, member_id, group.targets.get(former.member_id, {})))
    written.append(records.current_assignment(group.group_id, member))
    return member


def static_member_of(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id!r}")
    if member.member_id != member_id:
        message = f"the instance id {instance_id!r} belongs to member {member.member_id!r} by now"
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, message)
    return member
