"""The ad-click example, loaded from where it lies, and what tests of it do with topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from importlib import import_module
from pathlib import Path

import headrace
from harness.committed import committed
from headrace.sample.clicks import CLICKS, IMPRESSIONS, Event

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ad_clicks"
sys.path.append(str(EXAMPLE))  # its modules import each other by their bare names, as programs do

pipeline = import_module("pipeline")
steps = import_module("steps")
to_database_program = import_module("to_database")

Counts = dict[
    tuple[str, int], int
]  # by ad and minute (its first ms), as headrace.sample.clicks.truth has them


def create_sources(servers: str) -> None:
    with headrace.Admin(servers) as admin:
        for topic in (CLICKS, IMPRESSIONS):
            admin.create_topic(topic, partitions=3)


def publish(servers: str, events: Iterable[Event]) -> None:
    with headrace.Producer(servers) as producer:
        for event in events:
            producer.send(event.topic, event.value, event.key, timestamp_ms=event.timestamp_ms)


def counts_in(servers: str) -> Counts:
    """What the pipeline has counted; an ad and minute that were counted twice are a mistake."""
    counts: Counts = {}
    for message in committed(servers, pipeline.COUNTS):
        count = json.loads(message.value)
        place = count["ad"], minute_ms(datetime.fromisoformat(count["minute"]))
        assert place not in counts, f"{place} is there twice"
        assert message.key == count["ad"].encode()
        counts[place] = count["clicks"]
    return counts


def minute_ms(minute: datetime) -> int:
    return round(minute.timestamp() * 1000)
