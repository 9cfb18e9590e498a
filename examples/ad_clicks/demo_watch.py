"""What the demo sees while it runs: events published, the group's lag, batches, windows; a sample per tick.

All of it is asked of the broker, by the same calls that `headrace group lag` and `headrace cluster sinks
list` make. While the broker is away the last answers stand.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from demo_counts import Counts
from demo_generator import Generator

import headrace
from headrace.client.administration.lag import total_lag

GROUP = "ad-clicks"
SINK = "ad-clicks"
ANSWER_TIMEOUT_S = 5.0
GLANCE_S = 0.02


@dataclass(slots=True, frozen=True)
class Sample:
    """One look at everything."""

    at_s: float  # since the generator began
    published: int  # acknowledged by the broker
    lag: int  # published, and not yet in a batch that is done
    batch: int  # the last one that was committed; -1: none yet
    windows: int  # pairs of ad and minute with a count


@dataclass(slots=True)
class Kill:
    victim: str
    at_s: float
    clock_ms: int  # what the world's clock showed
    batch: int  # that was being written, or would have been next
    back_s: float = 0.0  # when it served, or counted, again


class Watch:
    """Samples since the generator began; `is_blind` while the broker is away."""

    def __init__(self, servers: str, generator: Generator, counts: Counts) -> None:
        self.samples: list[Sample] = []
        self.is_blind = False
        self._generator = generator
        self._counts = counts
        self._admin = headrace.Admin(servers).within(ANSWER_TIMEOUT_S)
        self._began_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_at

    @property
    def last(self) -> Sample:
        return self.samples[-1] if self.samples else Sample(0.0, 0, 0, -1, 0)

    def look(self) -> Sample:
        before = self.last
        lag, batch = before.lag, before.batch
        published = self._generator.acknowledged
        if not self.is_blind:
            lag, batch = self._lag(published), self._batch()
            self._counts.read_on()
        sample = Sample(self.now_s, published, lag, max(batch, before.batch), self._counts.windows)
        self.samples.append(sample)
        return sample

    def await_open_batch(self, timeout_s: float) -> int:
        """Until tasks are writing, or for so long; the number of the batch that a kill would hit."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            for sink in self._admin.list_sinks():
                if sink.app_id == SINK and sink.open_attempts and sink.batch_id is not None:
                    return sink.batch_id
            time.sleep(GLANCE_S)
        return self._batch() + 1

    @contextmanager
    def blind(self) -> Iterator[None]:
        self.is_blind = True
        try:
            yield
        finally:
            self.is_blind = False

    def _lag(self, published: int) -> int:
        """Before a group's first commit it is behind by everything."""
        lags = self._admin.lag_of_groups().get(GROUP)
        return total_lag(lags) if lags else published

    def _batch(self) -> int:
        committed = [sink.committed_batch_id for sink in self._admin.list_sinks() if sink.app_id == SINK]
        return -1 if not committed or committed[0] is None else committed[0]
