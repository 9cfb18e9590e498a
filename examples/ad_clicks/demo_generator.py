"""The generator of the demo: sample events, published by a clock that runs faster than ours.

It keeps all it published, for the truth is computed from that. Its producer is idempotent and waits for a
broker that is away: every event is in its topic once, whatever is killed.

The clock makes small steps and waits for acknowledgements after each: partitions stay within seconds of each
other on the generator's clock, as they do when that clock is ours. Rows that come later than that would be
too late for Spark's watermark.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

import headrace
from headrace.sample.clicks import Event, SampleClicks

DELIVERY_TIMEOUT_MS = 300_000  # longer than any broker of the demo is away
TURN_S = 0.05
STEP_MAX_S = 15.0  # of the generator's clock


class Generator:
    """Publishes on a thread of its own, `speed` event seconds per second, or none while it `is_held`."""

    def __init__(self, servers: str, clicks: SampleClicks, *, seconds: float, speed: float) -> None:
        self.clicks = clicks
        self.speed = speed
        self.seconds = seconds
        self.events: list[Event] = list(clicks.events(seconds))
        self.acknowledged = 0
        self.is_held = False
        self.error: BaseException | None = None
        self._producer = headrace.Producer(servers, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="generator")
        self._passed_s = 0.0  # on the generator's clock

    def start(self) -> None:
        self._thread.start()

    @property
    def clock_ms(self) -> int:
        """What the generator's clock shows."""
        return self.clicks.start_ms + round(self._passed_s * 1000)

    @property
    def is_done(self) -> bool:
        """Whether all events, save the closing ones, are in their topics."""
        return self.acknowledged >= len(self.events)

    @property
    def progress(self) -> float:
        return self.acknowledged / len(self.events)

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def publish_closing_events(self) -> None:
        """Publishes what makes the last windows close."""
        self._thread.join()
        last_ms = max(event.timestamp_ms for event in self.events)
        closing = list(self.clicks.closing_events(last_ms))
        self._send(closing)
        self.acknowledged += len(closing)

    def stop(self) -> None:
        self._is_stopping.set()
        self._producer.close(timeout=0)  # whoever waits for an acknowledgement is told that there is none
        if self._thread.ident is not None:
            self._thread.join()

    def _publish(self) -> None:
        looked_at = time.monotonic()
        try:
            while not self.is_done and not self._is_stopping.wait(TURN_S):
                before, looked_at = looked_at, time.monotonic()
                if not self.is_held:
                    step_s = min(STEP_MAX_S, (looked_at - before) * self.speed)
                    self._passed_s = min(self.seconds, self._passed_s + step_s)
                sent = self.acknowledged
                due = bisect_right(self.events, self.clock_ms, sent, key=attrgetter("timestamp_ms"))
                self._send(self.events[sent:due])
                self.acknowledged = due
        except headrace.ClientError as error:
            self.error = error

    def _send(self, events: Iterable[Event]) -> None:
        deliveries = [
            self._producer.send(event.topic, event.value, event.key, timestamp_ms=event.timestamp_ms)
            for event in events
        ]
        for delivery in deliveries:
            delivery.get()
