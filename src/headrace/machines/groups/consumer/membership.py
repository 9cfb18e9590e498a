"""Lookup of the members of a consumer group: by member id, or by the instance id of a static member."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.errors import GroupError
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Member
from headrace.protocol.coordinator_records import Record
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


def check_room(machine: Groups, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Checks the size of the group; a static member that rejoins with a new id is not counted twice."""
    size_max = machine.settings.group_consumer_max_size
    if len(group.members) < size_max or member_id in group.members:
        return
    if instance_id is None or instance_id not in group.static_members:
        raise GroupError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {size_max} members already")


def known_member(group: ConsumerGroup, member_id: str) -> Member:
    member = group.members.get(member_id)
    if member is None:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {member_id!r}")
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
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id!r}")
    if member.member_id != member_id:
        message = f"the instance id {instance_id!r} belongs to member {member.member_id!r} now"
        raise GroupError(ErrorCode.FENCED_INSTANCE_ID, message)
    return member
