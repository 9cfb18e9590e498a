"""DescribeGroups: a classic group as administrators see it.

Version 6 has an error for a group that is not there; before, such a group was Dead.
"""

from __future__ import annotations

from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember

SAYS_NOT_FOUND_VERSION = 6


def described(group: ClassicGroup) -> DescribedGroup:
    """While it rebalances, no protocol is chosen."""
    is_stable = group.status is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.status.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_of(group.protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def unknown(group_id: str, version: int, reason: str) -> DescribedGroup:
    if version < SAYS_NOT_FOUND_VERSION:
        return DescribedGroup(group_id=group_id, group_state="Dead")
    return DescribedGroup(
        group_id=group_id,
        group_state="Dead",
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {reason}.",
    )
