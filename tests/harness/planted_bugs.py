"""Table of the planted bugs of a cluster, and the judges that catch them:

    PYTHONPATH=tests .venv/bin/python -m harness.planted_bugs
    PYTHONPATH=tests .venv/bin/python -m harness.planted_bugs --only vote_not_durable --seeds 1..20

Each bug is the only change in its runs: the plays, their faults and the judges are those of `make sim`. The
exit code is 1 if a bug is not caught.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from harness.cluster_bugs import BUGS
from headrace.simulator.cluster_fault_profiles import PROFILES
from headrace.simulator.run import Options, simulate


class Caught(NamedTuple):
    seed: int
    judge: str
    sentence: str
    processor_s: float


def play(name: str, seed: int) -> Caught | None:
    """One run with the bug; None: no judge objects."""
    bug = BUGS[name]
    began = os.times()
    with bug.plant():
        profile = PROFILES[bug.profile] if bug.profile else None
        outcome = simulate(seed, Options(play=bug.play, cluster_profile=profile))
    if outcome.failure is None:
        return None
    ended = os.times()
    used_s = ended.user + ended.system - began.user - began.system
    return Caught(seed, outcome.failure.judge, outcome.failure.sentence, used_s)


def caught_first(name: str, seeds: range) -> Caught | None:
    """The known seed first: others only if a change of the product has moved it."""
    known = BUGS[name].seed
    for seed in (known, *(seed for seed in seeds if seed != known)):
        caught = play(name, seed)
        if caught is not None:
            return caught
    return None


def batched(seeds: range, size: int) -> Iterator[range]:
    for at in range(0, len(seeds), size):
        yield seeds[at : at + size]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.planted_bugs", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(BUGS), help="this bug; may be repeated")
    parser.add_argument("--seeds", default="1..100", help="a range; 1..100 by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--enough", type=int, default=3, help="catches of a bug; 3 by default")
    parser.add_argument("--say", action="store_true", help="print what the judge said first")
    chosen = parser.parse_args(arguments)
    first, _, last = chosen.seeds.partition("..")
    seeds = range(int(first), int(last or first) + 1)
    print("| planted bug | play | caught by | seeds |\n|---|---|---|---|", flush=True)
    missed = 0
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for name in chosen.only or BUGS:
            found, played = [], 0
            for some in batched(seeds, chosen.jobs * 2):
                played += len(some)
                found += [caught for caught in pool.map(play, [name] * len(some), some) if caught is not None]
                if len(found) >= chosen.enough:
                    break
            missed += not found
            judges = Counter(caught.judge for caught in found).most_common()
            told = ", ".join(f"{judge} ({count})" for judge, count in judges) or "**nobody**"
            quick = sorted(found, key=lambda caught: caught.processor_s)[:3]
            seen = ", ".join(f"{caught.seed} ({caught.processor_s:.1f} s)" for caught in quick)
            where = f"{len(found)} of {played}; quickest {seen}" if found else f"0 of {played}"
            print(f"| {name} | {BUGS[name].play} | {told} | {where} |", flush=True)
            if chosen.say and found:
                print(f"  {quick[0].seed}: {quick[0].sentence}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
