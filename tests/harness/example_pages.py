"""Somebody who follows the README.md of an example, with smaller numbers.

Workers run until the page ends, as in terminals of their own. A check is repeated until it finds nothing
wrong: a reader waits for the workers before.
"""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from docs.fenced import Block
from harness.example_programs import Workers
from harness.page_reader import Reader
from harness.wait import WAIT_S, Patience

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
    "--lines 100000": "--lines 2000",
    "--minutes 30": "--minutes 4",
    "T06:00": "T01:30",
}


def follow_example(reader: Reader, blocks: list[Block]) -> None:
    with ExitStack() as started:
        for block in blocks:
            for command, expected in block.commands():
                for shown, smaller in SMALLER.items():
                    command = command.replace(shown, smaller)
                _follow(reader, started, block, command, expected)


def _follow(reader: Reader, started: ExitStack, block: Block, command: str, expected: str) -> None:
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
