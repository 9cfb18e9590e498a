"""The ad-click example on a Spark cluster: a master and two workers, each a process of its own.

What it counts is the same with both workers as with one. How long it took is printed and not judged: what a
second worker brings is measured by `make bench ONLY=workers`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ad_clicks import EXAMPLE, counts_in, create_sources, publish
from harness.headrace import Headrace
from harness.spark_cluster import environment, spark_cluster
from harness.wait import run_to_end
from headrace.sample.clicks import SampleClicks, truth

MINUTES = 20
RUN_S = 400
SETTINGS = {"offsets.topic.num.partitions": "1", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), 2) as address:
        yield address


@pytest.mark.parametrize("workers", [1, 2])
def test_the_example_counts_the_same_on_a_cluster(
    workers: int, master: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = list(SampleClicks(seed=8, impressions_per_s=10.0).events(MINUTES * 60))
    # of a worker's one core a job has all or nothing
    known = environment() | {"PYSPARK_SUBMIT_ARGS": f"--conf spark.cores.max={workers} pyspark-shell"}
    with Headrace(tmp_path / "broker", SETTINGS) as broker:
        create_sources(broker.bootstrap)
        publish(broker.bootstrap, events)
        publish(broker.bootstrap, SampleClicks.closing_events(events[-1].timestamp_ms))
        command: list[str | Path] = [
            sys.executable,
            EXAMPLE / "pipeline.py",
            "--available-now",
            "--master",
            master,
        ]
        command += ["--servers", broker.bootstrap, "--checkpoints", tmp_path / "checkpoints"]
        began = time.monotonic()
        done = run_to_end(command, RUN_S, env=known)
        seconds = time.monotonic() - began
        assert done.returncode == 0, done.stderr[-4000:]
        assert counts_in(broker.bootstrap) == truth(events).counts
    with capsys.disabled():
        rate = len(events) / seconds
        print(f"\n{len(events):,} events, workers: {workers}: {seconds:.1f} s, {rate:,.0f} events/s", end="")
