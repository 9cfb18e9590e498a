"""`headrace …` in the test's own process, and what it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.cli.main import run


@dataclass(frozen=True)
class Printed:
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def cells(self) -> list[list[str]]:
        """Of a table, without its headings."""
        return [line.split() for line in self.lines[1:]]

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class CommandLine:
    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, *words: str, code: int = 0) -> Printed:
        """Run a command that ends with this exit code."""
        self._captured.readouterr()
        found = run(list(words))
        out, err = self._captured.readouterr()
        printed = Printed(found, out, err.decode())
        assert found == code, f"headrace {' '.join(words)}: exit {found}\n{out.decode()}{printed.err}"
        return printed

    def refused(self, *words: str, code: int = 1) -> str:
        """Run a command that fails; return the error message."""
        return self(*words, code=code).err
