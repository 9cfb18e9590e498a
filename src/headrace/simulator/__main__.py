"""`python -m headrace.simulator`: many seeds, or one again. Exit code 1 at the first failure."""

import argparse
import os
import sys

from headrace.simulator.run import DEFAULT, PLAYS, Options, Outcome, simulate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.simulator", description=__doc__)
    parser.add_argument(
        "--seed", type=int, help="play this one seed, and print what happened before a failure"
    )
    parser.add_argument("--seeds", default="1000", help="a count, or a range as in 500..599")
    parser.add_argument("--seconds", type=float, default=DEFAULT.seconds, help="of trouble in each run")
    parser.add_argument(
        "--play", choices=[*PLAYS, "all"], default="all", help="what is played; all by default"
    )
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        seeds = range(chosen.seed, chosen.seed + 1)
    else:
        first, dots, last = chosen.seeds.partition("..")
        seeds = range(int(first), int(last) + 1) if dots else range(1, int(first) + 1)
    plays = list(PLAYS) if chosen.play == "all" else [chosen.play]
    return max(_run_all(seeds, Options(seconds=chosen.seconds, play=play)) for play in plays)


def _run_all(seeds: range, options: Options) -> int:
    began = os.times().elapsed  # for the report only: no run knows of it
    simulated_s = 0.0
    faults = 0
    for count, seed in enumerate(seeds, 1):
        outcome = simulate(seed, options)
        if outcome.failure is not None:
            print(failure_text(outcome, options.play))
            return 1
        simulated_s += outcome.simulated_s
        faults += outcome.faults
        if count % 50 == 0 or count == len(seeds):
            took_s = max(os.times().elapsed - began, 0.01)
            print(
                f"{options.play}: {count} seeds, {faults} faults, {simulated_s / 3600:.2f} simulated hours, "
                f"{simulated_s / took_s:.0f} times real time",
                flush=True,
            )
    return 0


def failure_text(outcome: Outcome, play: str = DEFAULT.play) -> str:
    """All that is needed to see it again."""
    failure = outcome.failure
    assert failure is not None
    return "\n".join(
        [
            *failure.lines_before,
            "",
            f"seed {outcome.seed} fails at {outcome.simulated_s:.3f} s, event {failure.event_number}:",
            f"  {failure.event[:2000]}",
            f"  {failure.judge}: {failure.sentence}",
            f"replay: make sim SEED={outcome.seed} PLAY={play}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
