"""The tests that fail without any mutant: they kill nothing, and are left out as soon as they are known."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from mutants.suites import PYTEST, Run
from mutants.tree import Outcome


class Runs(Protocol):
    """A tree as far as it matters here."""

    def run(self, arguments: list[str], cpu_s: int) -> Outcome: ...


class Baseline:
    """What fails without any mutant, found out as soon as it seems to have killed one."""

    def __init__(self, failing: Iterable[str] = ()) -> None:
        self.failing: dict[str, str] = dict.fromkeys(failing, "left out on the command line")
        self._passing: set[tuple[str, ...]] = set()

    def explains(self, run: Run, outcome: Outcome, left_out: Collection[str], tree: Runs, cpu_s: int) -> bool:
        """Whether it fails in the same place in this tree, which has no mutant. Left out: what it skipped."""
        if outcome.test in left_out:
            return False  # it was not even asked: the mutant breaks more than this test
        if outcome.test in self.failing:
            return True  # another worker has found out meanwhile
        arguments = [*PYTEST, outcome.test] if outcome.test else run.without(left_out)
        if tuple(arguments) in self._passing:
            return False
        alone = tree.run(arguments, cpu_s)
        if alone.is_fine:
            self._passing.add(tuple(arguments))
            return False
        culprit = outcome.test or alone.test or run.key
        if culprit not in self.failing:  # else another worker has found out meanwhile
            self.failing[culprit] = alone.said
            print(f"fails without a mutant, and is left out: {culprit}: {alone.said}", flush=True)
        return True
