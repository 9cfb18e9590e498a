"""Chat fan-out: all gateways show one sequence per chat, while moderators, gateways and broker are killed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from harness.example_programs import SETTINGS, Example, Workers
from harness.headrace import Headrace

MESSAGES, GROUPS = 1_500, 8


def test_all_gateways_show_one_sequence_per_chat(tmp_path: Path) -> None:
    database = tmp_path / "gateways.db"
    sample = ("--database", database, "--messages", MESSAGES, "--groups", GROUPS)

    def shown() -> int | None:
        if not database.exists():
            return None
        try:
            with closing(sqlite3.connect(database)) as connection:
                return connection.execute("SELECT SUM(messages) FROM shown").fetchone()[0]
        except sqlite3.OperationalError:  # not a table yet
            return None

    with Headrace(tmp_path / "broker", SETTINGS) as broker:
        example = Example("chat_fanout", broker.bootstrap)
        example.run("people.py", "--messages", MESSAGES)
        gateways = example.command("gateways.py", "--database", database, "--groups", GROUPS // 2)
        with Workers(
            example.command("moderator.py", "--worker", 1, "--batch", 20),
            example.command("moderator.py", "--worker", 2, "--batch", 20),
            gateways,
            [*gateways, "--first", str(GROUPS // 2)],
        ) as workers:
            truth = MESSAGES * GROUPS * 9 // 10  # a muted person's share is a fiftieth
            workers.until(shown, truth // 4)
            workers.kill(0)
            workers.kill(2)
            workers.until(shown, truth // 2)
            broker.kill()
            broker.start()
            workers.until(shown, truth // 4 * 3)
            workers.kill(3)
            workers.until_right(example, "check.py", *sample)

    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "UPDATE shown SET digest = 'other' WHERE gateway = 'gateway-03' AND chat = 'live-video'"
        )
    assert "gateway-03: 1 chats, live-video" in example.fails("check.py", *sample)
