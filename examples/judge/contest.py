"""A programming contest: a seeded generator of submissions, and the verdict that each of them must get.

    python examples/judge/contest.py --submissions 300

Teams send Python programs for three problems. Some programs are right. Others give wrong answers, never end,
want too much memory, print too much or crash.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from typing import NamedTuple

from headrace import JSON, Admin, Producer

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
SUBMISSIONS, VERDICTS = "submissions", "verdicts"
PARTITIONS = 4
START_MS = 1_767_225_600_000  # 2026-01-01, when the contest begins
TEAMS = [f"team-{number:02}" for number in range(1, 13)]

# What a program reads, and what it must print.
TESTS = {
    "sum": [("1 2 3\n", "6\n"), ("-5 5\n", "0\n"), ("1000000000000 1\n", "1000000000001\n")],
    "reverse": [("headrace\n", "ecardaeh\n"), ("a\n", "a\n")],
    "longest": [("to be or not\n", "not\n"), ("log\n", "log\n"), ("one three five\n", "three\n")],
}
RIGHT = {
    "sum": "print(sum(map(int, input().split())))",
    "reverse": "print(input()[::-1])",
    "longest": "print(max(input().split(), key=len))",
}
# A program that deserves the verdict, for any problem.
BAD = {
    "wrong answer": "print(input().upper())",
    "time limit": "while True: pass",
    "memory limit": "print(len(bytearray(4_000_000_000)))",
    "output limit": "while True: print('spam' * 1000)",
    "crashed": "print(1 // 0)",
}
# How often each comes; programs that never end keep a worker busy for a second.
SHARES = {
    "accepted": 40,
    "wrong answer": 35,
    "crashed": 15,
    "memory limit": 4,
    "output limit": 4,
    "time limit": 2,
}


class Submission(NamedTuple):
    submission: int
    team: str
    problem: str
    program: str
    sent_at_ms: int


class Verdict(NamedTuple):
    submission: int
    team: str
    problem: str
    verdict: str
    sent_at_ms: int


def submissions(count: int, seed: int) -> Iterator[tuple[Submission, Verdict]]:
    """Each with the verdict that it must get."""
    rng = random.Random(seed)
    now_ms = START_MS
    for number in range(count):
        now_ms += rng.randrange(1, 60_000)
        team, problem = rng.choice(TEAMS), rng.choice([*TESTS])
        (verdict,) = rng.choices([*SHARES], [*SHARES.values()])
        if number < len(SHARES):
            verdict = [*SHARES][number]  # the first ones are one of each kind
        program = RIGHT[problem] if verdict == "accepted" else BAD[verdict]
        yield (
            Submission(number, team, problem, f"# {team}\n{program}\n", now_ms),
            Verdict(number, team, problem, verdict, now_ms),
        )


def standings(verdicts: list[Verdict]) -> list[tuple[str, int, int]]:
    """The truth of the board: team, problems solved and penalty, the best first.

    The penalty of a solved problem is the minute of its first right program, and 20 minutes for each program
    before it.
    """
    solved: dict[tuple[str, str], int] = {}
    failed: dict[tuple[str, str], int] = {}
    for verdict in sorted(verdicts, key=lambda verdict: verdict.sent_at_ms):
        place = verdict.team, verdict.problem
        if place in solved:
            continue
        if verdict.verdict == "accepted":
            solved[place] = (verdict.sent_at_ms - START_MS) // 60_000 + 20 * failed.get(place, 0)
        else:
            failed[place] = failed.get(place, 0) + 1
    teams = {team for team, _ in solved}
    board = [
        (
            team,
            sum(1 for each in solved if each[0] == team),
            sum(p for e, p in solved.items() if e[0] == team),
        )
        for team in teams
    ]
    return sorted(board, key=lambda row: (-row[1], row[2], row[0]))


def create_topics(servers: str) -> None:
    with Admin(servers) as admin:
        there = {topic.name for topic in admin.list_topics()}
        for topic in (SUBMISSIONS, VERDICTS):
            if topic not in there:
                admin.create_topic(topic, partitions=PARTITIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publishes the submissions of a contest.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--submissions", type=int, default=300, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes another contest")
    chosen = parser.parse_args()

    create_topics(chosen.servers)
    with Producer(chosen.servers, value_serializer=JSON) as producer:
        for submission, _ in submissions(chosen.submissions, chosen.seed):
            producer.send(SUBMISSIONS, submission._asdict(), str(submission.submission))
    print(f"{chosen.submissions} submissions of {len(TEAMS)} teams", flush=True)


if __name__ == "__main__":
    main()
