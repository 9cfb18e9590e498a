"""`make mutants`: what it changes, what its runs say, and that a test which fails anyway kills no mutant."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

from mutants.baseline import Baseline
from mutants.changes import Mutant, Sites
from mutants.choice import PACKAGES, draw
from mutants.reach import EVERYBODY, Reach, statement_lines
from mutants.report import explained, key
from mutants.suites import PYTEST, Run, runs
from mutants.tree import Outcome, outcome_of
from mutants.verdict import Verdict
from mutants.warm import WarmTests

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
    noted = {
        "tests": [EVERYBODY, "tests/a.py::test", "simulator, logs"],
        "seconds": {"tests/a.py::test": 2.5},
        "lines": {"src/x.py": {"1": "1", "2": "6", "3": "0"}},
    }
    notes.write_text(json.dumps(noted))
    reach.add(["tests/a.py", "tests/b.py", "simulator, logs"], notes)

    def reaching(line: int) -> set[str]:
        return set(
            reach.of(Mutant("src/x.py", line, "sign changed", 0, 0, ""), "def a():\n    b()\n    c()\n")
        )

    assert reaching(2) == {"tests/a.py::test", "simulator, logs", "tests/c.py"}, "c was not measured"
    assert reaching(3) == {"tests/c.py"}
    assert reaching(1) == {"tests/a.py", "tests/b.py", "tests/c.py", "simulator, logs"}
    assert reach.seconds["tests/a.py::test"] == 2.5


def test_a_traced_test_notes_its_lines_and_a_shared_fixture_those_of_its_file(tmp_path: Path) -> None:
    for package in PACKAGES:
        (tmp_path / "src" / "headrace" / package).mkdir(parents=True)
    (tmp_path / "src" / "headrace" / "node" / "x.py").write_text("def a():\n    b = 1\ndef c():\n    d = 1\n")
    tests = "import pytest, x\n@pytest.fixture(scope='module')\ndef shared():\n    x.a()\n"
    (tmp_path / "test_x.py").write_text(
        tests + "def test_c(shared):\n    x.c()\ndef test_none():\n    pass\n"
    )
    command = [
        "-m",
        "mutants.trace",
        "notes.json",
        "x",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "test_x.py",
    ]
    path = f"{ROOT / 'tools'}:{tmp_path / 'src' / 'headrace' / 'node'}"
    subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        check=True,
        capture_output=True,
    )
    reach = Reach(["test_x.py"])
    reach.add(["test_x.py"], tmp_path / "notes.json")
    source = (tmp_path / "src" / "headrace" / "node" / "x.py").read_text()

    def reaching(line: int) -> set[str]:
        return set(reach.of(Mutant("src/headrace/node/x.py", line, "constant + 1", 0, 0, ""), source))

    assert (reaching(2), reaching(4)) == ({"test_x.py"}, {"test_x.py::test_c"})
    assert set(reach.seconds) == {"test_x.py::test_c", "test_x.py::test_none"}


def test_slow_tests_are_asked_after_the_others(tmp_path: Path) -> None:
    (tmp_path / "src/headrace/node").mkdir(parents=True)
    (tmp_path / "src/headrace/node/x.py").write_text("def a():\n    b()\n")
    (tmp_path / "tests/unit/node").mkdir(parents=True)
    files = [Path("tests/unit/node/test_x.py"), Path("tests/unit/node/test_y.py")]
    for file in files:
        (tmp_path / file).write_text("")
    reach = Reach([file.as_posix() for file in files] + ["simulator, logs"])
    reaching = [f"{files[0]}::slow", f"{files[1]}::quick", "simulator, logs"]
    noted = {
        "tests": reaching,
        "seconds": {reaching[0]: 9.0, reaching[1]: 0.1},
        "lines": {"src/headrace/node/x.py": {"2": "7"}},
    }
    (tmp_path / "notes.json").write_text(json.dumps(noted))
    reach.add([file.as_posix() for file in files] + ["simulator, logs"], tmp_path / "notes.json")
    mutant = Mutant("src/headrace/node/x.py", 2, "call left out", 0, 0, "")
    asked = [run.files or run.name for run in runs(mutant, tmp_path, files, 8, reach)]
    assert asked == [(reaching[1],), "simulator, logs", (reaching[0],), (files[0].as_posix(),)]


def test_a_single_test_that_fails_without_the_mutant_is_left_out() -> None:
    run = Run("near", PYTEST, ("tests/a.py::one", "tests/a.py::two"))
    assert run.without({"tests/a.py::one"}) == [*PYTEST, "tests/a.py::two"]
    assert run.is_left_out({"tests/a.py"})
    assert run.is_left_out({"tests/a.py::one", "tests/a.py::two"})
    assert not run.is_left_out({"tests/a.py::one"})


def test_a_mutant_is_tried_in_a_process_that_has_imported_the_tests(tmp_path: Path) -> None:
    source = (
        "def decide(a):\n    def inner():\n        return a + 1\n    return inner()\n"
        "class Box:\n    @property\n    def size(self):\n        return 3\n"
    )
    (tmp_path / "x.py").write_text(source)
    (tmp_path / "tests").mkdir()
    tests = "import x\ndef test_decide():\n    assert x.decide(1) == 2\n"
    tests += "def test_size():\n    assert x.Box().size == 3\n"
    (tmp_path / "tests" / "test_x.py").write_text(tests)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'tools'}"}
    warm = WarmTests(tmp_path, ["tests/test_x.py"], environment)
    warm.wait()

    def failing(before: str, after: str) -> str:
        change = str(tmp_path / "x.py"), source, source.replace(before, after)
        answer = warm.ask(["tests/test_x.py"], [], change, 60)
        return "unable" if answer is None else answer["test"]

    try:
        passed = warm.ask(["tests/test_x.py"], [], None, 60)
        assert passed == {"is_fine": True, "said": "2 passed", "test": ""}
        assert failing("a + 1", "a - 1") == "tests/test_x.py::test_decide"
        assert failing("return 3", "return None") == "tests/test_x.py::test_size"
        assert failing("return 3", "return 1 + 2") == "", "each mutant is gone with its process"
        assert failing("class Box", "def other():\n    return 1\nclass Box") == "unable"
        left_out = warm.ask(["tests/test_x.py"], ["tests/test_x.py::test_size"], None, 60)
        assert left_out is not None
        assert left_out["said"] == "1 passed"
        hangs = str(tmp_path / "x.py"), source, source.replace("return 3", "while True: pass")
        answer = warm.ask(["tests/test_x.py::test_size"], [], hangs, 1)
        assert answer == {"is_fine": False, "said": "more than 1 s of computing", "test": ""}
    finally:
        warm.close()
