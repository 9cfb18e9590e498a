"""The leaderboard in a database: verdicts and offsets are one transaction, the board is a query.

    python examples/judge/board.py --database sqlite:judge.db --once
    python examples/judge/board.py --database postgresql://localhost/judge     # pip install psycopg

With --once it stores the verdicts that are there, prints the board and ends. It can be killed at any time.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
from contextlib import closing
from typing import Any

import contest

from headrace import JSON, Consumer, Message, StoredOffsets, TopicPartition

CREATE = """CREATE TABLE IF NOT EXISTS verdicts (
    submission BIGINT PRIMARY KEY, team VARCHAR(100), problem VARCHAR(100), verdict VARCHAR(100),
    sent_at_ms BIGINT)"""

# A submission has one verdict; a second one would violate the primary key, and stop the program.
INSERT = "INSERT INTO verdicts VALUES ({0}, {0}, {0}, {0}, {0})"

BOARD = f"""WITH solved AS (
    SELECT team, problem, MIN(sent_at_ms) AS at_ms FROM verdicts WHERE verdict = 'accepted'
    GROUP BY team, problem
), scored AS (
    SELECT team, (at_ms - {contest.START_MS}) / 60000 + 20 * (
        SELECT COUNT(*) FROM verdicts v
        WHERE v.team = solved.team AND v.problem = solved.problem AND v.sent_at_ms < at_ms
    ) AS penalty FROM solved
)
SELECT team, COUNT(*) AS solved, SUM(penalty) AS penalty FROM scored GROUP BY team ORDER BY 2 DESC, 3, 1"""


def connect(address: str) -> tuple[Any, str]:
    """A connection, and the mark for values in its statements."""
    if address.startswith("sqlite:"):
        return sqlite3.connect(address.removeprefix("sqlite:")), "?"
    import psycopg

    return psycopg.connect(address), "%s"


def keep_up(servers: str, address: str, *, once: bool) -> None:
    database, mark = connect(address)
    offsets = StoredOffsets(database, group="board")
    places = [TopicPartition(contest.VERDICTS, number) for number in range(contest.PARTITIONS)]
    with (
        closing(database),
        Consumer(servers, isolation_level="read_committed", value_deserializer=JSON) as consumer,
    ):
        database.execute(CREATE)
        offsets.create_table()
        database.commit()
        consumer.assign(dict.fromkeys(places, 0) | offsets.load(places))
        ends = consumer.end_offsets(places)
        while not once or any(consumer.position(at) < end for at, end in ends.items()):
            messages = consumer.poll(0.5)
            store(database, mark, messages)
            offsets.save(messages)
            database.commit()
        for rank, (team, solved, penalty) in enumerate(database.execute(BOARD).fetchall(), 1):
            print(f"{rank:2} {team} {solved} solved, penalty {penalty}")


def store(database: Any, mark: str, messages: list[Message]) -> None:
    for message in messages:
        verdict = contest.Verdict(**message.value)
        database.execute(INSERT.format(mark), tuple(verdict))


def main() -> None:
    parser = argparse.ArgumentParser(description="Stores verdicts, and prints the leaderboard.")
    parser.add_argument("--servers", default=contest.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--database", required=True, help="sqlite:FILE, or an address of PostgreSQL")
    parser.add_argument("--once", action="store_true", help="print the board of what is there, then end")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    keep_up(chosen.servers, chosen.database, once=chosen.once)


if __name__ == "__main__":
    main()
