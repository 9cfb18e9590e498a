"""Compares what each gateway has shown with the truth: every chat, whole, in one order for all.

python examples/chat_fanout/check.py --database gateways.db --messages 20000 --groups 50
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing

import people


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares what gateways have shown with the truth.")
    parser.add_argument("--database", required=True, help="as for gateways.py")
    parser.add_argument("--messages", type=int, default=20_000, help="as for people.py")
    parser.add_argument("--seed", type=int, default=1, help="as for people.py")
    parser.add_argument("--groups", type=int, default=50, help="as for gateways.py")
    chosen = parser.parse_args()
    with closing(sqlite3.connect(chosen.database)) as database:
        found = problems(database, chosen.messages, chosen.seed, chosen.groups)
    for problem in found:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if found else None)


if __name__ == "__main__":
    main()
