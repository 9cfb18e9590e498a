"""Words that docs, help texts, messages, docstrings and comments do not use, and what to write instead.

CONTRIBUTING.md says how we write. Tests are included: their texts are read, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "docs", "examples", "benchmarks", "tools", "tests")
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "setup.py")
ENDINGS = (".py", ".pxd", ".md", ".toml", ".txt", ".yaml", ".yml", ".sh")
HERE = Path(__file__)

# pattern → what to write
REJECTED = {
    r"\banew\b": "again",
    r"\binside of\b": "inside",
    r"\b(?:told|tells|tell|telling) of\b": "reported, or: knows about",
    r"\bwarned of\b": "the subject that warns, as in: the broker warns about",
    r"\bdear(?:er)?\b": "expensive",
    r"\bat (?:its|their) birth\b": "in the constructor",
    r"\b(?:thereof|wherein|thereby|thereupon|whereupon|upon)\b": "plain prepositions",
    r"\b(?:at one|this|at the) door\b": "the check or the place that is meant",
    r"\bbefall(?:s|en)?\b|\bbefell\b": "happens to",
    r"\b[Tt]hrown away\b": "discarded",
    r"\b[Aa]t the edge\b": "at the limit",
    # "is no JSON"; but "there is no", "is no longer" and "is no more than" are ordinary
    r"(?<!there )(?<!There )\b(?:is|are|was|were) no "
    r"(?!longer|more|less|later|earlier|larger|smaller|slower|faster|worse|better|newer|older)": "is not a",
}
PATTERNS = {re.compile(pattern): instead for pattern, instead in REJECTED.items()}


def texts() -> list[Path]:
    found = [ROOT / name for name in FILES if (ROOT / name).exists()]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in ENDINGS and path != HERE]
    return sorted(found)


def complaints(text: str) -> list[tuple[int, str, str]]:
    """Line, what was found, what to write instead."""
    in_text = {pattern: instead for pattern, instead in PATTERNS.items() if pattern.search(text)}
    if not in_text:
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in in_text.items():
            if match := pattern.search(line):
                found.append((number, match[0], instead))
    return found


def test_no_text_uses_a_rejected_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word!r}: write {instead!r}"
        for path in texts()
        for number, word, instead in complaints(path.read_text())
    ]
    assert not found, f"{len(found)} places\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("the value is no JSON", 1),
        ("there is no topic", 0),
        ("it is no longer here", 0),
        ("the answer is no", 0),
        ("they begin anew", 1),
        ("renewed", 0),
        ("the broker tells of a rebalance", 1),
        ("the broker tells the client", 0),
    ],
)
def test_what_is_found(text: str, count: int) -> None:
    assert len(complaints(text)) == count
