"""Compares the ledger with the truth: sums of zero, each entry once; v2 with v1; and the states of orders.

    python examples/payments/check.py --orders 2000 --v2-since 2026-01-01T06:00 --database orders.db
    python examples/payments/check.py --orders 2000 --pipeline

With --pipeline it compares the pipeline's tables with the truth instead.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import bookkeeping
import ledger
import shop
from bookkeeping import Entry

from headrace import JSON, Consumer

PROJECT = Path(__file__).parent


def published(servers: str, topic: str) -> Counter[Entry]:
    found: Counter[Entry] = Counter()
    with Consumer(servers, isolation_level="read_committed", value_deserializer=JSON) as consumer:
        places = [(topic, number) for number in range(shop.PARTITIONS)]
        consumer.assign(dict.fromkeys(places, 0))
        ends = consumer.end_offsets(places)
        while any(consumer.position(at) < end for at, end in ends.items()):
            found.update(Entry(**message.value) for message in consumer.poll(0.5))
    return found


def different(name: str, given: Counter[Entry], right: Counter[Entry]) -> list[str]:
    missing, extra = (right - given).total(), (given - right).total()
    return [f"{name}: {missing} entries are missing, {extra} are too many"] if missing or extra else []


def unbalanced(given: Counter[Entry]) -> list[str]:
    sums: Counter[str] = Counter()
    for entry, times in given.items():
        sums[entry.payment] += entry.cents * times
    return [f"{payment}: the entries add up to {cents}, not 0" for payment, cents in sums.items() if cents]


def stored_states(path: str) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, state FROM states"))


def wrong_states(states: dict[str, str], right: dict[str, str]) -> list[str]:
    wrong = [order for order in states | right if states.get(order) != right.get(order)]
    return [f"{order}: {states.get(order)}, which should be {right.get(order)}" for order in wrong]


def problems(servers: str, orders: int, seed: int, v2_since: str | None, database: str | None) -> list[str]:
    v1 = published(servers, shop.LEDGERS["v1"])
    print(f"{v1.total()} entries, sum {sum(entry.cents * times for entry, times in v1.items())}", flush=True)
    found = different("v1", v1, Counter(bookkeeping.ledger(orders, seed))) + unbalanced(v1)
    if v2_since is not None:
        since_ms = ledger.milliseconds(v2_since)
        v2, same = published(servers, shop.LEDGERS["v2"]), Counter[Entry]()
        for entry, times in v1.items():
            if entry.at_ms >= since_ms:
                same[entry] = times
        print(f"{v2.total()} entries of v2", flush=True)
        found += different("v2", v2, same)
    if database is not None:
        found += wrong_states(stored_states(database), bookkeeping.states(orders, seed))
    return found


def pipeline_problems(orders: int, seed: int) -> list[str]:
    from headrace.pipelines import read_table  # needs the extras `spark` and `lake`

    entries = Counter[Entry]()
    for row in read_table(PROJECT, "ledger").to_pylist():
        entries[Entry(at_ms=round(row.pop("paid_at").timestamp() * 1000), **row)] += 1
    states = {row["order"]: row["state"] for row in read_table(PROJECT, "states").to_pylist()}
    total = sum(entry.cents * times for entry, times in entries.items())
    print(f"{entries.total()} entries in the pipeline's ledger, sum {total}", flush=True)
    found = different("pipeline", entries, Counter(bookkeeping.ledger(orders, seed))) + unbalanced(entries)
    return found + wrong_states(states, bookkeeping.states(orders, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the ledger with the truth.")
    parser.add_argument("--servers", default=shop.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--orders", type=int, default=2_000, help="as for shop.py")
    parser.add_argument("--seed", type=int, default=1, help="as for shop.py")
    parser.add_argument("--v2-since", help="compare v2 with v1; the time as for ledger.py")
    parser.add_argument("--database", help="as for states.py")
    parser.add_argument("--pipeline", action="store_true", help="check the tables of the pipeline instead")
    chosen = parser.parse_args()
    if chosen.pipeline:
        found = pipeline_problems(chosen.orders, chosen.seed)
    else:
        found = problems(chosen.servers, chosen.orders, chosen.seed, chosen.v2_since, chosen.database)
    for problem in found:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if found else None)


if __name__ == "__main__":
    main()
