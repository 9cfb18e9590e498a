"""Replies to requests that change metadata: they wait until the change is committed and brokers know it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.base.time import Instant, Now
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiting

if TYPE_CHECKING:
    from headrace.node.metadata_log import MetadataLog

# How long the answer to a change waits for brokers that are slow to apply it. A broker that has ended is
# fenced and not awaited; one that is stopped or cut off costs every change this much until its session ends.
KNOWN_MS_MAX = 500


class CommittedReply(Parked):
    """Waits until the metadata log is committed up to `offset`. `reply` is the message, or makes it then.

    It has no deadline: the change is made, and either it is committed, or this node loses the right to decide
    and cannot know what becomes of it.
    """

    __slots__ = ("_epoch", "_is_for_all", "_metadata", "_reply", "offset")

    def __init__(
        self,
        waiting: Waiting,
        metadata: "MetadataLog",
        request: Request,
        offset: int,
        reply: Any | Callable[[Now], Any],
        *,
        is_for_all: bool = False,
    ) -> None:
        super().__init__(waiting, request)
        self._metadata = metadata
        self.offset = offset
        self._is_for_all = is_for_all  # all live brokers have to know the change, too
        self._epoch = metadata.deciding_epoch
        self._reply = reply
        self.wait_for(metadata)

    @property
    def planned(self) -> Any:
        """The reply when the change is committed."""
        return self._reply

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        if self._metadata.deciding_epoch != self._epoch:
            from headrace.node.forwarding import ask_the_next

            return ask_the_next(now, self)
        metadata, offset = self._metadata, self.offset
        if metadata.committed_offset < offset:
            return None
        if self._is_for_all and not metadata.is_known(offset):
            self.hand_over(KnownReply(self.waiting, metadata, self.request, now, offset, self._reply))
            return None
        return self._reply(now) if callable(self._reply) else self._reply


class KnownReply(Parked):
    """The reply to a change that is committed: it waits until all live brokers have applied it, and not for
    long.
    """

    __slots__ = ("_metadata", "_offset", "_reply", "_until")

    def __init__(
        self,
        waiting: Waiting,
        metadata: "MetadataLog",
        request: Request,
        now: Now,
        offset: int,
        reply: Any | Callable[[Now], Any],
    ) -> None:
        super().__init__(waiting, request)
        self._metadata = metadata
        self._offset = offset
        self._reply = reply
        self._until = now.after_ms(KNOWN_MS_MAX)
        self.wait_for(metadata)  # a broker may be fenced, or this node may resign
        self.wait_for(metadata.applied)

    @property
    def planned(self) -> Any:
        return self._reply

    def deadline(self) -> Instant | None:
        return self._until

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        metadata = self._metadata
        if not is_expired and metadata.deciding_epoch >= 0 and not metadata.is_known(self._offset):
            return None
        return self._reply(now) if callable(self._reply) else self._reply
