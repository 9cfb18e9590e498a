"""The judges' own assertions tell what they compared, like those of the tests."""

import pytest

pytest.register_assert_rewrite("harness.batches", "harness.log_judge", "harness.log_model")
