"""Limits on the memory of group members: subscription and assignment of each one, and of all together.

To count every member at every join would take long. So the sizes of requests are added up. When the sum is
over the limit, the members are counted, at most once a second.
"""

from typing import TYPE_CHECKING

from headrace.base.limits import (
    MEMBER_BYTES_MAX,
    MEMBER_OVERHEAD_BYTES,
    MEMBER_STAYS_BYTES_MAX,
    MEMBERS_BYTES_MAX,
)
from headrace.base.time import Now
from headrace.node.coordinators.shard import Shard
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.coordinators.groups import GroupCoordinator

COUNTED_EVERY_MS = 1_000


class MemberMemory:
    __slots__ = ("_coordinator", "_count_again_at", "bytes")

    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._count_again_at = 0.0
        self.bytes = 0  # never less than there are, since the last count

    def refusal(
        self, now: Now, shard: Shard, group_id: str, member_id: str, sizes: list[int]
    ) -> ErrorCode | None:
        """Why what a member brings along is not taken; None: it is, and counts. `sizes` are bytes, for each
        member that it speaks of.
        """
        if sizes and max(sizes) > MEMBER_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        weight = sum(sizes) + MEMBER_OVERHEAD_BYTES * len(sizes)
        if self.bytes + weight > MEMBERS_BYTES_MAX and now.mono >= self._count_again_at:
            self._count_again_at = now.after_ms(COUNTED_EVERY_MS)
            self.bytes = self._coordinator.members_bytes()
        if self.bytes + weight > MEMBERS_BYTES_MAX and not (
            sum(sizes) <= MEMBER_STAYS_BYTES_MAX and is_member(shard, group_id, member_id)
        ):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        self.bytes += weight
        return None


def is_member(shard: Shard, group_id: str, member_id: str) -> bool:
    group = shard.machine.groups.get(group_id)
    return group is not None and member_id in group.members
