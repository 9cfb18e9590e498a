"""Which tests execute a line, so that the others need not run against a mutant of it.

A function whose answer is cached is seen only in the first test that calls it: of the tests of the changed
module itself, all run in the end.
"""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

from mutants.changes import Mutant

EVERYBODY = ""  # the context before the first test: what runs while tests are imported


class Reach:
    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)  # of all test files, and of the plays
        self._unmeasured = set(self._names)
        # of each traced run: its tests, and of each file and line the bits of those that execute it
        self._notes: list[tuple[list[str], dict[str, dict[str, str]]]] = []
        self.seconds: dict[str, float] = defaultdict(float)  # that each test computes

    def add(self, names: Iterable[str], notes: Path) -> None:
        """What a traced run of these has noted."""
        noted = json.loads(notes.read_text())
        self._notes.append((noted["tests"], noted["lines"]))
        self.seconds.update(noted["seconds"])
        self._unmeasured.difference_update(names)

    def of(self, mutant: Mutant, source: str) -> Collection[str]:
        """The tests, test files and plays that execute the changed line."""
        reaching = self._executing(mutant, source) | self._unmeasured
        return self._names if EVERYBODY in reaching else reaching

    def is_imported(self, mutant: Mutant, source: str) -> bool:
        """Whether the line is executed while modules are imported."""
        return EVERYBODY in self._executing(mutant, source)

    def _executing(self, mutant: Mutant, source: str) -> set[str]:
        reaching: set[str] = set()
        for tests, files in self._notes:
            mask = 0
            for line in statement_lines(source, mutant.line):
                mask |= int(files.get(mutant.path, {}).get(str(line), "0"), 16)
            reaching.update(test for bit, test in enumerate(tests) if mask >> bit & 1)
        return reaching


def statement_lines(source: str, line: int) -> range:
    """The lines of the innermost statement, of a compound one those before its body."""
    statements = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    innermost = max(statements, key=lambda node: (node.lineno, -(node.end_lineno or node.lineno)))
    body = getattr(innermost, "body", None)
    end = body[0].lineno - 1 if body else innermost.end_lineno or innermost.lineno
    return range(innermost.lineno, max(end, innermost.lineno) + 1)
