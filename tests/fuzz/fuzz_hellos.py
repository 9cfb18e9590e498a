"""TLS handshakes full of rubbish: whatever a client sends first, the listener waits for more or refuses it.

ClientHellos are mutated at random from a seed, and come in pieces. `make test` runs a bounded number; for
longer:

    python tests/fuzz/fuzz_hellos.py --seconds 60 --seed 7
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.mutated_hellos import HelloCases, pieces
from harness.seeded_cases import main, run_cases

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "10000"))


@pytest.mark.parametrize("versions", ["TLSv1.2,TLSv1.3", "TLSv1.2"])
def test_hellos_of_rubbish(tmp_path: Path, versions: str) -> None:
    cases = HelloCases(tmp_path, ssl_enabled_protocols=versions)
    assert run_cases(pieces, cases.check, seed=1, cases=CASES // 2) == CASES // 2
    assert cases.answered > CASES // 100  # some were still good


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(pieces, HelloCases(Path(directory)).check, __doc__)
