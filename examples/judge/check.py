"""Compares the verdicts with the truth: one for each submission, and the right one; and the boards.

python examples/judge/check.py --submissions 300 --database sqlite:judge.db
python examples/judge/check.py --submissions 300 --pipeline
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import board
import contest

from headrace import JSON, Consumer

PROJECT = Path(__file__).parent
Board = list[tuple[str, int, int]]


def published(servers: str) -> list[contest.Verdict]:
    found: list[contest.Verdict] = []
    with Consumer(servers, isolation_level="read_committed", value_deserializer=JSON) as consumer:
        places = [(contest.VERDICTS, number) for number in range(contest.PARTITIONS)]
        consumer.assign(dict.fromkeys(places, 0))
        ends = consumer.end_offsets(places)
        while any(consumer.position(at) < end for at, end in ends.items()):
            found += [contest.Verdict(**message.value) for message in consumer.poll(0.5)]
    return found


def database_board(address: str) -> Board:
    with closing(board.connect(address)[0]) as connection:
        rows = connection.execute(board.BOARD).fetchall()
    return [(team, int(solved), int(penalty)) for team, solved, penalty in rows]


def pipeline_board() -> Board:
    from headrace.pipelines import read_table  # needs the extras `spark` and `lake`

    return [tuple(row.values()) for row in read_table(PROJECT, "leaderboard").to_pylist()]


def problems(servers: str, count: int, seed: int, database: str | None, *, pipeline: bool) -> list[str]:
    found: list[str] = []
    truth = [verdict for _, verdict in contest.submissions(count, seed)]
    verdicts = published(servers)
    times = Counter(verdict.submission for verdict in verdicts)
    given = {verdict.submission: verdict for verdict in verdicts}
    for right in truth:
        if times[right.submission] != 1:
            found.append(f"submission {right.submission} has {times[right.submission]} verdicts")
        elif given[right.submission] != right:
            found.append(f"{given[right.submission]}, which should be: {right.verdict}")
    boards = [] if database is None else [database_board(database)]
    if pipeline:
        boards.append(pipeline_board())
    for rows in boards:
        if rows != contest.standings(truth):
            found.append(f"the board is {rows}, and should be {contest.standings(truth)}")
    outcomes = Counter(verdict.verdict for verdict in verdicts)
    print(", ".join(f"{outcomes[name]} × {name}" for name in sorted(outcomes)), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares verdicts and board with the truth.")
    parser.add_argument("--servers", default=contest.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--submissions", type=int, default=300, help="as for contest.py")
    parser.add_argument("--seed", type=int, default=1, help="as for contest.py")
    parser.add_argument("--database", help="as for board.py")
    parser.add_argument("--pipeline", action="store_true", help="also check the board of the pipeline")
    chosen = parser.parse_args()
    sample = chosen.submissions, chosen.seed
    found = problems(chosen.servers, *sample, chosen.database, pipeline=chosen.pipeline)
    for problem in found:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if found else None)


if __name__ == "__main__":
    main()
