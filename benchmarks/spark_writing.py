"""T14: a stream in Spark writes a topic in one trigger, by our sink and by Spark's own, in turns.

Five million records of 100 bytes from four tasks to four partitions, acks=all, local[2], to the same broker.
Neither side is given a setting but the broker's address: no compression, and batch.size and linger.ms as each
has them by default. On Headrace our sink is exactly-once; on Kafka, as Spark's own on both, at-least-once.
After each turn the topic is read, and each number must be there as often as it was written.
"""

from __future__ import annotations

import pyarrow
import pyarrow.compute

import headrace
from benchmarks import spark_turns
from benchmarks.bench import Bench, create_topic, delete_topic
from benchmarks.spark_loads import NUMBERS_FROM, RECORD_BYTES
from benchmarks.spark_turns import PARTITIONS
from benchmarks.throughput import SETTINGS
from harness.broker import Broker

RECORDS = 5_000_000
WRITES = 2  # by a turn: to warm up, and by the clock
TOPIC = "written"


def run(bench: Bench) -> None:
    if not spark_turns.is_possible(bench, "T14"):
        return
    sides = spark_turns.sides(bench, "T14")
    count = bench.amount(RECORDS)
    for kind in bench.kinds:
        what = "exactly-once write to headrace" if kind == "headrace" else f"write to {kind}"
        rate, cost = spark_turns.measures(bench, "T14", what, 2.5)
        with bench.only(kind, SETTINGS) as broker:
            for repeat in range(bench.repeats):
                for side in sides:
                    create_topic(broker, TOPIC, PARTITIONS)
                    is_once = kind == side.name == "headrace"
                    more = ("--exactly-once",) if is_once else ()
                    figures = spark_turns.take(side, "write", broker, TOPIC, count, *more)
                    check(broker, count)
                    delete_topic(broker, TOPIC)
                    rate.add(side.name, figures.records_per_s)
                    cost.add(side.name, figures.cpu_s_per_million)
                    bench.say(f"T14  {side.name:12} {repeat + 1}/{bench.repeats}  {figures}")


def check(broker: Broker, count: int) -> None:
    """Raises if a number below `count` is not there as often as it was written."""
    numbers = pyarrow.compute.value_counts(pyarrow.chunked_array(_numbers(broker), pyarrow.int64()))
    times = pyarrow.compute.unique(numbers.field("counts")).to_pylist()
    highest = pyarrow.compute.max(numbers.field("values")).as_py()
    if (len(numbers), times, highest) != (count, [WRITES], count - 1):
        raise RuntimeError(
            f"{count} numbers were written {WRITES} times each; there are {len(numbers)} up to {highest}, "
            f"{' or '.join(map(str, times))} times each"
        )


def _numbers(broker: Broker) -> list[pyarrow.Array]:
    """All that readers of committed records find in the topic."""
    found: list[pyarrow.Array] = []
    with headrace.Consumer(broker.bootstrap, isolation_level="read_committed") as consumer:
        partitions = [(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(at) < end for at, end in ends.items()):
            values = consumer.poll_arrow(timeout=1.0)["value"]
            lengths = pyarrow.compute.unique(pyarrow.compute.binary_length(values)).to_pylist()
            assert lengths in ([], [RECORD_BYTES]), f"values of {lengths} bytes"
            digits = pyarrow.compute.utf8_slice_codeunits(values.cast(pyarrow.string()), -10)
            found += pyarrow.compute.subtract(digits.cast(pyarrow.int64()), NUMBERS_FROM).chunks
    return found
