"""Tests do not import tests: what two of them share is in `tests/harness`, or in a module that is not a test.

Otherwise a change of one test breaks another, and nobody finds what they share by the name of a file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
RUN_BY_PYTEST = ("test_", "fuzz_", "conftest")
# Their subject are tests: they plant bugs, and these tests have to fail.
EXCUSED = (
    "server/test_planted_tls_bugs.py",
    "unit/node/test_planted_login_bugs.py",
    "unit/node/test_planted_rights_bugs.py",
)
NAME = re.compile(rf"\b(?:{'|'.join(RUN_BY_PYTEST)})\w*")


def imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each with its line; of `from package import name`, the name may be a module as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{each.name}") for each in node.names)


def is_test(module: str) -> bool:
    path = TESTS.joinpath(*module.split(".")).with_suffix(".py")
    return path.stem.startswith(RUN_BY_PYTEST) and path.exists()


def test_tests_do_not_import_tests() -> None:
    texts = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    stems = {path.stem for path in texts if path.stem.startswith(RUN_BY_PYTEST)}
    found = [
        f"{path.relative_to(TESTS)}:{line}: {module}"
        for path, text in texts.items()
        if not stems.isdisjoint(NAME.findall(text))  # few files name a test: only these are parsed
        for line, module in imported_modules(ast.parse(text))
        if is_test(module.removeprefix("tests.")) and str(path.relative_to(TESTS)) not in EXCUSED
    ]
    assert not found, "\n".join(found)


def test_a_test_is_found_by_its_name() -> None:
    assert is_test("docs.test_imports_of_tests")
    assert not is_test("docs.fenced")
    assert not is_test("docs.test_of_nothing")
