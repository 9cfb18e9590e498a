"""Spark's own cluster on this machine: what a second worker brings.

A master and two workers of one core each, all on the loopback beside the broker and the driver; one worker
waits while the other works alone. The work is that of T13 and T14, with fewer records. On a machine of two
cores a second worker takes the core that the broker had, so do not expect twice as much.
"""

from __future__ import annotations

import sys

from benchmarks import generators, spark_turns
from benchmarks.bench import Bench, create_topic, delete_topic
from benchmarks.spark_loads import RECORD_BYTES
from benchmarks.spark_turns import PARTITIONS, Side
from benchmarks.throughput import SETTINGS

RECORDS = 3_000_000
ROW = "workers"
OURS = Side("headrace", sys.executable, "headrace")
ONE = "one worker"


def run(bench: Bench) -> None:
    if "headrace" not in bench.kinds or not spark_turns.is_possible(bench, ROW):
        return
    from harness.spark_cluster import spark_cluster

    count = bench.amount(RECORDS)
    with bench.only("headrace", SETTINGS) as broker, bench.directory() as directory:
        create_topic(broker, "read", PARTITIONS)
        generators.produce(broker, "read", count, RECORD_BYTES, partition=-PARTITIONS)
        with spark_cluster(directory / "spark", 2) as master:
            for work, what in (("read", "batch read"), ("write", "exactly-once write")):
                rate = bench.measure(ROW, f"{what}, two workers", "records/s", rival=ONE)
                for repeat in range(bench.repeats):
                    for workers, name in ((2, "headrace"), (1, ONE)):
                        if work == "write":
                            create_topic(broker, work, PARTITIONS)
                        side = OURS._replace(settings=(f"spark.cores.max={workers}",))
                        found = spark_turns.take(side, work, broker, work, count, "--master", master)
                        if work == "write":
                            delete_topic(broker, work)
                        rate.add(name, found.records_per_s)
                        told = f"{found.records_per_s:,.0f} records/s"
                        bench.say(f"{ROW}  {what}, {workers} of 2  {repeat + 1}/{bench.repeats}  {told}")
