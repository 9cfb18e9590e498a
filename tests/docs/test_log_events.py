"""docs/log-events.md names every event that a node logs, with its level, and no other."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "log-events.md"
LEVELS = ("debug", "info", "warning", "error")
LOGGING = ("node", "server")  # packages that log


def event_of(call: ast.Call) -> tuple[str, str] | None:
    """Level and name: `report(level, name, …)`, `sometimes(now, level, name, …)`, `log.warning(name, …)`."""
    if not isinstance(call.func, ast.Attribute):
        return None
    texts = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args]
    if call.func.attr in LEVELS and texts and isinstance(texts[0], str):
        return call.func.attr, texts[0]
    for level, name in pairwise(texts):
        if level in LEVELS and isinstance(name, str):
            return str(level), name
    return None


def logged() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for package in LOGGING:
        for path in (ROOT / "src" / "headrace" / package).rglob("*.py"):
            calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
            found.update(event for call in calls if (event := event_of(call)) is not None)
    return found


def described() -> set[tuple[str, str]]:
    """Of each row of the tables; levels are those of its events, or one for all of them."""
    found: set[tuple[str, str]] = set()
    for names, levels in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE):
        events = re.findall(r"`(\w+)`", names)
        each = levels.split(", ")
        found.update(zip(each if len(each) > 1 else each * len(events), events, strict=True))
    return found


def test_every_event_of_the_log_is_described() -> None:
    assert sorted(described()) == sorted(logged())


def test_what_counts_as_an_event() -> None:
    source = "a.report('error', 'full', x=1); b.sometimes(1, 'info', 'closed'); c.warning('w'); d.get('info')"
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = {event for call in calls if (event := event_of(call)) is not None}
    assert found == {("error", "full"), ("info", "closed"), ("warning", "w")}
