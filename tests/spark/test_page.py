"""The pages about Spark: a program runs the blocks of each page, with a broker of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from docs.fenced import to_run
from harness.wait import Patience

HERE = Path(__file__).resolve()
PATIENCE_S = 600  # of a machine that has time
PAGES = [
    "README.md",
    "docs/lake.md",
    "docs/pipelines.md",
    "docs/spark.md",
    "docs/spark-sink.md",
    "docs/spark-tutorial.md",
    "examples/ad_clicks/README.md",
    "examples/chat_fanout/README.md",
    "examples/judge/README.md",
    "examples/log_analytics/README.md",
    "examples/metrics/README.md",
    "examples/payments/README.md",
    "examples/ticket_queue/README.md",
    "examples/transcoding_queue/README.md",
]


@pytest.mark.timeout(0)  # `PATIENCE_S` ends it: the tutorial starts a pipeline twice beside its own session
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page, tmp_path):
    assert len(to_run(page)) >= 3
    place, said = tmp_path / "place", tmp_path / "said.txt"
    place.mkdir()
    with said.open("w") as output:
        job = subprocess.Popen(
            [sys.executable, str(HERE.with_name("page_job.py")), page],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    patience = Patience(PATIENCE_S)
    try:
        while job.poll() is None and not patience.is_over:
            time.sleep(0.1)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGTERM)  # its broker, its pipeline and its JVM go along
            job.wait()
    assert job.returncode == 0, said.read_text()[-6000:]
