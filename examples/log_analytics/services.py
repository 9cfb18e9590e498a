"""Twenty services that write logs: a seeded generator of lines, some of them garbage, and what they mean.

    python examples/log_analytics/services.py --lines 100000

A line is a record of the topic `logs`. Errors have stack traces. Each service has a clock of its own, which
is up to ten minutes wrong; the record's timestamp, which the collector of the lines sets, is right. One line
in a hundred is garbage: cut off, not JSON, not even text, or without the name of its service.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from headrace import Admin, Producer

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
LOGS, DEAD = "logs", "logs_dead"
PARTITIONS = 3
START_MS = 1_767_268_800_000  # 2026-01-01 12:00
HOURS = 24  # half of the first day, and half of the second
SERVICES = [f"service-{number:02}" for number in range(1, 21)]
LEVELS = {"DEBUG": 20, "INFO": 70, "WARN": 7, "ERROR": 3}  # how often, of a hundred
CAUSES = ("TimeoutError", "KeyError", "ConnectionResetError", "ValueError")
GARBAGE = 0.01

# The topic keeps lines for an hour, but none that the pipeline has not read yet.
RETENTION = {
    "retention.ms": 3_600_000,
    "headrace.retention.waits.for": "log_analytics.logs,log_analytics.logs.dead",
}


class Line(NamedTuple):
    """What a good line means."""

    service: str
    level: str
    took_ms: int
    cause: str | None  # the exception of its stack trace
    received_ms: int


def skews_ms(seed: int) -> dict[str, int]:
    """How far the clock of each service is ahead."""
    rng = random.Random(seed)
    return {service: rng.randrange(-600_000, 600_000) for service in SERVICES}


def lines(count: int, seed: int) -> Iterator[tuple[bytes, int, Line | None]]:
    """The bytes of each line, when it was received, and what it means: None for garbage."""
    rng, skews = random.Random(seed), skews_ms(seed)
    for number in range(count):
        received_ms = START_MS + number * HOURS * 3_600_000 // count
        (level,) = rng.choices([*LEVELS], [*LEVELS.values()])
        cause = rng.choice(CAUSES) if level == "ERROR" else None
        line = Line(rng.choice(SERVICES), level, int(rng.expovariate(1 / 50)), cause, received_ms)
        delay_ms = rng.randrange(0, 2_000)
        value = written(line, received_ms - delay_ms + skews[line.service])
        if rng.random() < GARBAGE:
            yield garbage(rng, value), received_ms, None
        else:
            yield value, received_ms, line


def written(line: Line, logged_ms: int) -> bytes:
    fields = {
        "service": line.service,
        "level": line.level,
        "logged_at": datetime.fromtimestamp(logged_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "took_ms": line.took_ms,
        "message": f"request took {line.took_ms} ms",
    }
    if line.cause is not None:
        fields["stack"] = f'Traceback:\n  File "app.py", line {line.took_ms}\n{line.cause}: no answer'
    return json.dumps(fields).encode()


def garbage(rng: random.Random, value: bytes) -> bytes:
    cut = value[: rng.randrange(1, len(value) - 1)]
    return rng.choice((cut, b"\xff\xfe" + cut, b"core dumped", value.replace(b'"service"', b'"host"')))


def create_topics(servers: str) -> None:
    with Admin(servers) as admin:
        there = {topic.name for topic in admin.list_topics()}
        for topic, configs in ((LOGS, RETENTION), (DEAD, {"retention.ms": -1})):
            if topic not in there:
                admin.create_topic(topic, partitions=PARTITIONS, configs=configs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publishes the logs of twenty services.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other lines")
    chosen = parser.parse_args()

    create_topics(chosen.servers)
    with Producer(chosen.servers) as producer:
        for value, received_ms, _ in lines(chosen.lines, chosen.seed):
            producer.send(LOGS, value, timestamp_ms=received_ms)
    print(f"{chosen.lines} lines of {len(SERVICES)} services", flush=True)


if __name__ == "__main__":
    main()
