"""Frames full of rubbish: whatever a peer sends, decoding it answers with a message or with the peer's fault.

`one` takes the bytes of a frame behind its size. The bytes that it is fed are samples of every request and
response, mutated at random from a seed. `make test` runs a bounded number; for longer:

    python tests/fuzz/fuzz_frames.py --seconds 60 --seed 7
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.mutated_frames import drawn, one
from harness.seeded_cases import main, run_cases

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "5000"))


def test_frames_of_rubbish() -> None:
    assert run_cases(drawn, one, seed=1, cases=CASES) == CASES


if __name__ == "__main__":
    main(drawn, one, __doc__)
