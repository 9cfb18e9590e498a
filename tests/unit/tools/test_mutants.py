"""The baseline of `make mutants`: a test that fails anyway kills no mutant."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    path = Path(__file__).parents[3] / "tools" / "mutants.py"
    spec = importlib.util.spec_from_file_location("mutants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class FakeTree:
    """Runs nothing: says which of the tests that were asked fails."""

    def __init__(self, outcome: Callable[[list[str]], object]) -> None:
        self._outcome = outcome
        self.asked: list[list[str]] = []

    def run(self, arguments: list[str], cpu_s: int) -> object:
        self.asked.append(arguments)
        return self._outcome(arguments)


def test_what_a_run_says(mutants: ModuleType) -> None:
    output = "..F\nE   assert 1\nFAILED tests/unit/test_a.py::test_b[c d] - assert 1 - 2\n1 failed in 1 s\n"
    outcome = mutants.outcome_of(1, output)
    assert (outcome.is_fine, outcome.test) == (False, "tests/unit/test_a.py::test_b[c d]")
    assert mutants.outcome_of(2, "ERROR tests/unit/test_a.py\n").test == "tests/unit/test_a.py"
    assert mutants.outcome_of(1, "seed 3 failed\n") == mutants.Outcome(False, "seed 3 failed")
    assert mutants.outcome_of(5, "no tests ran\n").is_fine


def test_a_test_that_passes_without_the_mutant_has_killed_it(mutants: ModuleType) -> None:
    tree = FakeTree(lambda _: mutants.Outcome(True, "1 passed"))
    baseline = mutants.Baseline()
    run = mutants.Run("near", mutants.PYTEST, ("tests/a.py",))
    failed = mutants.Outcome(False, "FAILED", "tests/a.py::test")
    for _ in range(2):
        assert not baseline.explains(run, failed, frozenset(), tree, 300)
    assert tree.asked == [[*mutants.PYTEST, "tests/a.py::test"]]  # once for all mutants
    assert not baseline.failing


def test_a_test_that_fails_without_the_mutant_is_left_out(mutants: ModuleType) -> None:
    tree = FakeTree(lambda _: mutants.Outcome(False, "FAILED", "tests/a.py::test"))
    baseline = mutants.Baseline()
    run = mutants.Run("near", mutants.PYTEST, ("tests/a.py", "tests/b.py"))
    failed = mutants.Outcome(False, "FAILED", "tests/a.py::test")
    assert baseline.explains(run, failed, frozenset(), tree, 300)
    assert run.without(baseline.failing) == [
        *mutants.PYTEST,
        "--deselect",
        "tests/a.py::test",
        "tests/a.py",
        "tests/b.py",
    ]
    assert baseline.explains(run, failed, frozenset(), tree, 300), "another worker's run, which had begun"
    assert not baseline.explains(run, failed, frozenset(baseline.failing), tree, 300)
    assert len(tree.asked) == 1


def test_a_file_that_cannot_be_collected_is_left_out(mutants: ModuleType) -> None:
    tree = FakeTree(lambda _: mutants.Outcome(False, "ERROR", "tests/a.py"))
    baseline = mutants.Baseline()
    run = mutants.Run("near", mutants.PYTEST, ("tests/a.py", "tests/b.py"))
    assert baseline.explains(run, mutants.Outcome(False, "ERROR", "tests/a.py"), frozenset(), tree, 300)
    assert run.without(baseline.failing) == [*mutants.PYTEST, "tests/b.py"]
    assert mutants.Run("near", mutants.PYTEST, ("tests/a.py",)).is_left_out(baseline.failing)


def test_a_run_that_takes_too_long_without_the_mutant_is_left_out_and_no_other(mutants: ModuleType) -> None:
    tree = FakeTree(lambda _: mutants.Outcome(False, "timeout"))
    baseline = mutants.Baseline()
    slow = mutants.Run("near", mutants.PYTEST, ("tests/a.py",))
    other = mutants.Run("near", mutants.PYTEST, ("tests/b.py",))
    assert baseline.explains(slow, mutants.Outcome(False, "timeout"), frozenset(), tree, 300)
    assert slow.is_left_out(baseline.failing)
    assert not other.is_left_out(baseline.failing)
    play = mutants.Run("simulator, logs", ("-m", "headrace.simulator"))
    assert baseline.explains(play, mutants.Outcome(False, "seed 3"), frozenset(), tree, 300)
    assert play.is_left_out(baseline.failing)
