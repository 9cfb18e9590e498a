"""Memory of the members of a shard's groups: what clients choose, such as subscriptions and assignments.

It counts until a member's session is over, which may be long after its client is gone.
"""

from __future__ import annotations

from headrace.base.limits import MEMBER_OVERHEAD_BYTES
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.shard import Shard


def shard_members_bytes(shard: Shard) -> int:
    total = 0
    for group in shard.groups.values():
        if isinstance(group, ClassicGroup):
            total += MEMBER_OVERHEAD_BYTES * (len(group.members) + len(group.pending))
            for member in group.members.values():
                total += len(member.assignment) + sum(len(metadata) for _, metadata in member.protocols)
        elif isinstance(group, ConsumerGroup):
            total += MEMBER_OVERHEAD_BYTES * len(group.members)
            for one in group.members.values():
                total += len(one.regex) + sum(map(len, one.topics))
                if one.classic is not None:
                    total += sum(len(protocol.metadata) for protocol in one.classic.supported_protocols)
    return total
