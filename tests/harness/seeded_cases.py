"""Cases from a seed, each tried on its own, until their number or the time is used up."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable


def run_cases(
    draw: Callable[[random.Random], bytes],
    check: Callable[[bytes], None],
    *,
    seed: int,
    cases: int,
    seconds: float = float("inf"),
) -> int:
    """How many there were. A failing case can be drawn again by its seed and number, and is shown in hex."""
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    done = 0
    while done < cases and time.monotonic() < end:
        data = draw(rng)
        try:
            check(data)
        except Exception as fault:
            fault.add_note(f"seed {seed}, case {done}: {data.hex()}")
            raise
        done += 1
    return done


def main(
    draw: Callable[[random.Random], bytes], check: Callable[[bytes], None], description: str | None
) -> None:
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--seconds", type=float, default=10.0)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    print(run_cases(draw, check, seed=given.seed, cases=sys.maxsize, seconds=given.seconds), "cases")
