"""A bounded, seeded share of the batch fuzzer for every test run."""

from fuzz import fuzz_batches


def test_batches_of_rubbish_raise_nothing_but_bad_records() -> None:
    assert fuzz_batches.run(seed=4, cases=2_500) == 2_500
