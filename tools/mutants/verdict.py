"""The verdict about one mutant: which test noticed it, or that none did."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from mutants.baseline import Baseline
from mutants.changes import Mutant
from mutants.suites import Run
from mutants.tree import Tree


@dataclass
class Verdict:
    mutant: Mutant
    diff: str
    killed_by: str = ""  # empty: it survived
    explained: str = ""
    seconds: float = 0.0
    stages: list[str] = field(default_factory=list)


def judge(mutant: Mutant, tree: Tree, runs: Iterable[Run], baseline: Baseline, cpu_s: int) -> Verdict:
    """Runs tests in this tree until one fails because of the mutant; leaves the tree without it.

    A run that computes for more than `cpu_s` seconds has failed.
    """
    source = tree.read(mutant.path)
    changed = mutant.applied(source)
    diff = "".join(
        difflib.unified_diff(
            source.splitlines(keepends=True),
            changed.splitlines(keepends=True),
            mutant.path,
            f"{mutant.path} ({mutant.kind})",
            n=2,
        )
    )
    verdict = Verdict(mutant, diff)
    began = time.monotonic()
    tree.write(mutant.path, changed)
    try:
        for run in runs:
            while not run.is_left_out(baseline.failing):
                left_out = frozenset(baseline.failing)
                outcome = tree.run(run.without(left_out), cpu_s)
                if outcome.is_fine:
                    break
                tree.write(mutant.path, source)
                if not baseline.explains(run, outcome, left_out, tree, cpu_s):
                    verdict.killed_by = f"{run.name}: {outcome.said}"
                    break
                tree.write(mutant.path, changed)
            verdict.stages.append(run.name)
            if verdict.killed_by:
                break
    finally:
        tree.write(mutant.path, source)
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict
