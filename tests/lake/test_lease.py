"""Retention that waits for the table: a copier that is down loses nothing before the cap."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from harness.broker import Broker
from harness.wait import eventually
from lake.tables import Lake

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
}
LEASED = {"retention.ms": "1", "segment.ms": "1", "headrace.retention.waits.for": "lake-clicks"}
HOUR_MS = 3_600_000


@pytest.fixture
def hasty(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """A broker that looks after its logs all the time."""
    with new_broker(SETTINGS) as running:
        yield running


def earliest(admin: headrace.Admin, topic: str) -> int | None:
    at = headrace.TopicPartition(topic, 0)
    return admin.list_offsets({at: headrace.OffsetAt.EARLIEST})[at].offset


def test_a_copier_that_was_down_finds_everything_and_past_the_cap_the_loss_is_told(
    hasty: Broker, tmp_path: Path
) -> None:
    now_ms = time.time_ns() // 1_000_000
    with headrace.Admin(hasty.bootstrap) as admin, headrace.Producer(hasty.bootstrap) as producer:
        admin.create_topic("free", partitions=1, configs={"retention.ms": "1", "segment.ms": "1"})
        admin.create_topic("clicks", partitions=1, configs=LEASED)

        def write(topic: str, first: int, count: int) -> None:
            for number in range(first, first + count):
                producer.send(topic, b"%d" % number, timestamp_ms=now_ms - HOUR_MS + number).get()

        lake = Lake(tmp_path / "table", "clicks", admin, hasty.bootstrap)
        write("clicks", 0, 10)
        assert lake.copy().rows == 10
        eventually(lambda: earliest(admin, "clicks"), 10)
        write("clicks", 10, 10)  # and the copier is down
        write("free", 0, 10)
        eventually(lambda: earliest(admin, "free"), 10)
        eventually(lambda: "retention_waits" in hasty.output(), True)
        assert earliest(admin, "clicks") == 10
        assert lake.copy().rows == 10
        assert [row[1] for row in lake.rows()] == list(range(20))
        eventually(lambda: earliest(admin, "clicks"), 20)

        write("clicks", 20, 7)
        admin.alter_config(
            headrace.Resource.topic("clicks"), {"headrace.retention.waits.max.ms": str(HOUR_MS // 2)}
        )
        eventually(lambda: earliest(admin, "clicks"), 27)
        eventually(lambda: "last_offset=26" in hasty.output(), True)
        told = [line for line in hasty.output().splitlines() if "records_lost_to_group" in line]
        first = min(int(found) for line in told for found in re.findall(r"first_offset=(\d+)", line))
        last = max(int(found) for line in told for found in re.findall(r"last_offset=(\d+)", line))
        assert (first, last) == (20, 26)
        assert all("lake-clicks" in line for line in told)
        assert sum(int(found) for line in told for found in re.findall(r" offsets=(\d+)", line)) == 7
        copied = lake.copy(allows_loss=True)
        assert [(span.start, span.end) for span in copied.lost] == [(20, 27)]
