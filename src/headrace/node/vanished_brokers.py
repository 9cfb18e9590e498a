"""Brokers whose process has ended: what clients are told until they know the new leaders.

When a broker ends, its clients ask the other brokers for the new leaders at once, milliseconds before the
controller has fenced it. A client that gets the old leader asks again only after up to a second. So an answer
that would name a leader whose connection to this broker has just broken waits for a moment: until the
metadata name another leader, or the broker answers again.

A fenced broker stays in the list of brokers for a while. librdkafka forgets a broker that is not in the list,
together with the partitions that the same answer moves to another broker, and looks for these again a second
later. Kafka's controller notices a dead broker only when its session ends. So Kafka lists it, also as a
leader, for nine seconds.
"""

from collections.abc import Callable, Iterable
from typing import Any

from headrace.base.time import Instant, Now
from headrace.machines.metadata.image import BrokerState, ClusterImage
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waitable, Waiting
from headrace.protocol.metadata_records import BrokerRegistrationChangeRecord

# How long it may take until another leader is elected, also by controllers that have to elect one of
# themselves first. Nobody waits longer for it.
DOUBT_SECONDS = 1.0

# By then, clients that are at work have asked and know the new leaders. Not longer: who asks all brokers for
# something, such as their groups, asks this one, too.
TOLD_SECONDS = 3.0


class VanishedBrokers(Waitable):
    __slots__ = ("_fenced", "_lost", "_waiting")

    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self._waiting = waiting
        self._lost: dict[int, Instant] = {}  # since when a broker does not answer
        self._fenced: dict[int, tuple[int, Instant]] = {}  # broker epoch, and when the metadata said it

    # --- what is seen of them ----------------------------------------------------------------------------

    def lost(self, now: Now, broker: int) -> None:
        """Its connection broke, or nobody listens there."""
        self._lost.setdefault(broker, now.mono)

    def found(self, broker: int) -> None:
        """It has answered."""
        if self._lost.pop(broker, None) is not None:
            self._waiting.wake(self)

    def committed(self, now: Now, records: Iterable[Any]) -> None:
        for record in records:
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced > 0:
                self._lost.pop(record.broker_id, None)
                self._fenced[record.broker_id] = record.broker_epoch, now.mono

    # --- what clients are told ---------------------------------------------------------------------------

    def told(self, now: Now, image: ClusterImage) -> list[BrokerState]:
        """The brokers to name: those that are not fenced, and those that have just been."""
        brokers = image.live_brokers()
        if self._fenced:
            self._fenced = {
                id: (epoch, at) for id, (epoch, at) in self._fenced.items() if now.mono < at + TOLD_SECONDS
            }
            brokers += [state for id in self._fenced if (state := self._just_fenced(image, id)) is not None]
            brokers.sort(key=lambda broker: broker.id)
        return brokers

    def _just_fenced(self, image: ClusterImage, id: int) -> BrokerState | None:
        """None: it is back, or has said goodbye."""
        state = image.brokers.get(id)
        if state is None or state.epoch != self._fenced[id][0] or not state.is_fenced:
            return None
        return None if state.in_controlled_shutdown else state

    def doubts(self, now: Now, leaders: Iterable[int]) -> bool:
        """Whether one of these leaders may be gone, and it will soon be known who is the next."""
        lost = self._lost
        return bool(lost) and any(
            (since := lost.get(leader)) is not None and now.mono < since + DOUBT_SECONDS for leader in leaders
        )

    def doubts_end(self) -> Instant:
        return Instant(max(self._lost.values()) + DOUBT_SECONDS)


class AwaitedLeaders(Parked):
    """Waits until no leader that the answer would name is in doubt."""

    __slots__ = ("_at", "_leaders", "_respond", "_vanished")

    def __init__(
        self,
        vanished: VanishedBrokers,
        metadata: MetadataLog,
        waiting: Waiting,
        request: Request,
        leaders: Callable[[Request], Iterable[int]],
        respond: Callable[[Request], Any],
    ) -> None:
        super().__init__(waiting, request)
        self._vanished = vanished
        self._leaders = leaders
        self._respond = respond
        self._at = vanished.doubts_end()
        self.wait_for(metadata)
        self.wait_for(vanished)

    def deadline(self) -> Instant | None:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        if not is_expired and self._vanished.doubts(now, self._leaders(self.request)):
            return None
        return self._respond(self.request)
