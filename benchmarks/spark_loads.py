"""What Spark does by the clock: T13 counts a topic's records and their bytes, T14 writes one with a stream.

    python spark_loads.py read|write|triggers FORMAT BOOTSTRAP TOPIC COUNT [--master MASTER] [--exactly-once]
        [--encoding json|avro|protobuf] [--set KEY=VALUE ...]

Run by its path, since the Python of Spark's own connector has nothing but PySpark. The work is done once to
warm up and once by the clock. Printed as JSON: how many records per second that were, and how many seconds of
CPU a million of them took in Spark, which is this process, the JVM that it starts and the Python workers of
that. `triggers` runs a stream of COUNT rows per trigger, and prints how long one of its warm triggers takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

RECORD_BYTES = 100
TASKS = 4  # that write
# A record ends with ten digits, its number and this: to make it must not cost more than to write it.
NUMBERS_FROM = 1_000_000_000

COLD_TRIGGERS = 10  # of a stream of small ones, not counted
WARM_TRIGGERS = 20

# What values of a format are made of; about 80 bytes of JSON.
FIELDS = (
    "value AS id",
    "concat('user-', CAST(value % 1000 AS string)) AS user",
    "value % 100 * 0.25D AS price",
    "value % 7 = 0 AS is_new",
)
PROTO = """
syntax = "proto3";
message Purchase { int64 id = 1; string user = 2; double price = 3; bool is_new = 4; }
"""


def main() -> None:
    from pyspark.sql import SparkSession  # who merely wants to know what is written need not have it

    arguments = parsed()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(arguments.master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.log.level", "ERROR")
    for setting in arguments.set:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    if arguments.work == "triggers":
        print(json.dumps(triggers(spark, arguments)))
    else:
        print(json.dumps(timed(spark, arguments)))
    spark.stop()


def timed(spark: SparkSession, arguments: argparse.Namespace) -> dict[str, float]:
    for _ in range(2):
        used = cpu_seconds(os.getpid())
        seconds = read(spark, arguments) if arguments.work == "read" else write(spark, arguments)
        used = cpu_seconds(os.getpid()) - used
    millions = arguments.count / 1e6
    return {"records_per_s": arguments.count / seconds, "cpu_s_per_million": used / millions}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=("read", "write", "triggers"))
    parser.add_argument("format")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--exactly-once", action="store_true", help="fail where that cannot be had")
    parser.add_argument("--encoding", choices=("json", "avro", "protobuf"), help="of the values")
    parser.add_argument("--set", nargs="*", default=[])
    return parser.parse_args()


def read(spark: SparkSession, arguments: argparse.Namespace) -> float:
    """Seconds that it took to count the topic."""
    count = arguments.count
    # recreated: of a frame that was collected before, Spark would only add up what it has kept
    frame = spark.read.format(arguments.format).option("kafka.bootstrap.servers", arguments.bootstrap)
    frame = frame.option("subscribe", arguments.topic).option("startingOffsets", "earliest").load()
    total = frame.selectExpr("count(*) AS records", "sum(length(value)) AS bytes")
    began = time.monotonic()
    (found,) = total.collect()
    seconds = time.monotonic() - began
    if (found.records, found.bytes) != (count, count * RECORD_BYTES):
        raise SystemExit(f"{count} records were written, and {found} was read")
    return seconds


def write(spark: SparkSession, arguments: argparse.Namespace) -> float:
    """Seconds that the trigger took in which all rows were written."""
    with tempfile.TemporaryDirectory() as checkpoint:
        running = sink(spark, arguments, checkpoint).trigger(availableNow=True).start()
        running.awaitTermination()
    (trigger,) = [progress for progress in running.recentProgress if progress.numInputRows]
    if trigger.numInputRows != arguments.count:
        raise SystemExit(f"{arguments.count} records were to be written, and {trigger.numInputRows} were")
    return trigger.durationMs["triggerExecution"] / 1000


def triggers(spark: SparkSession, arguments: argparse.Namespace) -> dict[str, float]:
    """The median of warm triggers, one directly behind the other, and what one of them costs."""
    with tempfile.TemporaryDirectory() as checkpoint:
        running = sink(spark, arguments, checkpoint).trigger(processingTime="0 seconds").start()
        wait_for_batch(running, COLD_TRIGGERS)
        first, used = running.lastProgress.batchId, cpu_seconds(os.getpid())
        wait_for_batch(running, first + WARM_TRIGGERS)
        last, used = running.lastProgress.batchId, cpu_seconds(os.getpid()) - used
        running.stop()
    warm = [one for one in running.recentProgress if first < one.batchId <= last]
    if any(one.numInputRows != arguments.count for one in warm):
        raise SystemExit(f"not every trigger had {arguments.count} rows")
    took = statistics.median(one.durationMs["triggerExecution"] for one in warm)
    return {"trigger_ms": took, "cpu_ms": used / (last - first) * 1000}


def wait_for_batch(running: StreamingQuery, batch_id: int) -> None:
    while running.lastProgress is None or running.lastProgress.batchId < batch_id:
        if running.exception() is not None:
            raise SystemExit(str(running.exception()))
        time.sleep(0.05)


def sink(spark: SparkSession, arguments: argparse.Namespace, checkpoint: str) -> DataStreamWriter:
    """A stream of the numbers below `count`, written as text or as the values of a format."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", arguments.count)
    rows = rows.option("numPartitions", TASKS).load()
    options = {"kafka.bootstrap.servers": arguments.bootstrap, "topic": arguments.topic}
    if arguments.encoding is None:
        filling = "." * (RECORD_BYTES - len(str(NUMBERS_FROM)))
        rows = rows.selectExpr(f"concat('{filling}', CAST(value + {NUMBERS_FROM} AS string)) AS value")
    elif arguments.format == "headrace":
        rows = rows.selectExpr(*FIELDS)
        options["valueFormat"] = arguments.encoding
        if arguments.encoding == "protobuf":
            options["valueSchema"] = PROTO
    else:
        rows = encoded(rows.selectExpr(*FIELDS), arguments.encoding)
    if arguments.exactly_once:
        options["deliveryGuarantee"] = "exactly-once"
    query = rows.writeStream.format(arguments.format).options(**options)
    return query.option("checkpointLocation", checkpoint)


def encoded(rows: DataFrame, encoding: str) -> DataFrame:
    """One column, encoded by Spark itself."""
    if encoding == "json":
        return rows.selectExpr("to_json(struct(*)) AS value")
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import struct

    return rows.select(to_avro(struct("*")).alias("value"))


def cpu_seconds(root: int) -> float:
    """Of a process and all that it has started and that still run."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_of_family(process: int) -> bool:
        while process != root and process in parents:
            process = parents[process]
        return process == root

    return sum(seconds for process, seconds in used.items() if is_of_family(process))


if __name__ == "__main__":
    main()
