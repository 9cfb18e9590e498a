"""Replies to which several shards contribute: lists, descriptions, and requests about many groups."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.base.time import Instant, Now
from headrace.node.commit_queue import is_led_in
from headrace.node.coordinators.shard import Shard
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.errors import ErrorCode


def when_all_committed(
    waiting: Waiting,
    request: Request,
    shards: Iterable[Shard[Any]],
    reply: Any,
    refused: Callable[[ErrorCode], Any],
) -> Any:
    """A reply to which several shards contribute: at once if each has committed what it had replayed, and
    otherwise when it has.
    """
    uncommitted = [shard for shard in shards if not shard.is_committed]
    return CombinedReply(waiting, request, uncommitted, reply, refused) if uncommitted else reply


class CombinedReply(Parked):
    __slots__ = ("_refused", "_reply", "_uncommitted", "_until")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        uncommitted: Sequence[Shard[Any]],
        reply: Any,
        refused: Callable[[ErrorCode], Any],
    ) -> None:
        super().__init__(waiting, request)
        # with the leader epoch and the end offset that are waited for
        self._uncommitted = [(shard.partition, shard.epoch, shard.end_offset) for shard in uncommitted]
        self._until = request.now.after_ms(uncommitted[0].commit_timeout_ms)
        self._reply = reply
        self._refused = refused
        for partition in {shard.partition: None for shard in uncommitted}:
            self.wait_for(partition)

    def deadline(self) -> Instant:
        return self._until

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        for partition, epoch, end in self._uncommitted:
            if not is_led_in(partition, epoch) or partition.is_offline:
                return self._refused(ErrorCode.NOT_COORDINATOR)
            if partition.high_watermark < end:
                return self._refused(ErrorCode.COORDINATOR_NOT_AVAILABLE) if is_expired else None
        return self._reply
