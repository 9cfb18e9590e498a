"""T13: a batch read of a whole topic in Spark, by our connector and by Spark's own, in turns.

Ten million records of 100 bytes in four partitions, local[2], from the same broker.
"""

from __future__ import annotations

from benchmarks import generators, spark_turns
from benchmarks.bench import Bench, create_topic
from benchmarks.spark_loads import RECORD_BYTES
from benchmarks.spark_turns import PARTITIONS
from benchmarks.throughput import SETTINGS

RECORDS = 10_000_000
TOPIC = "spark"


def run(bench: Bench) -> None:
    if not spark_turns.is_possible(bench, "T13"):
        return
    sides = spark_turns.sides(bench, "T13")
    count = bench.amount(RECORDS)
    for kind in bench.kinds:
        rate, cost = spark_turns.measures(bench, "T13", f"batch read of {kind}", 3)
        with bench.only(kind, SETTINGS) as broker:
            create_topic(broker, TOPIC, PARTITIONS)
            generators.produce(broker, TOPIC, count, RECORD_BYTES, partition=-PARTITIONS)
            for repeat in range(bench.repeats):
                for side in sides:
                    figures = spark_turns.take(side, "read", broker, TOPIC, count)
                    rate.add(side.name, figures.records_per_s)
                    cost.add(side.name, figures.cpu_s_per_million)
                    bench.say(f"T13  {side.name:12} {repeat + 1}/{bench.repeats}  {figures}")
