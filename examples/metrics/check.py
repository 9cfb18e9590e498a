"""Compares rollups with the truth: counters are exact, and as many gauges are missing as were lost.

python examples/metrics/check.py --minutes 30
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import agents
from agents import Sample

from headrace import JSON, Consumer
from headrace.pipelines import read_table

PROJECT = Path(__file__).parent
TABLES = {"rollups_10s": 10, "rollups_1m": 60}
LATE_S = 60  # as in pipeline.py


class Rollup(NamedTuple):
    host: str
    metric: str
    start_s: int
    samples: int
    total: int
    lowest: int
    highest: int
    last_number: int


def published(servers: str, topic: str) -> Counter[Sample]:
    found: Counter[Sample] = Counter()
    with Consumer(servers, value_deserializer=JSON) as consumer:
        places = [(topic, number) for number in range(agents.PARTITIONS)]
        consumer.assign(dict.fromkeys(places, 0))
        ends = consumer.end_offsets(places)
        while any(consumer.position(at) < end for at, end in ends.items()):
            for message in consumer.poll(0.5):
                at = datetime.fromisoformat(message.value.pop("at"))
                found[Sample(**message.value, at_s=int(at.timestamp()))] += 1
    return found


def rolled_up(samples: Iterable[Sample], width_s: int, final_s: int) -> set[Rollup]:
    """The rollups that nothing can change any more."""
    windows: dict[tuple[str, str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        windows[sample.host, sample.metric, sample.at_s // width_s * width_s].append(sample)
    found = set()
    for (host, metric, start_s), inside in windows.items():
        if start_s + width_s <= final_s:
            values, last = [one.value for one in inside], max(one.number for one in inside)
            found.add(Rollup(host, metric, start_s, len(values), sum(values), min(values), max(values), last))
    return found


def stored(table: str) -> list[Rollup]:
    rows: list[dict[str, Any]] = read_table(PROJECT, table).to_pylist()
    return [Rollup(start_s=int(row.pop("start").timestamp()), **row) for row in rows]


def problems(servers: str, minutes: int, seed: int) -> list[str]:
    sent: dict[str, set[Sample]] = {agents.COUNTERS: set(), agents.GAUGES: set()}
    for topic, sample in agents.samples(minutes, seed):
        sent[topic].add(sample)
    counters, gauges = published(servers, agents.COUNTERS), published(servers, agents.GAUGES)
    wrong = []
    if set(counters) != sent[agents.COUNTERS]:
        wrong.append(f"{len(sent[agents.COUNTERS] - set(counters))} counters did not arrive")
    final_s = min(max(sample.at_s for sample in arrived) for arrived in (counters, gauges)) - LATE_S
    for table, width_s in TABLES.items():
        right = rolled_up([*sent[agents.COUNTERS], *gauges], width_s, final_s)
        given = Counter(stored(table))
        missing, extra = len(right - set(given)), (given - Counter(right)).total()
        print(f"{table}: {given.total()} rows", flush=True)
        if missing or extra:
            wrong.append(f"{table}: {missing} rollups are missing or differ, {extra} are too many")
    losses: list[dict[str, Any]] = read_table(PROJECT, "losses").to_pylist()
    lost = Counter[str]()
    for row in losses:
        lost[row["metric"]] += row["missing"]
    truly_lost = {"requests": 0, "load": len(sent[agents.GAUGES] - set(gauges))}
    for name, arrived, metric in ((agents.COUNTERS, counters, "requests"), (agents.GAUGES, gauges, "load")):
        twice = arrived.total() - len(arrived)
        print(f"{len(arrived)} of {len(sent[name])} {name} arrived, {twice} of them twice; ", end="")
        print(f"by their numbers {lost[metric]} are missing", flush=True)
    if lost != truly_lost:
        wrong.append(f"by their numbers {dict(lost)} were lost, truly {truly_lost}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares rollups with the truth.")
    parser.add_argument("--servers", default=agents.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=30, help="as for agents.py")
    parser.add_argument("--seed", type=int, default=1, help="as for agents.py")
    chosen = parser.parse_args()
    wrong = problems(chosen.servers, chosen.minutes, chosen.seed)
    for problem in wrong:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if wrong else None)


if __name__ == "__main__":
    main()
