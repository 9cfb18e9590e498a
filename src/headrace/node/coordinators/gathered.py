"""Replies that several shards had a part in: true once each has committed what it had replayed."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.base.time import Instant, Now
from headrace.node.coordinators.shard import Shard
from headrace.node.parking import Parked
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.node import Node


def when_all_committed(
    node: "Node",
    request: Request,
    shards: Iterable[Shard],
    reply: Any,
    refused: Callable[[ErrorCode], Any],
) -> Any:
    """The reply at once when all that it speaks of is committed, and otherwise when it is."""
    uncommitted = [(shard.partition, shard.end_offset) for shard in shards if not shard.is_committed]
    return Gathered(node, request, uncommitted, reply, refused) if uncommitted else reply


class Gathered(Parked):
    __slots__ = ("_refused", "_reply", "_uncommitted")

    def __init__(
        self,
        node: "Node",
        request: Request,
        uncommitted: list[tuple[Partition, int]],
        reply: Any,
        refused: Callable[[ErrorCode], Any],
    ) -> None:
        super().__init__(node, request)
        self._uncommitted = uncommitted
        self._reply = reply
        self._refused = refused
        for partition in {partition: None for partition, _ in uncommitted}:
            self.wait_for(partition)

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        for partition, end in self._uncommitted:
            if partition.is_offline or partition.is_deleted:
                return self._refused(ErrorCode.NOT_COORDINATOR)
            if partition.leader.high_watermark < end:
                return None
        return self._reply
