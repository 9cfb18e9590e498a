"""`make mutants`: what it changes, what its runs say, and that a test which fails anyway kills no mutant."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

from mutants.baseline import Baseline
from mutants.changes import Mutant, Sites
from mutants.choice import draw
from mutants.reach import EVERYBODY, Reach, statement_lines
from mutants.report import explained, key
from mutants.suites import PYTEST, Run
from mutants.tree import Outcome, outcome_of
from mutants.verdict import Verdict

ROOT = Path(__file__).parents[3]


class FakeTree:
    """Runs nothing: says which of the tests that were asked fails."""

    def __init__(self, outcome: Callable[[list[str]], Outcome]) -> None:
        self._outcome = outcome
        self.asked: list[list[str]] = []

    def run(self, arguments: list[str], cpu_s: int) -> Outcome:
        self.asked.append(arguments)
        return self._outcome(arguments)


def test_what_a_run_says() -> None:
    output = "..F\nE   assert 1\nFAILED tests/unit/test_a.py::test_b[c d] - assert 1 - 2\n1 failed in 1 s\n"
    outcome = outcome_of(1, output)
    assert (outcome.is_fine, outcome.test) == (False, "tests/unit/test_a.py::test_b[c d]")
    assert outcome_of(2, "ERROR tests/unit/test_a.py\n").test == "tests/unit/test_a.py"
    assert outcome_of(1, "seed 3 failed\n") == Outcome(False, "seed 3 failed")
    assert outcome_of(5, "no tests ran\n").is_fine


def test_a_test_that_passes_without_the_mutant_has_killed_it() -> None:
    tree = FakeTree(lambda _: Outcome(True, "1 passed"))
    baseline = Baseline()
    run = Run("near", PYTEST, ("tests/a.py",))
    failed = Outcome(False, "FAILED", "tests/a.py::test")
    for _ in range(2):
        assert not baseline.explains(run, failed, frozenset(), tree, 300)
    assert tree.asked == [[*PYTEST, "tests/a.py::test"]]  # once for all mutants
    assert not baseline.failing


def test_a_test_that_fails_without_the_mutant_is_left_out() -> None:
    tree = FakeTree(lambda _: Outcome(False, "FAILED", "tests/a.py::test"))
    baseline = Baseline()
    run = Run("near", PYTEST, ("tests/a.py", "tests/b.py"))
    failed = Outcome(False, "FAILED", "tests/a.py::test")
    assert baseline.explains(run, failed, frozenset(), tree, 300)
    assert run.without(baseline.failing) == [
        *PYTEST,
        "--deselect",
        "tests/a.py::test",
        "tests/a.py",
        "tests/b.py",
    ]
    assert baseline.explains(run, failed, frozenset(), tree, 300), "another worker's run, which had begun"
    assert not baseline.explains(run, failed, frozenset(baseline.failing), tree, 300)
    assert len(tree.asked) == 1


def test_a_file_that_cannot_be_collected_is_left_out() -> None:
    tree = FakeTree(lambda _: Outcome(False, "ERROR", "tests/a.py"))
    baseline = Baseline()
    run = Run("near", PYTEST, ("tests/a.py", "tests/b.py"))
    assert baseline.explains(run, Outcome(False, "ERROR", "tests/a.py"), frozenset(), tree, 300)
    assert run.without(baseline.failing) == [*PYTEST, "tests/b.py"]
    assert Run("near", PYTEST, ("tests/a.py",)).is_left_out(baseline.failing)


def test_a_run_that_takes_too_long_without_the_mutant_is_left_out_and_no_other() -> None:
    tree = FakeTree(lambda _: Outcome(False, "timeout"))
    baseline = Baseline()
    slow = Run("near", PYTEST, ("tests/a.py",))
    other = Run("near", PYTEST, ("tests/b.py",))
    assert baseline.explains(slow, Outcome(False, "timeout"), frozenset(), tree, 300)
    assert slow.is_left_out(baseline.failing)
    assert not other.is_left_out(baseline.failing)
    play = Run("simulator, logs", ("-m", "headrace.simulator"))
    assert baseline.explains(play, Outcome(False, "seed 3"), frozenset(), tree, 300)
    assert play.is_left_out(baseline.failing)


def kinds_of(body: str) -> list[tuple[str, str]]:
    """Each kind of change, with the changed line."""
    source = "def decide(a, b, log):\n" + indent(body, "    ")
    found = []
    for mutant in Sites("decide.py", source).found:
        changed = mutant.applied(source).splitlines()
        found.append((mutant.kind, " | ".join(line.strip() for line in changed[mutant.line - 1 :])))
    return found


def test_the_kinds_of_changes() -> None:
    assert kinds_of("return a < b") == [
        ("returns None", "return None"),
        ("comparison flipped", "return a <= b"),
    ]
    assert kinds_of("a.x += b") == [("sign changed", "a.x -= b")]
    assert kinds_of("a.close()\nb.close()") == [
        ("call left out", "pass | b.close()"),
        ("call left out", "pass"),
        ("statements swapped", "b.close() | a.close()"),
    ]
    assert kinds_of("if not a or b:\n    raise ValueError(a + 1)") == [
        ("condition negated", "if not (not a or b): | raise ValueError(a + 1)"),
        ("and/or exchanged", "if (not a and b): | raise ValueError(a + 1)"),
        ("not left out", "if a or b: | raise ValueError(a + 1)"),
    ]


def test_messages_types_and_metrics_are_left_alone() -> None:
    assert kinds_of("log.warning('late by', a + 1)") == []
    assert kinds_of("assert a > 0") == []
    assert kinds_of("a: list[int]") == []
    assert kinds_of("a.metrics.late += 1") == []


def test_a_seed_draws_the_same_mutants_again(tmp_path: Path) -> None:
    for package in ("storage", "node", "machines", "server"):
        file = tmp_path / "src" / "headrace" / package / "decide.py"
        file.parent.mkdir(parents=True)
        file.write_text("def decide(a, b):\n    a += b\n    return a < b\n")
    drawn = draw(9, random.Random(7), tmp_path)
    assert drawn == draw(9, random.Random(7), tmp_path)
    assert len(set(drawn)) == 9
    assert {Path(mutant.path).parent.name for mutant in drawn} == {"storage", "node", "machines"}


def test_every_explained_mutant_is_one_of_code_that_is_still_there() -> None:
    for path, removed, _ in explained():
        source = " ".join((ROOT / path).read_text().split())
        assert " ".join(removed.split()) in source, (
            f"{path}: take the block of {removed!r} out of explained.txt"
        )


def test_the_explanation_of_a_mutant_is_found_by_its_diff() -> None:
    (path, removed, added), reason = next(iter(explained().items()))
    diff = f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n before\n-    {removed}\n+    {added}\n after\n"
    verdict = Verdict(Mutant(path, 1, "constant + 1", 0, 0, ""), diff)
    assert explained()[key(verdict)] == reason != ""


def test_the_lines_of_a_statement() -> None:
    source = "def a(b):\n    if (\n        b\n    ):\n        c(\n            b,\n        )\n    return b\n"
    assert [statement_lines(source, line) for line in (3, 6, 8)] == [range(2, 5), range(5, 8), range(8, 9)]


def test_only_what_executes_the_changed_line_is_asked(tmp_path: Path) -> None:
    reach = Reach(["tests/a.py", "tests/b.py", "tests/c.py", "simulator, logs"])
    notes = tmp_path / "notes.json"
    lines = {"1": [EVERYBODY], "2": ["tests/a.py", "simulator, logs"], "3": []}
    notes.write_text(json.dumps({"src/x.py": lines}))
    reach.add(["tests/a.py", "tests/b.py", "simulator, logs"], notes)

    def reaching(line: int) -> set[str]:
        return set(
            reach.of(Mutant("src/x.py", line, "sign changed", 0, 0, ""), "def a():\n    b()\n    c()\n")
        )

    assert reaching(2) == {"tests/a.py", "simulator, logs", "tests/c.py"}, "c was not measured"
    assert reaching(3) == {"tests/c.py"}
    assert reaching(1) == {"tests/a.py", "tests/b.py", "tests/c.py", "simulator, logs"}
