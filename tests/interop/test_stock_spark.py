"""Spark 4.0.0 with its own Kafka connector reads, streams and writes: users need change nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import headrace
from harness import stock_spark
from harness.headrace import Headrace

JOB = str(Path(__file__).with_name("stock_spark_job.py"))


def test_spark_as_it_comes_reads_streams_and_writes(tmp_path: Path) -> None:
    python = stock_spark.python()
    with Headrace(tmp_path / "broker") as broker:
        with headrace.Admin(broker.bootstrap) as admin:
            for topic in ("written", "copied", "transactional"):
                admin.create_topic(topic, partitions=2)
        with headrace.Producer(broker.bootstrap, transactional_id="writer") as writer:
            with writer.transaction():
                writer.send("transactional", b"committed")
            writer.begin_transaction()
            writer.send("transactional", b"aborted")
            writer.flush()
            writer.abort_transaction()
        command = [python, JOB, broker.bootstrap, stock_spark.jars(), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-4000:]
        told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"records": 1000, "values": 1000, "batches": 4, "copied": 1000, "committed": ["committed"]}
