"""Which tests execute a line, so that the others need not run against a mutant of it.

A function whose answer is cached is seen in the
first test only that calls it: the tests of the changed module itself run in any case.
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
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._names = frozenset(names)  # of all test files, and of the plays
        self._unmeasured = set(self._names)

    def add(self, names: Iterable[str], notes: Path) -> None:
        """What a traced run of these has noted."""
        for path, lines in json.loads(notes.read_text()).items():
            for line, reaching in lines.items():
                self._lines[path][int(line)].update(reaching)
        self._unmeasured.difference_update(names)

    def of(self, mutant: Mutant, source: str) -> Collection[str]:
        """The test files and plays that execute the changed line."""
        reaching = set(self._unmeasured)
        for line in statement_lines(source, mutant.line):
            reaching |= self._lines[mutant.path][line]
        return self._names if EVERYBODY in reaching else reaching


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
