"""What the pages about Spark say is so: each is followed in a program and with a broker of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.fenced import to_run

HERE = Path(__file__).resolve()
PAGES = ["README.md", "docs/spark.md", "docs/spark-sink.md", "docs/spark-tutorial.md"]


@pytest.mark.timeout(600)  # the tutorial starts a pipeline twice beside its own session
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page, tmp_path):
    assert len(to_run(page)) >= 3
    done = subprocess.run(
        [sys.executable, str(HERE.with_name("page_job.py")), page],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
