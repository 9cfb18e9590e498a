"""What tests of several kinds share, and benchmarks: brokers as processes, models, judges, wire frames.

The judges' own assertions tell what they compared, like those of the tests; pytest has to hear of them before
they are imported.
"""

import pytest

pytest.register_assert_rewrite(
    "harness.batches",
    "harness.log_judge",
    "harness.log_model",
    "harness.wait",
)
