"""What the demo sees while it runs: events published, the group's lag, batches, windows; a sample per tick.

All of it is asked of the broker, by the same calls that `headrace group lag` and `headrace cluster sinks
list` make.
"""

import time
from dataclasses import dataclass
from typing import Self

from demo_counts import Counts
from demo_generator import Generator

import headrace
from headrace.client.admin.group_offsets import total_lag

GROUP = "ad-clicks"
SINK = "ad-clicks"
ANSWER_TIMEOUT_S = 30.0
SAMPLE_EVERY_S = 0.2


@dataclass(slots=True, frozen=True)
class Sample:
    """One look at everything."""

    at_s: float  # since the generator began
    published: int  # acknowledged by the broker
    lag: int  # published, and not yet in a batch that is done
    batch: int  # the last one that was committed; -1: none yet
    open_batch: int | None  # the one that tasks are writing at this moment
    windows: int  # pairs of ad and minute with a count


@dataclass(slots=True)
class Kill:
    victim: str
    at_s: float
    clock_ms: int  # what the generator's clock showed
    batch: int  # that was being written, or would have been next
    back_s: float = 0.0  # when it served, or counted, again


class Watch:
    """Samples since the generator began, however often one looks."""

    def __init__(self, servers: str, generator: Generator, counts: Counts) -> None:
        self.samples: list[Sample] = []
        self.last = Sample(0.0, 0, 0, -1, None, 0)
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

    def look(self) -> Sample:
        published = self._generator.acknowledged
        self._counts.read_on()
        lag = self._lag(published)
        batch, open_batch = self._batches()
        self.last = Sample(self.now_s, published, lag, batch, open_batch, self._counts.windows)
        if not self.samples or self.last.at_s - self.samples[-1].at_s >= SAMPLE_EVERY_S:
            self.samples.append(self.last)
        return self.last

    def has_read_all(self, group: str) -> bool:
        return total_lag(self._admin.group_lag(group)) == 0

    def _lag(self, published: int) -> int:
        """What is published and not committed; of a partition without a commit that is all of it."""
        lags = self._admin.lag_of_groups().get(GROUP)
        if lags is None and self.last.batch >= 0:
            return self.last.lag  # its coordinator is moving to another broker
        lags = lags or []
        return max(0, published - sum(lag.committed or 0 for lag in lags))

    def _batches(self) -> tuple[int, int | None]:
        """The last one that was committed, and the one that is being written."""
        for sink in self._admin.list_sinks():
            if sink.app_id == SINK:
                committed = -1 if sink.committed_batch_id is None else sink.committed_batch_id
                return committed, sink.batch_id if sink.open_attempts else None
        return self.last.batch, None  # none yet, or its coordinator is moving to another broker
