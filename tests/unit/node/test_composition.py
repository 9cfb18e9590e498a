"""A node is a composition: parts take what they use, and no part reaches through another to a third."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace.node

NODE = Path(headrace.node.__file__).parent

# These put the parts together, and so may name all of them.
COMPOSING = {"node.py", "broker.py", "broker_handlers.py", "controller.py", "controller_handlers.py"}

# What each of them may be imported by, inside node/.
IMPORTED_BY = {
    "headrace.node.node": set[str](),
    "headrace.node.broker": {"node.py", "broker_handlers.py"},
    "headrace.node.broker_handlers": {"broker.py"},
    "headrace.node.controller": {"node.py", "controller_handlers.py"},
    "headrace.node.controller_handlers": {"controller.py"},
}

# Names under which the parts of a node are held by those who use them.
PARTS = {
    "access",
    "broker",
    "controller",
    "deadlines",
    "decisions",
    "directories",
    "fetch_sessions",
    "append_queues",
    "groups",
    "housekeeping",
    "jobs",
    "lifecycle",
    "long_frames",
    "markers",
    "metadata",
    "moves",
    "node",
    "partitions",
    "ports",
    "producer_ids",
    "reports",
    "routes",
    "sinks",
    "slicing",
    "strays",
    "transactions",
    "waiting",
}

# Values that have a field of such a name: requests and replies, a machine's own state.
VALUES = {"body", "image", "last", "machine", "order", "reply", "session", "state", "topic", "transaction"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(NODE.rglob("*.py")):
        yield str(path.relative_to(NODE)), ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    for one in ast.walk(tree):
        if isinstance(one, ast.ImportFrom) and one.module is not None:
            yield one.module
            yield from (f"{one.module}.{alias.name}" for alias in one.names)
        elif isinstance(one, ast.Import):
            yield from (alias.name for alias in one.names)


def reached_through(tree: ast.AST) -> Iterator[str]:
    """Every `x.part.y` whose x is not the object itself."""
    for one in ast.walk(tree):
        if not isinstance(one, ast.Attribute) or not isinstance(one.value, ast.Attribute):
            continue
        part, holder = one.value.attr.lstrip("_"), one.value.value
        name = holder.id if isinstance(holder, ast.Name) else getattr(holder, "attr", "").lstrip("_")
        if part in PARTS and name != "self" and name not in VALUES:
            yield f"line {one.lineno}: {ast.unparse(one)}"


def test_only_whoever_composes_them_imports_the_node_and_its_roles() -> None:
    wrong = [
        f"{name} imports {module}"
        for name, tree in sources()
        for module in imported(tree)
        if name not in IMPORTED_BY.get(module, {name})
    ]
    assert wrong == []


def test_nothing_reaches_through_one_part_to_another() -> None:
    wrong = [
        f"{name}, {where}"
        for name, tree in sources()
        if name not in COMPOSING
        for where in reached_through(tree)
    ]
    assert wrong == []


def test_the_check_sees_what_it_looks_for() -> None:
    looked_at = ast.parse("partition.node.reports.report(1)\nself._broker.partitions.all()\nself._jobs.run()")
    assert sorted(reached_through(looked_at)) == [
        "line 1: partition.node.reports",
        "line 1: partition.node.reports.report",
        "line 2: self._broker.partitions.all",
    ]


def test_no_file_is_longer_than_one_idea() -> None:
    lines = {str(path.relative_to(NODE)): len(path.read_text().splitlines()) for path in NODE.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > 500} == {}
