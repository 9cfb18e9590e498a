"""A bounded, seeded share of the batch fuzzer for every test run."""

from fuzz import fuzz_batches
from harness.fuzz_cases import run_cases


def test_batches_of_rubbish_raise_nothing_but_bad_records() -> None:
    assert run_cases(fuzz_batches.drawn, fuzz_batches.one, seed=4, cases=2_500) == 2_500
