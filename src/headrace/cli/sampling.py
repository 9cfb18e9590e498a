"""The live sample of `headrace up --sample`: the last half hour at once, then events in real time.

The events come from headrace.sample and are published when their timestamps are due. Malformed values, which
headrace.sample can generate, are left out, so that the first query of a new user does not fail.
"""

import re
from types import TracebackType
from typing import NamedTuple, Self

import click

from headrace.base.moments import BeforeEnd
from headrace.cli.administer import administer
from headrace.cli.reading import reader
from headrace.cli.writing import Writer
from headrace.client.clock import clock, wall_ms
from headrace.client.cluster import TopicPartition
from headrace.client.errors import TimedOut
from headrace.client.threads.admin import Admin
from headrace.client.threads.ranges import ends_of, resolve
from headrace.sample.clicks import CLICKS, IMPRESSIONS, SampleClicks

TOPICS = (IMPRESSIONS, CLICKS)
PARTITIONS = 3
# A click may be counted until 12 minutes after its impression: there is to be something to count at once.
HISTORY_MS = 30 * 60 * 1000
TIMEOUT_S = 30.0
LOOKED_BACK = 100  # records of a partition; somebody may have added some of their own
# At 20 impressions a second a day is some 400 MB. Only whole segments are deleted, hence one for each hour.
CONFIGS = {"retention.ms": str(24 * 60 * 60 * 1000), "segment.ms": str(60 * 60 * 1000)}


class Progress(NamedTuple):
    """How far an earlier start got: the last impression's number and when it was published."""

    impression: int
    timestamp_ms: int


NOTHING_YET = Progress(0, 0)


class ClicksSample:
    """Publishes ads that are shown and clicked; `with` finds out where the last run ended.

    The last impression of each partition tells, by its id and timestamp, how far the sample got, even if it
    was killed. The next start continues after the latest of them with the next number, so that no id is used
    twice. It publishes the events of the time in between, at most those of the usual history. Clicks that
    were not published yet when the last run ended are lost.
    """

    def __init__(self, bootstrap: str, impressions_per_s: float) -> None:
        self._bootstrap = bootstrap
        self._impressions_per_s = impressions_per_s

    def __enter__(self) -> Self:
        with administer(self._bootstrap, TIMEOUT_S) as admin:
            _create_topics(admin)
            progress = _progress(admin, self._bootstrap)
        sample = SampleClicks(
            seed=progress.impression,
            start_ms=max(progress.timestamp_ms + 1, wall_ms() - HISTORY_MS),
            first_impression=progress.impression + 1,
            impressions_per_s=self._impressions_per_s,
            malformed_rate=0,
        )
        self._events = sample.events()
        self._next = next(self._events)
        self._writer = Writer(self._bootstrap, TIMEOUT_S)
        for topic in TOPICS:  # now: the first click may be due when the node is gone, and would wait for it
            self._writer.find(topic)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def publish(self) -> None:
        """Sends all that is due by now."""
        now_ms = wall_ms()
        while self._next.timestamp_ms <= now_ms:
            topic, key, value, timestamp_ms = self._next
            self._writer.send(topic, value, key=key, timestamp_ms=timestamp_ms)
            self._next = next(self._events)

    def flush(self) -> None:
        """Returns when all that was sent can be read."""
        self._writer.flush()


def _create_topics(admin: Admin) -> None:
    missing = set(TOPICS) - {topic.name for topic in admin.list_topics()}
    if missing == {IMPRESSIONS}:  # it is always the first to be made
        raise click.ClickException(
            f"topic {CLICKS} exists already and is not from the sample. Choose another directory with --data."
        )
    for name in TOPICS:
        if name in missing:
            admin.create_topic(name, partitions=PARTITIONS, configs=CONFIGS)


def _progress(admin: Admin, bootstrap: str) -> Progress:
    count = len(admin.describe_topic(IMPRESSIONS).partitions)
    partitions = [TopicPartition(IMPRESSIONS, number) for number in range(count)]
    starts = resolve(admin, partitions, BeforeEnd(LOOKED_BACK))
    ends = ends_of(admin, partitions)
    unread = {at: starts[at] for at in partitions if starts[at] < ends[at]}
    if not unread:
        return NOTHING_YET
    found = NOTHING_YET
    give_up_at = clock() + TIMEOUT_S
    with reader(bootstrap, TIMEOUT_S) as consumer:
        consumer.assign(unread)
        while any(consumer.position(at) < ends[at] for at in unread):
            if clock() > give_up_at:
                raise TimedOut(f"the end of topic {IMPRESSIONS} could not be read within {TIMEOUT_S:g} s")
            for message in consumer.poll(0.1):
                if impression := re.fullmatch(rb"i-(\d+)", message.key or b""):
                    found = max(found, Progress(int(impression[1]), message.timestamp_ms))
    if found == NOTHING_YET:
        raise click.ClickException(
            f"topic {IMPRESSIONS} exists already and is not from the sample. Choose another directory with "
            "--data."
        )
    return found
