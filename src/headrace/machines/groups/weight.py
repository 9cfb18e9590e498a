"""How much memory the members of a shard's groups take, as far as clients chose it: names, subscriptions,
assignments. A client may be gone long before its session is over.
"""

from __future__ import annotations

from headrace.base.limits import MEMBER_OVERHEAD_BYTES
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.shard import Shard


def weight_bytes(shard: Shard) -> int:
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
