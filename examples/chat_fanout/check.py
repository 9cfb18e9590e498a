"""Compares what each gateway has shown with the truth: every chat, whole, in one order for all.

python examples/chat_fanout/check.py --database gateways.db --messages 20000 --groups 50
python examples/chat_fanout/check.py --database gateways.db --messages 20000 --groups 50 --pipeline
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import people

PROJECT = Path(__file__).parent
LATE_MS = 10_000  # as in pipeline.py


def problems(database: sqlite3.Connection, count: int, seed: int, groups: int) -> list[str]:
    truth = people.sequences(count, seed)
    shown: dict[str, dict[str, tuple[int, str]]] = {}
    for gateway, chat, number, digest in database.execute("SELECT * FROM shown"):
        shown.setdefault(gateway, {})[chat] = number, digest
    found = [] if len(shown) == groups else [f"{len(shown)} gateways, not {groups}"]
    for gateway, chats in sorted(shown.items()):
        wrong = sorted(chat for chat in truth | chats if chats.get(chat) != truth.get(chat))
        if wrong:
            chat = wrong[0]
            found.append(f"{gateway}: {len(wrong)} chats, {chat}: {chats.get(chat)}, not {truth.get(chat)}")
    seen = sum(number for number, _ in truth.values())
    print(f"{len(shown)} gateways, {len(truth)} chats, {seen} of {count} messages to be seen", flush=True)
    return found


def wrong_tables(count: int, seed: int) -> list[str]:
    """The tables of the pipeline, for all seconds that are final."""
    from headrace.pipelines import read_table  # needs the extras `spark` and `lake`

    seen = [message for sent in people.messages(count, seed) if (message := people.moderate(sent))]
    end_ms = (seen[-1]["sent_at_ms"] - LATE_MS) // 1000 * 1000
    comments = Counter(
        (message["chat"], datetime.fromtimestamp(message["sent_at_ms"] // 1000, UTC))
        for message in seen
        if message["sent_at_ms"] < end_ms
    )
    counted = {
        (row["chat"], row["second"]): row["comments"]
        for row in read_table(PROJECT, "comments_per_second").to_pylist()
    }
    hidden = sum("***" in message["text"] for message in seen)
    stored = read_table(PROJECT, "hidden_words").num_rows
    print(f"{sum(counted.values())} comments were counted, {stored} had hidden words", flush=True)
    found = []
    if counted != comments:
        found.append(f"{len(counted.items() ^ comments.items())} comments per second differ")
    if stored != hidden:
        found.append(f"{hidden} messages have hidden words, and the table has {stored}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares what gateways have shown with the truth.")
    parser.add_argument("--database", required=True, help="as for gateways.py")
    parser.add_argument("--messages", type=int, default=20_000, help="as for people.py")
    parser.add_argument("--seed", type=int, default=1, help="as for people.py")
    parser.add_argument("--groups", type=int, default=50, help="as for gateways.py")
    parser.add_argument("--pipeline", action="store_true", help="also check the tables of the pipeline")
    chosen = parser.parse_args()
    with closing(sqlite3.connect(chosen.database)) as database:
        found = problems(database, chosen.messages, chosen.seed, chosen.groups)
    if chosen.pipeline:
        found += wrong_tables(chosen.messages, chosen.seed)
    for problem in found:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if found else None)


if __name__ == "__main__":
    main()
