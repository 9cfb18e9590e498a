"""What Spark does by the clock: T13 counts a topic's records and their bytes, T14 writes one with a stream.

    python spark_loads.py read|write FORMAT BOOTSTRAP TOPIC COUNT [--master MASTER] [--exactly-once]
        [--set KEY=VALUE ...]

Run by its path, since the Python of Spark's own connector has nothing but PySpark. The work is done once to
warm up and once by the clock. Printed as JSON: how many records per second that were, and how many seconds of
CPU a million of them took in Spark, which is this process, the JVM that it starts and the Python workers of
that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD_BYTES = 100
TASKS = 4  # that write
# A record ends with ten digits, its number and this: to make it must not cost more than to write it.
NUMBERS_FROM = 1_000_000_000


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
    do = {"read": read, "write": write_once if arguments.exactly_once else write}[arguments.work]
    for _ in range(2):
        used = cpu_seconds(os.getpid())
        seconds = do(spark, arguments.format, arguments.bootstrap, arguments.topic, arguments.count)
        used = cpu_seconds(os.getpid()) - used
    millions = arguments.count / 1e6
    print(json.dumps({"records_per_s": arguments.count / seconds, "cpu_s_per_million": used / millions}))
    spark.stop()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=("read", "write"))
    parser.add_argument("format")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--exactly-once", action="store_true", help="fail where that cannot be had")
    parser.add_argument("--set", nargs="*", default=[])
    return parser.parse_args()


def read(spark: SparkSession, format: str, bootstrap: str, topic: str, count: int) -> float:
    """Seconds that it took to count the topic."""
    # recreated: of a frame that was collected before, Spark would only add up what it has kept
    frame = spark.read.format(format).option("kafka.bootstrap.servers", bootstrap)
    frame = frame.option("subscribe", topic).option("startingOffsets", "earliest").load()
    total = frame.selectExpr("count(*) AS records", "sum(length(value)) AS bytes")
    began = time.monotonic()
    (found,) = total.collect()
    seconds = time.monotonic() - began
    if (found.records, found.bytes) != (count, count * RECORD_BYTES):
        raise SystemExit(f"{count} records were written, and {found} was read")
    return seconds


def write_once(spark: SparkSession, format: str, bootstrap: str, topic: str, count: int) -> float:
    return write(spark, format, bootstrap, topic, count, {"deliveryGuarantee": "exactly-once"})


def write(
    spark: SparkSession,
    format: str,
    bootstrap: str,
    topic: str,
    count: int,
    options: Mapping[str, str] = MappingProxyType({}),
) -> float:
    """Seconds that the trigger took in which the numbers below `count` were written, as text."""
    filling = "." * (RECORD_BYTES - len(str(NUMBERS_FROM)))
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count)
    rows = rows.option("numPartitions", TASKS).load()
    rows = rows.selectExpr(f"concat('{filling}', CAST(value + {NUMBERS_FROM} AS string)) AS value")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = rows.writeStream.format(format).option("kafka.bootstrap.servers", bootstrap)
        query = query.option("topic", topic).option("checkpointLocation", checkpoint).options(**options)
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
    (trigger,) = [progress for progress in running.recentProgress if progress.numInputRows]
    if trigger.numInputRows != count:
        raise SystemExit(f"{count} records were to be written, and {trigger.numInputRows} were")
    return trigger.durationMs["triggerExecution"] / 1000


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
