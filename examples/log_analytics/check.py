"""Compares table and views of the pipeline with the truth, whatever is left of the topic.

python examples/log_analytics/check.py --lines 100000
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import services

from headrace import Consumer, Message
from headrace.pipelines import read_table

PROJECT = Path(__file__).parent


def committed(servers: str, topic: str) -> Iterator[Message]:
    """All records that the topic still has."""
    places = [(topic, number) for number in range(services.PARTITIONS)]
    with Consumer(servers, isolation_level="read_committed") as consumer:
        consumer.assign(consumer.beginning_offsets(places))
        ends = consumer.end_offsets(places)
        while any(consumer.position(at) < end for at, end in ends.items()):
            yield from consumer.poll(0.5)


def truth(lines: list[services.Line]) -> dict[str, Counter[Any]]:
    """What table and views must say: a count, or a number of milliseconds, by the other columns."""
    times = {line.received_ms: datetime.fromtimestamp(line.received_ms / 1000, UTC) for line in lines}
    errors = [line for line in lines if line.level == "ERROR"]
    return {
        "logs": Counter((times[line.received_ms].date(), line.service, line.level) for line in lines),
        "errors_per_minute": Counter(
            (times[line.received_ms].replace(second=0, microsecond=0), line.service) for line in errors
        ),
        "response_times": Counter({(name,): p99_ms(lines, name) for name in services.SERVICES}),
        "causes": Counter((line.cause,) for line in errors),
    }


def p99_ms(lines: list[services.Line], service: str) -> int:
    """99 of 100 lines took so long at most."""
    took = sorted(line.took_ms for line in lines if line.service == service)
    return took[-(-len(took) * 99 // 100) - 1] if took else 0


def stored() -> dict[str, Counter[Any]]:
    def view(name: str, *columns: str, value: str) -> Counter[Any]:
        rows = read_table(PROJECT, name).to_pylist()
        return Counter({tuple(row[column] for column in columns): row[value] for row in rows})

    logs = read_table(PROJECT, "logs").select(["day", "service", "level"]).to_pylist()
    return {
        "logs": Counter(tuple(row.values()) for row in logs),
        "errors_per_minute": view("errors_per_minute", "minute", "service", value="errors"),
        "response_times": view("response_times", "service", value="p99_ms"),
        "causes": view("causes", "cause", value="errors"),
    }


def problems(servers: str, count: int, seed: int) -> list[str]:
    good = [line for _, _, line in services.lines(count, seed) if line is not None]
    right, given = truth(good), stored()
    wrong = [
        f"{name}: {len(right[name].items() ^ given[name].items())} counts differ"
        for name in right
        if right[name] != given[name]
    ]
    dead = sum(1 for _ in committed(servers, services.DEAD))
    if dead != count - len(good):
        wrong.append(f"{dead} dead letters, not {count - len(good)}")
    for row in read_table(PROJECT, "clock_skews").to_pylist():
        ahead_s = services.skews_ms(seed)[row["service"]] / 1000
        if abs(row["ahead_s"] - ahead_s) > 2:  # a line may be so long on its way
            wrong.append(f"the clock of {row['service']} is {ahead_s} s ahead, not {row['ahead_s']} s")
    left = sum(1 for _ in committed(servers, services.LOGS))
    print(f"{count} lines: {left} are left in the topic", flush=True)
    print(f"{given['logs'].total()} are in the table, {dead} are garbage", flush=True)
    causes = ", ".join(f"{errors} × {cause}" for (cause,), errors in given["causes"].most_common())
    print(f"{given['causes'].total()} are errors: {causes}", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares table and views with the truth.")
    parser.add_argument("--servers", default=services.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=100_000, help="as for services.py")
    parser.add_argument("--seed", type=int, default=1, help="as for services.py")
    chosen = parser.parse_args()
    wrong = problems(chosen.servers, chosen.lines, chosen.seed)
    for problem in wrong:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if wrong else None)


if __name__ == "__main__":
    main()
