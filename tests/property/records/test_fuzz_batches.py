"""A bounded, seeded share of the batch fuzzer for every test run."""

from harness import mutated_batches
from harness.seeded_cases import run_cases


def test_batches_of_rubbish_raise_nothing_but_bad_records() -> None:
    assert run_cases(mutated_batches.drawn, mutated_batches.one, seed=4, cases=2_500) == 2_500
