"""HTTP requests full of rubbish: whatever a client sends, it gets an answer or is cut off, and nothing grows.

`one` takes the bytes of a connection, and reads them whole and in pieces: both must be understood in the same
way. The bytes that it is fed are requests to the registry, mutated at random from a seed. `make test` runs a
bounded number; for longer:

    python tests/fuzz/fuzz_http.py --seconds 60 --seed 7
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.mutated_http import drawn, one
from harness.seeded_cases import main, run_cases

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "5000"))
GROWTH_BYTES_MAX = 5_000_000


def test_requests_of_rubbish() -> None:
    run_cases(drawn, one, seed=2, cases=200)  # what is loaded and cached once
    tracemalloc.start()
    try:
        assert run_cases(drawn, one, seed=1, cases=CASES) == CASES
        assert tracemalloc.get_traced_memory()[0] < GROWTH_BYTES_MAX
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    main(drawn, one, __doc__)
