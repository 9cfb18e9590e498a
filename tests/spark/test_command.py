"""`headrace spark SCRIPT`: on this machine, and on a cluster with a master and two workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.spark_cluster import environment, spark_cluster
from harness.wait import run_to_end

SCRIPT = """
from beside import PARTS

frame = spark.read.format("headrace").option("minPartitions", PARTS).load("{topic}")
print("records", frame.count(), "distinct", frame.select("offset").distinct().count())
workers = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver is listed, too
print("workers", workers)
"""


@pytest.fixture
def ask(tmp_path, servers, new_topic, fill):
    """Runs a script that counts the records of a topic; what it prints."""
    topic = new_topic()
    fill(topic, 400, each=50)
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(topic=topic))
    (tmp_path / "beside.py").write_text("PARTS = 4")

    def run(*options: str) -> str:
        command = [str(Path(sys.executable).with_name("headrace")), "spark", str(script), "-b", servers]
        done = run_to_end([*command, *options], env=environment())
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


def test_a_script_runs_here(ask):
    assert "records 400 distinct 400" in ask("--master", "local[2]", "-c", "spark.ui.enabled=false")


def test_the_same_script_runs_on_a_cluster(ask, tmp_path):
    with spark_cluster(tmp_path / "cluster", 2) as master:
        said = ask("--master", master, "-c", "spark.ui.enabled=false")
    assert "records 400 distinct 400" in said
    assert "workers 2" in said
