"""Producer ids, assigned from blocks that the active controller gives to this broker.

A block is a metadata record, so no id is assigned twice, even after a restart: the rest of the last block is
not used. The next block is asked for before the present one ends.
"""

from collections.abc import Callable
from typing import Any

from headrace.base.ids import ProducerId
from headrace.base.time import Instant, Now
from headrace.node.broker_lifecycle import BrokerLifecycle
from headrace.node.controller_channel import ControllerChannel
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waitable, Waiting
from headrace.protocol.errors import ErrorCode

# The next block is asked for when so few ids of this one are left.
IDS_LEFT_MIN = 100

WAIT_MS_MAX = 5_000  # for a block: then the client is told to try again


class NotGrantedYet(Exception):
    """The block that the next id comes from is not there yet."""


class ProducerIds(Waitable):
    """Requests wait for it that need an id of a block that is not there yet."""

    __slots__ = (
        "_broker_id",
        "_channel",
        "_end",
        "_is_asking",
        "_lifecycle",
        "_next",
        "_next_block",
        "_waiting",
    )

    def __init__(
        self, broker_id: int, lifecycle: BrokerLifecycle, channel: ControllerChannel, waiting: Waiting
    ) -> None:
        super().__init__()
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self._channel = channel
        self._waiting = waiting
        self._next = 0
        self._end = 0
        self._next_block = range(0)
        self._is_asking = False

    @property
    def blocks(self) -> tuple[range, ...]:
        """The ids that are there to be given."""
        begun, next_block = range(self._next, self._end), self._next_block
        if begun:
            return (begun, next_block) if next_block else (begun,)
        return (next_block,) if next_block else ()

    def take(self, now: Now) -> ProducerId | None:
        """A fresh id; None: there will be some in a moment."""
        if self._next == self._end:
            self._next, self._end = self._next_block.start, self._next_block.stop
            self._next_block = range(0)
        self.prepare(now)
        if self._next == self._end:
            return None
        taken = ProducerId(self._next)
        self._next += 1
        return taken

    def prepare(self, now: Now) -> None:
        """See to it that there is an id to give, soon."""
        if self._is_asking or self._next_block or self._end - self._next > IDS_LEFT_MIN:
            return
        from headrace.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        self._is_asking = True
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._lifecycle.epoch)
        self._channel.send(now, request, self._granted)

    def _granted(self, now: Now, response: Any) -> None:
        self._is_asking = False
        if response.error_code == ErrorCode.NONE:
            start = response.producer_id_start
            self._next_block = range(start, start + response.producer_id_len)
        self._waiting.wake(self)

    @property
    def is_asking(self) -> bool:
        return self._is_asking

    def give_back(self, producer_id: ProducerId) -> None:
        """Nobody has seen the id that was taken last."""
        if producer_id == self._next - 1:
            self._next = producer_id

    def source(self, now: Now) -> "IdSource":
        """What gives an id to a coordinator that may or may not need one."""
        return IdSource(self, now)


class IdSource:
    __slots__ = ("_ids", "_now", "_taken")

    def __init__(self, ids: ProducerIds, now: Now) -> None:
        self._ids = ids
        self._now = now
        self._taken: ProducerId | None = None

    def __call__(self) -> ProducerId:
        """NotGrantedYet when there is none that may be told at once; in a moment there may be."""
        self._taken = self._ids.take(self._now)
        if self._taken is None:
            raise NotGrantedYet
        return self._taken

    def give_back(self) -> None:
        """The decision was undone. Clients that are refused come back many times a second, and each block of
        ids is a record of the metadata.
        """
        if self._taken is not None:
            self._ids.give_back(self._taken)
            self._taken = None


class AwaitedId(Parked):
    """Waits for a block of producer ids."""

    __slots__ = ("_ids", "_make", "_refuse")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        ids: ProducerIds,
        make: Callable[[ProducerId], Any],
        refuse: Callable[[], Any],
    ) -> None:
        super().__init__(waiting, request)
        self._ids = ids
        self._make = make
        self._refuse = refuse
        self.wait_for(ids)

    def deadline(self) -> Instant | None:
        return self.request.now.after_ms(WAIT_MS_MAX)

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        taken = None if is_expired else self._ids.take(now)
        if taken is not None:
            return self._make(taken)
        # asking again after a refusal is left to the client
        return self._refuse()
