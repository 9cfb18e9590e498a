"""Logins full of rubbish: whatever a client sends before it is in, the node refuses it, or lets it in as who
it is, and goes on.

Tokens and SASL messages of all mechanisms are mutated at random from a seed. `make test` runs a bounded
number; for longer:

    python tests/fuzz/fuzz_logins.py --seconds 60 --seed 7
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.mutated_logins import LoginCases, check_token, login, token
from harness.seeded_cases import main, run_cases

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "10000"))


def test_tokens_of_rubbish() -> None:
    assert run_cases(token, check_token, seed=1, cases=CASES) == CASES


def test_logins_of_rubbish() -> None:
    assert run_cases(login, LoginCases().check, seed=1, cases=CASES) == CASES


if __name__ == "__main__":
    main(login, LoginCases().check, __doc__)
