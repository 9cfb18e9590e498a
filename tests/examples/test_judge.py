"""The judge: one verdict for each program, and the right one, while workers and the broker are killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.example_programs import SETTINGS, Example, Workers
from harness.group_offsets import GroupOffsets
from harness.headrace import Headrace
from headrace import JSON, Producer

PROGRAMS = 40


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    with Headrace(tmp_path_factory.mktemp("judge"), SETTINGS) as broker:
        example = Example("judge", broker.bootstrap)
        example.run("contest.py", "--submissions", PROGRAMS)
        commands = [example.command("judge.py", "--worker", worker) for worker in (1, 2)]
        with (
            Workers(*commands) as workers,
            closing(GroupOffsets(broker.bootstrap, "judge", "submissions", 4)) as done,
        ):
            workers.until(done.total, PROGRAMS // 4)
            workers.kill(0)
            workers.until(done.total, PROGRAMS // 2)
            broker.kill()
            broker.start()
            workers.until(done.total, PROGRAMS // 4 * 3)
            workers.kill(1)
            workers.until(done.total, PROGRAMS)
        yield example


def test_each_program_gets_one_verdict_and_the_board_is_right(judged: Example, tmp_path: Path) -> None:
    database = f"sqlite:{tmp_path / 'judge.db'}"
    assert "solved, penalty" in judged.run("board.py", "--database", database, "--once")
    judged.run("board.py", "--database", database, "--once")  # adds nothing
    printed = judged.run("check.py", "--submissions", PROGRAMS, "--database", database)
    for verdict in ("accepted", "wrong answer", "time limit", "memory limit", "output limit", "crashed"):
        assert f"× {verdict}" in printed


def test_the_check_notices_a_second_verdict(judged: Example) -> None:
    again = {"submission": 0, "team": "team-01", "problem": "sum", "verdict": "accepted", "sent_at_ms": 0}
    with Producer(judged.servers, value_serializer=JSON) as producer:
        producer.send("verdicts", again, "team-01")
    assert "submission 0 has 2 verdicts" in judged.fails("check.py", "--submissions", PROGRAMS)
