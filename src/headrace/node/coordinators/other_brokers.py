"""Requests of coordinators to other brokers: questions to the same broker share one request.

The questions of one call of the node are sent together at its end. While several requests to a broker are
under way, new questions to it wait for one of the answers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from headrace.base.time import Now
from headrace.node.metadata_log import MetadataLog
from headrace.node.peers import Peer, Unanswered
from headrace.node.ports import Ports
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Waitable, Waiter
from headrace.protocol.notation import Request

T = TypeVar("T")

UNDER_WAY_MAX = 5  # requests to one broker
ITEMS_MAX = 1_000  # in one request: some 100 KB


class OtherBrokers(Waiter, Generic[T]):
    """Asks other brokers about items of one kind, on a lane of their own."""

    __slots__ = (
        "_answered",
        "_lane",
        "_make",
        "_metadata",
        "_news",
        "_peers",
        "_queued",
        "_settings",
        "_timeout_ms",
        "_under_way",
        "_waiting",
    )

    def __init__(
        self,
        lane: str,
        timeout_ms: int,
        make: Callable[[list[T]], Request],
        answered: Callable[[Now, list[T], Any], None],
        metadata: MetadataLog,
        settings: LiveSettings,
        ports: Ports,
    ) -> None:
        super().__init__()
        self._lane = lane
        self._timeout_ms = timeout_ms
        self._make = make  # the request for these items
        self._answered = answered  # takes them back, with the response or an Unanswered
        self._metadata = metadata
        self._settings = settings
        self._peers = ports.peers
        self._waiting = ports.waiting
        self._queued: dict[int, list[T]] = {}  # by broker
        self._under_way: dict[int, int] = {}  # requests, by broker
        self._news = Waitable()
        self.wait_for(self._news)

    def ask(self, broker: int, item: T) -> None:
        """The item comes back with an answer in a later call of the node, or at the end of this one if the
        broker has no address.
        """
        self._queued.setdefault(broker, []).append(item)
        self._waiting.wake(self._news)

    def woken(self, now: Now) -> None:
        for broker in list(self._queued):
            self._send(now, broker)

    def _send(self, now: Now, broker: int) -> None:
        while (queued := self._queued.get(broker)) and self._under_way.get(broker, 0) < UNDER_WAY_MAX:
            items, rest = queued[:ITEMS_MAX], queued[ITEMS_MAX:]
            if rest:
                self._queued[broker] = rest
            else:
                del self._queued[broker]
            peer = self._peer(broker)
            if peer is None:
                self._answered(now, items, Unanswered.REFUSED)
                continue
            self._under_way[broker] = self._under_way.get(broker, 0) + 1
            then = partial(self._ended, broker, items)
            self._peers.send(now, peer, self._lane, self._make(items), self._timeout_ms, then)

    def _peer(self, broker: int) -> Peer | None:
        listener = self._settings.current.inter_broker_listener_name
        endpoint = self._metadata.image.endpoint(broker, listener)
        return None if endpoint is None else Peer(broker, endpoint.host, endpoint.port)

    def _ended(self, broker: int, items: list[T], now: Now, answer: Any) -> None:
        self._under_way[broker] -= 1
        if not self._under_way[broker]:
            del self._under_way[broker]
        try:
            self._answered(now, items, answer)
        finally:
            self._send(now, broker)
