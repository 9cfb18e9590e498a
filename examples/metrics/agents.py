"""Agents on ten hosts that send counters and gauges every second: a seeded generator of samples.

    python examples/metrics/agents.py --minutes 30

Counters are sent with acks=1: each of them is part of a sum. Gauges are sent with acks=0, which costs least:
the next one comes in a second. An agent numbers its samples, so that lost ones can be counted.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from headrace import JSON, Admin, Producer

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
COUNTERS, GAUGES = "counters", "gauges"
PARTITIONS = 3
START_S = 1_767_225_600  # 2026-01-01
HOSTS = [f"host-{number:02}" for number in range(1, 11)]


class Sample(NamedTuple):
    host: str
    metric: str
    number: int  # of this metric and host, from 0 on
    value: int
    at_s: int

    def to_json(self) -> dict[str, str | int]:
        at = datetime.fromtimestamp(self.at_s, UTC).isoformat()
        return {
            "host": self.host,
            "metric": self.metric,
            "number": self.number,
            "value": self.value,
            "at": at,
        }


def samples(minutes: int, seed: int) -> Iterator[tuple[str, Sample]]:
    """Topic and sample, second by second."""
    rng = random.Random(seed)
    for number in range(minutes * 60):
        for host in HOSTS:
            at_s = START_S + number
            yield COUNTERS, Sample(host, "requests", number, rng.randrange(100), at_s)
            yield GAUGES, Sample(host, "load", number, rng.randrange(100), at_s)


def publish(servers: str, minutes: int, seed: int, speed: float) -> None:
    # with one request at a time, one that is sent again overtakes none
    careful = Producer(servers, acks=1, max_in_flight_requests_per_connection=1, value_serializer=JSON)
    with careful, Producer(servers, acks=0, value_serializer=JSON) as careless:
        producers = {COUNTERS: careful, GAUGES: careless}
        for topic, sample in samples(minutes, seed):
            producers[topic].send(topic, sample.to_json(), sample.host)
            if sample.host == HOSTS[-1] and topic == GAUGES:
                time.sleep(1 / speed)
                if sample.number % 60 == 59:
                    print(f"minute {sample.number // 60 + 1} of {minutes}", flush=True)


def create_topics(servers: str) -> None:
    with Admin(servers) as admin:
        there = {topic.name for topic in admin.list_topics()}
        for topic in (COUNTERS, GAUGES):
            if topic not in there:
                admin.create_topic(topic, partitions=PARTITIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publishes samples of ten hosts.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=30, help="of samples (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other samples")
    parser.add_argument("--speed", type=float, default=200, help="how often quicker than the hosts' clock")
    chosen = parser.parse_args()
    create_topics(chosen.servers)
    publish(chosen.servers, chosen.minutes, chosen.seed, chosen.speed)


if __name__ == "__main__":
    main()
