"""`python -m headrace.simulator`: runs many seeds, or repeats one. The exit code is 1 if a run fails."""

import argparse
import os
import sys
from contextlib import closing

from headrace.simulator.cluster_fault_profiles import PROFILES
from headrace.simulator.many_runs import collect_seldom, outcomes
from headrace.simulator.report import Tally, failure_line, failure_text
from headrace.simulator.run import ALL_PLAYS, DEFAULT, PLAYS, Options

SEEDS_PER_LINE = 50


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed, and print the events before a failure")
    parser.add_argument("--seeds", default="1000", help="a count, or a range such as 500..599")
    parser.add_argument(
        "--seconds", type=float, default=DEFAULT.seconds, help="simulated seconds with faults in each run"
    )
    parser.add_argument(
        "--play",
        choices=[*ALL_PLAYS, "all"],
        default="all",
        help="the scenario; by default all scenarios of one node, one after the other",
    )
    parser.add_argument(
        "--profile",
        choices=list(PROFILES),
        help="fault profile of a cluster, for all seeds; by default the number of the seed chooses it",
    )
    parser.add_argument(
        "--jobs", type=_count, default=os.cpu_count() or 1, help="processes; by default one per core"
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="continue after a failure; print the first failure of each judge in full, others briefly",
    )
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        seeds = range(chosen.seed, chosen.seed + 1)
    else:
        first, dots, last = chosen.seeds.partition("..")
        seeds = range(int(first), int(last) + 1) if dots else range(1, int(first) + 1)
    plays = list(PLAYS) if chosen.play == "all" else [chosen.play]
    jobs = min(chosen.jobs, len(seeds))
    if jobs == 1:
        collect_seldom()
    profile = PROFILES[chosen.profile] if chosen.profile else None
    return max(
        _run_all(
            seeds,
            Options(seconds=chosen.seconds, play=play, cluster_profile=profile),
            jobs,
            keeps_going=chosen.keep_going,
        )
        for play in plays
    )


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count}: must be at least 1")
    return count


def _run_all(seeds: range, options: Options, jobs: int, *, keeps_going: bool) -> int:
    began = os.times().elapsed  # for the report only: no run knows of it
    tally = Tally(options.play)
    told: set[str] = set()  # judges that have objected
    with closing(outcomes(seeds, options, jobs)) as played:
        for outcome in played:
            tally.add(outcome)
            if outcome.failure is not None:
                is_first = outcome.failure.judge not in told
                told.add(outcome.failure.judge)
                print(failure_text(outcome) if is_first else failure_line(outcome), flush=True)
                if not keeps_going:
                    return 1
            if tally.runs % SEEDS_PER_LINE == 0 or tally.runs == len(seeds):
                print(tally.line(os.times().elapsed - began), flush=True)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
