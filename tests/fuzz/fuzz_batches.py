"""Batches full of rubbish: whatever a producer or a disk hands over is read, or refused as BadRecords.

`one` takes the bytes of a produce request's records field. The checksum is made right again before, or no
rubbish would get past it. Both forms of the codec look at the records and have to agree, word by word.
`make test` runs a bounded number; for longer:

    python tests/fuzz/fuzz_batches.py --seconds 60 --seed 7
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.mutated_batches import drawn, one
from harness.seeded_cases import main, run_cases

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "5000"))


def test_batches_of_rubbish() -> None:
    assert run_cases(drawn, one, seed=1, cases=CASES) == CASES


if __name__ == "__main__":
    main(drawn, one, __doc__)
