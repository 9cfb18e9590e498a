"""The README.md of each example: its commands run, from top to bottom, with smaller numbers.

Workers run until the page ends, as in terminals of their own. A check is repeated until it finds nothing
wrong: a reader waits for the workers before.
"""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from docs.fenced import ROOT, STORIES, Block, to_run
from harness.example_programs import Workers
from harness.page_reader import Reader
from harness.wait import WAIT_S, Patience

HERE = "tests/examples/test_pages.py"
PAGES = [page for page, test in STORIES.items() if test == HERE]  # each is a README.md

WORKERS = {
    "box_office.py", "judge.py", "planner.py", "collector.py", "transcoder.py", "moderator.py", "gateways.py",
    "ledger.py",
}  # fmt: skip
SMALLER = {
    "--fans 50000": "--fans 1000",
    "--seats 15000": "--seats 300",
    "--submissions 300": "--submissions 12",
    "--clips 500": "--clips 5",
    "--timeout 5": "--timeout 2 --encoder python",
    "--messages 20000": "--messages 500",
    "--groups 50": "--groups 5",
    "--orders 2000": "--orders 300",
    "T06:00": "T01:30",
}


@pytest.mark.parametrize("page", PAGES)
def test_an_example_does_what_its_page_says(page: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with Reader(tmp_path) as reader, ExitStack() as started:
        for block in to_run(page):
            for command, expected in block.commands():
                for shown, smaller in SMALLER.items():
                    command = command.replace(shown, smaller)
                follow(reader, started, block, command, expected)


def follow(reader: Reader, started: ExitStack, block: Block, command: str, expected: str) -> None:
    words = shlex.split(command)
    program = Path(words[1]).name
    if program in WORKERS:
        started.enter_context(Workers([sys.executable, *words[1:], "--servers", reader.bootstrap]))
    elif program == "check.py":
        patience = Patience(WAIT_S)
        while (done := reader.run(block, command)).returncode != 0:
            assert not patience.is_over, f"{block.where}: {command}"
            time.sleep(0.1)
        if expected:
            reader.compare(block, command, expected, done.stdout)
    else:
        reader.command(block, command, expected)
