"""docs/ARCHITECTURE.md says what holds without exception; each such sentence names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "ARCHITECTURE.md"

PROMISE = re.compile(r"\b(never|always|only)\b", re.IGNORECASE)
MARK = re.compile(r"\[\^([\w-]+)\]")
NOTE = re.compile(r"^\[\^([\w-]+)\]: (.+)$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)((?:::\w+)+)`")


def notes() -> dict[str, str]:
    return dict(NOTE.findall(PAGE.read_text()))


def sentences() -> list[str]:
    """Of the page, each with the marks behind its full stop."""
    text = PAGE.read_text()
    protected = re.sub(r"([.!?])((?:\[\^[\w-]+\])+)", r"\2\1", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:\d+\.|[-|#]))", NOTE.sub("", protected))
    return [one for block in blocks for one in re.split(r"(?<=[.!?])\s+|\|", " ".join(block.split()))]


def exists(path: str, names: list[str]) -> bool:
    file = ROOT / path
    if not file.exists():
        return False
    body: list[ast.stmt] = ast.parse(file.read_text()).body
    for name in names:
        found = [
            node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
        ]
        if not found:
            return False
        body = found[0].body
    return True


def test_a_sentence_without_exceptions_names_its_test() -> None:
    known = notes()
    for sentence in sentences():
        if PROMISE.search(sentence):
            assert any(mark in known for mark in MARK.findall(sentence)), f"names no test: {sentence}"


def test_the_named_tests_exist() -> None:
    known = notes()
    assert known
    for mark, note in known.items():
        found = TEST.findall(note)
        assert found, f"[^{mark}] names no test: {note}"
        for path, names in found:
            assert exists(path, names.strip(":").split("::")), f"[^{mark}]: there is no {path}{names}"


def test_every_note_is_used() -> None:
    assert set(MARK.findall(NOTE.sub("", PAGE.read_text()))) == set(notes())
