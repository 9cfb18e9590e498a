"""JVM Spark with Delta's and Iceberg's own readers sees the rows that Headrace and DuckDB see."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq

from harness import stock_spark
from harness.sample_tables import make_tables
from harness.table_judges import Seen, by_duckdb, by_headrace, seen
from headrace.lake.formats import FORMATS

JOB = str(Path(__file__).with_name("lake_reader_job.py"))


def test_spark_duckdb_and_headrace_count_and_hash_alike(tmp_path: Path) -> None:
    paths: dict[tuple[str, str], Path] = {}
    for format in FORMATS:
        (tmp_path / format).mkdir()
        paths |= {(format, kind): path for kind, path in make_tables(tmp_path / format, format).items()}
    outputs = {key: tmp_path / f"seen-{number}" for number, key in enumerate(paths)}
    todo = [[format, str(path), str(outputs[format, kind])] for (format, kind), path in paths.items()]
    command = [stock_spark.python(), JOB, stock_spark.lake_jars(), json.dumps(todo)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    by_spark: dict[tuple[str, str], Seen] = {key: seen(pq.read_table(path)) for key, path in outputs.items()}
    assert by_spark == {key: by_headrace(path) for key, path in paths.items()}
    assert by_spark == {key: by_duckdb(path) for key, path in paths.items()}
