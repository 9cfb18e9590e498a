"""Many runs in several processes; their results are reported in the order of the seeds.

A run depends only on its seed and its options, so any process can run it.
"""

import gc
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

from headrace.simulator.run import Options, Outcome, simulate

# Runs differ in length: this many per process are handed out before the oldest has to be over.
AHEAD = 4

# A run makes objects all the time and leaves few cycles, most of them at its end (3 MB): with the default of
# 700 objects the collector takes a tenth of the time.
OBJECTS_PER_COLLECTION = 50_000


def collect_seldom() -> None:
    """For a process that does nothing but runs."""
    gc.freeze()  # modules and codecs stay
    gc.set_threshold(OBJECTS_PER_COLLECTION)


def outcomes(seeds: Iterable[int], options: Options, jobs: int) -> Generator[Outcome]:
    """Whoever needs no more of them closes the iterator, and nothing more is played."""
    if jobs == 1:
        yield from (simulate(seed, options) for seed in seeds)
        return
    left = iter(seeds)
    with ProcessPoolExecutor(jobs, get_context("spawn"), collect_seldom) as pool:
        played: deque[Future[Outcome]] = deque()
        try:
            while True:
                wanted = islice(left, jobs * AHEAD - len(played))
                played.extend(pool.submit(simulate, seed, options) for seed in wanted)
                if not played:
                    return
                yield played.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
