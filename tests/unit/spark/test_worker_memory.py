"""Objects that stay are hidden from the collector: in Spark's reused workers only, and once."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import gc, sys
from importlib.machinery import ModuleSpec
from headrace.spark.worker_memory import spare_collector

sys.modules["__main__"].__spec__ = ModuleSpec(sys.argv[1], None) if sys.argv[1] else None
for _ in range(4):
    spare_collector()
    print(gc.get_freeze_count())
    kept = [[] for _ in range(1000)]
"""


def freeze_counts(main_module: str) -> list[int]:
    """After each of four uses, in a process that runs this module."""
    command = [sys.executable, "-c", SCRIPT, main_module]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [int(count) for count in done.stdout.split()]


def test_a_reused_worker_hides_what_is_there_at_its_second_use() -> None:
    first, second, third, fourth = freeze_counts("pyspark.daemon")
    assert first == 0
    assert second > 1000
    assert second >= third >= fourth  # nothing was added; some of it is gone


@pytest.mark.parametrize("main_module", ["", "application", "pyspark.worker"])
def test_no_other_process_is_touched(main_module: str) -> None:
    assert freeze_counts(main_module) == [0, 0, 0, 0]
