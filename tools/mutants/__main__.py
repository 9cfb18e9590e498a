"""Small mistakes in the broker's code, chosen by a seed, and whether the tests notice each of them.

`make mutants MUTANTS=40 SEED=…` draws mutants over storage, node and machines and tries each in a copy of the
tree. The first failure, or too long a run, kills the mutant, if the same tests pass without it. Survivors are
printed as diffs; those listed in explained.txt with a reason are counted apart.
"""

from __future__ import annotations

import argparse
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutants.baseline import Baseline
from mutants.changes import Mutant
from mutants.choice import draw
from mutants.measurement import measure
from mutants.report import explained, key, tell
from mutants.suites import everything, runs, tests_of
from mutants.tree import Tree
from mutants.verdict import Verdict, judge

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache" / "mutants"
RATE_MIN = 0.9  # of the mutants that are not explained


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mutants", type=int, default=40)
    parser.add_argument("--seed", type=int, default=None, help="a fresh one by default")
    parser.add_argument("--seeds", type=int, default=8, help="of the simulator, of each play")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cpu-seconds", type=int, default=300, help="of each run of tests, before it ends")
    parser.add_argument("--skip", action="append", default=[], help="a test that is not to be asked")
    parser.add_argument("--list", action="store_true", help="only say which mutants are drawn")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    # the trees come first: whoever edits this one meanwhile disturbs nobody
    made = [Tree(ROOT, CACHE / f"tree-{number}") for number in range(0 if options.list else options.workers)]
    root = made[0].path if made else ROOT
    mutants = draw(options.mutants, random.Random(seed), root)
    print(f"seed {seed}: {len(mutants)} mutants", flush=True)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.path}:{mutant.line} {mutant.kind}")
        return 0
    tests = tests_of(root)
    reach = measure(list(everything(tests, options.seeds)), made, CACHE, options.cpu_seconds * 3)
    trees: SimpleQueue[Tree] = SimpleQueue()
    for tree in made:
        tree.warm_up([test.as_posix() for test in tests])
        trees.put(tree)
    for tree in made:
        tree.wait()
    reasons = explained()
    baseline = Baseline(options.skip)

    def attend(mutant: Mutant) -> Verdict:
        tree = trees.get()
        try:
            tree.is_warm = not reach.is_imported(mutant, tree.read(mutant.path))
            asked = list(runs(mutant, tree.path, tests, options.seeds, reach))
            verdict = judge(mutant, tree, asked, baseline, options.cpu_seconds)
        finally:
            trees.put(tree)
        if not verdict.killed_by:
            verdict.explained = reasons.get(key(verdict), "")
        fate = f"killed by {verdict.killed_by}" if verdict.killed_by else "SURVIVED"
        if verdict.explained:
            fate = f"equivalent: {verdict.explained}"
        print(f"{mutant.path}:{mutant.line} {mutant.kind}: {fate} ({verdict.seconds} s)", flush=True)
        return verdict

    with ThreadPoolExecutor(options.workers) as pool:
        verdicts = list(pool.map(attend, mutants))
    for tree in made:
        tree.close()
    rate = tell(seed, verdicts, baseline.failing, CACHE / f"seed-{seed}.json")
    return 0 if rate >= RATE_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
