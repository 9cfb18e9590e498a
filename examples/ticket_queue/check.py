"""Compares the answers with the truth: no seat twice, seats in the order of the clicks, an answer for each.

    python examples/ticket_queue/check.py --fans 50000
    python examples/ticket_queue/check.py --fans 50000 --pipeline

With --pipeline it also compares the views of the pipeline with the answers.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import fans

from headrace import JSON, Consumer, Message

PROJECT = Path(__file__).parent


def committed(servers: str, topic: str) -> Iterator[Message]:
    """All records of the topic, each partition's in their order."""
    with Consumer(servers, isolation_level="read_committed", value_deserializer=JSON) as consumer:
        partitions = [(topic, partition) for partition in range(len(fans.SHOWS))]
        consumer.assign(dict.fromkeys(partitions, 0))
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(at) < end for at, end in ends.items()):
            yield from consumer.poll(0.5)


def problems(servers: str, count: int, seed: int) -> list[str]:
    found: list[str] = []
    asked = Counter((request.fan, request.show) for request in fans.requests(count, seed))
    answered: Counter[tuple[str, str]] = Counter()
    seated: dict[str, list[str]] = {show: [] for show in fans.SHOWS}
    outcomes: Counter[str] = Counter()
    for message in committed(servers, fans.TICKETS):
        ticket = message.value
        answered[ticket["fan"], ticket["show"]] += 1
        outcomes[ticket["answer"]] += 1
        if ticket["answer"] == "seat":
            owners = seated[ticket["show"]]
            owners.append(ticket["fan"])
            if ticket["seat"] != len(owners):
                found.append(f"{ticket['show']}: seat {ticket['seat']} was sold as number {len(owners)}")
    if answered != asked:
        found.append(f"{(asked - answered).total()} requests without an answer")
        found.append(f"{(answered - asked).total()} answers too many")
    for show, owners in fans.seating(count, seed).items():
        if seated[show] != owners:
            found.append(f"{show}: the seats are not those of the first {len(owners)} fans, in their order")
    print(", ".join(f"{outcomes[name]} × {name}" for name in sorted(outcomes)), flush=True)
    return found


def wrong_views(servers: str) -> list[str]:
    """Places in the queue must be the seats, and every answer must be part of a waiting time."""
    from headrace.pipelines import read_table  # needs the extras `spark` and `lake`

    seats, minutes = {}, Counter[tuple[str, datetime]]()
    for message in committed(servers, fans.TICKETS):
        ticket = message.value
        if ticket["answer"] == "seat":
            seats[ticket["show"], ticket["fan"]] = ticket["seat"]
        minute = datetime.fromtimestamp(ticket["answered_at_ms"] // 60_000 * 60, UTC)
        minutes[ticket["show"], minute] += 1
    sold = Counter(show for show, _ in seats)
    admitted = {
        (row["show"], row["fan"]): row["place"]
        for row in read_table(PROJECT, "admissions").to_pylist()
        if row["place"] <= sold[row["show"]]
    }
    rows = read_table(PROJECT, "waiting_times").to_pylist()
    waiting = {(row["show"], row["minute"]): row["answers"] for row in rows}
    print(f"{len(admitted)} fans were admitted in the order of the queue", flush=True)
    found = []
    if admitted != seats:
        found.append(f"{len(admitted.items() ^ seats.items())} places differ from the seats")
    if waiting != minutes:
        found.append("the waiting times are not those of all answers")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the tickets with the truth.")
    parser.add_argument("--servers", default=fans.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--fans", type=int, default=50_000, help="as for fans.py")
    parser.add_argument("--seed", type=int, default=1, help="as for fans.py")
    parser.add_argument("--pipeline", action="store_true", help="also check the views of the pipeline")
    chosen = parser.parse_args()
    found = problems(chosen.servers, chosen.fans, chosen.seed)
    if chosen.pipeline:
        found += wrong_views(chosen.servers)
    for problem in found:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if found else None)


if __name__ == "__main__":
    main()
