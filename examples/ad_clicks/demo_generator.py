"""The generator of the demo: a world's events, published by a clock that runs faster than ours.

It keeps all it published, for the truth is computed from that. Its producer is idempotent and waits for a
broker that is away: every event is in its topic once, whatever is killed.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

import headrace
from headrace.sample.clicks import Event, World

DELIVERY_TIMEOUT_MS = 300_000  # longer than any broker of the demo is away
TURN_S = 0.05


class Generator:
    """Publishes on a thread of its own, `speed` event seconds per second, or none while it `is_held`."""

    def __init__(self, servers: str, world: World, *, seconds: float, speed: float) -> None:
        self.world = world
        self.speed = speed
        self.seconds = seconds
        self.events: list[Event] = list(world.events(seconds))
        self.acknowledged = 0
        self.is_held = False
        self.error: BaseException | None = None
        self._producer = headrace.Producer(servers, linger_ms=20, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="generator")
        self._passed_s = 0.0  # on the world's clock

    def start(self) -> None:
        self._thread.start()

    @property
    def clock_ms(self) -> int:
        """What the world's clock shows."""
        return self.world.start_ms + round(self._passed_s * 1000)

    @property
    def is_done(self) -> bool:
        """Whether all events, save those that close the world, are in their topics."""
        return self.acknowledged >= len(self.events)

    @property
    def progress(self) -> float:
        return self.acknowledged / len(self.events)

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def close_world(self) -> None:
        """Publishes what makes the last windows close."""
        self._thread.join()
        last_ms = max(event.timestamp_ms for event in self.events)
        self._send(self.world.closing_events(last_ms))
        self._producer.flush()

    def stop(self) -> None:
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.close(timeout=0)

    def _publish(self) -> None:
        sent = 0
        looked_at = time.monotonic()
        try:
            while sent < len(self.events) and not self._is_stopping.wait(TURN_S):
                before, looked_at = looked_at, time.monotonic()
                if not self.is_held:
                    self._passed_s = min(self.seconds, self._passed_s + (looked_at - before) * self.speed)
                due = bisect_right(self.events, self.clock_ms, sent, key=attrgetter("timestamp_ms"))
                self._send(self.events[sent:due])
                sent = due
        except headrace.ClientError as error:
            self.error = error

    def _send(self, events: Iterable[Event]) -> None:
        for event in events:
            delivery = self._producer.send(
                event.topic, event.value, event.key, timestamp_ms=event.timestamp_ms
            )
            delivery.add_callback(self._count)
            delivery.add_errback(self._fail)

    def _count(self, _: object) -> None:
        self.acknowledged += 1  # only the producer's thread is here

    def _fail(self, error: BaseException) -> None:
        self.error = error
