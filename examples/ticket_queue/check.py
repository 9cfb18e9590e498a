"""Compares the answers with the truth: no seat twice, seats in the order of the clicks, an answer for each.

python examples/ticket_queue/check.py --fans 50000
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

import fans

from headrace import JSON, Consumer, Message


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the tickets with the truth.")
    parser.add_argument("--servers", default=fans.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--fans", type=int, default=50_000, help="as for fans.py")
    parser.add_argument("--seed", type=int, default=1, help="as for fans.py")
    chosen = parser.parse_args()
    found = problems(chosen.servers, chosen.fans, chosen.seed)
    for problem in found:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if found else None)


if __name__ == "__main__":
    main()
