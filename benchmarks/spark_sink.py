"""Two more rows of the sink: values in a format, and triggers of a thousand rows.

    formats   rows of four fields, encoded by our sink (valueFormat) and by Spark's own to_json and to_avro
              into its Kafka sink. Its to_protobuf for 4.0.0 cannot be had, so Protobuf is measured alone.
    triggers  a stream whose triggers have a thousand rows, one directly behind the other. The figure is a
              warm trigger from its plan to its entry in Spark's commit log. Ours is exactly-once.

From four tasks to four partitions, acks=all, local[2], both sides to the same Headrace in turns.
"""

from __future__ import annotations

import headrace
from benchmarks import spark_turns
from benchmarks.bench import Bench, create_topic, delete_topic
from benchmarks.spark_turns import PARTITIONS, RIVAL
from benchmarks.spark_writing import WRITES
from benchmarks.throughput import SETTINGS
from harness.broker import Broker

RECORDS = 2_000_000
TRIGGER_ROWS = 1_000
TOPIC = "sink"
ENCODINGS = {"json": RIVAL, "avro": RIVAL, "protobuf": None}  # with whom each is compared


def formats(bench: Bench) -> None:
    if "headrace" not in bench.kinds or not spark_turns.is_possible(bench, "formats"):
        return
    sides = spark_turns.sides(bench, "formats")
    count = bench.amount(RECORDS)
    with bench.only("headrace", SETTINGS) as broker:
        for encoding, rival in ENCODINGS.items():
            what = f"exactly-once write of {encoding}"
            if rival is None:
                rate = bench.measure("formats", what, "records/s")
                cost = bench.measure("formats", "Spark's CPU per million", "s", higher_is_better=False)
            else:
                rate, cost = spark_turns.measures(bench, "formats", what, None)
            for repeat in range(bench.repeats):
                for side in sides[: 1 if rival is None else 2]:
                    create_topic(broker, TOPIC, PARTITIONS)
                    more = ("--encoding", encoding)
                    if side.format == "headrace":
                        more += ("--exactly-once",)
                    figures = spark_turns.take(side, "write", broker, TOPIC, count, *more)
                    check_count(broker, count * WRITES)
                    delete_topic(broker, TOPIC)
                    rate.add(side.name, figures.records_per_s)
                    cost.add(side.name, figures.cpu_s_per_million)
                    bench.say(f"formats  {encoding:8} {side.name:12} {repeat + 1}/{bench.repeats}  {figures}")


def check_count(broker: Broker, count: int) -> None:
    """Raises if readers of committed records do not find so many."""
    found = 0
    with headrace.Consumer(broker.bootstrap, isolation_level="read_committed") as consumer:
        partitions = [(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(at) < end for at, end in ends.items()):
            found += consumer.poll_arrow(10).num_rows
    if found != count:
        raise RuntimeError(f"{count} records were written, and {found} are there")


def triggers(bench: Bench) -> None:
    if "headrace" not in bench.kinds or not spark_turns.is_possible(bench, "triggers"):
        return
    sides = spark_turns.sides(bench, "triggers")
    took = bench.measure(
        "triggers",
        f"trigger of {TRIGGER_ROWS} rows, exactly once",
        "ms",
        higher_is_better=False,
        ratio_target=0.7,
        rival=RIVAL,
    )
    cost = bench.measure("triggers", "Spark's CPU per trigger", "ms", higher_is_better=False, rival=RIVAL)
    with bench.only("headrace", SETTINGS) as broker:
        for repeat in range(bench.repeats):
            for side in sides:
                create_topic(broker, TOPIC, PARTITIONS)
                more = ("--exactly-once",) if side.format == "headrace" else ()
                figures = spark_turns.call(side, "triggers", broker, TOPIC, TRIGGER_ROWS, *more)
                delete_topic(broker, TOPIC)
                took.add(side.name, figures["trigger_ms"])
                cost.add(side.name, figures["cpu_ms"])
                told = f"{figures['trigger_ms']:.0f} ms, {figures['cpu_ms']:.0f} ms of Spark's CPU"
                bench.say(f"triggers  {side.name:12} {repeat + 1}/{bench.repeats}  {told}")
