"""T13: a batch read of a whole topic in Spark, by our connector and by Spark's own, in turns.

Ten million records of 100 bytes in four partitions, local[2], from the same broker. Spark's own connector
exists for Spark 4.0.0 only as far as it can be had, ours runs on 4.3: the figures are of two Sparks.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from benchmarks import generators
from benchmarks.bench import Bench, create_topic
from benchmarks.throughput import SETTINGS
from harness import stock_spark
from harness.broker import Broker

RECORDS = 10_000_000
RECORD_BYTES = 100
PARTITIONS = 4
TIMEOUT_S = 600
LOAD = str(Path(__file__).with_name("spark_loads.py"))
RIVAL = f"Spark {stock_spark.VERSION}"
TOPIC = "spark"


def run(bench: Bench) -> None:
    if importlib.util.find_spec("pyspark") is None:
        bench.say("T13 needs PySpark, which `make spark` installs")
        return
    rival = [stock_spark.python(), LOAD, "kafka"]
    ours = [sys.executable, LOAD, "headrace"]
    count = bench.amount(RECORDS)
    for kind in bench.kinds:
        rate = bench.measure("T13", f"batch read of {kind}", "records/s", ratio_target=2, rival=RIVAL)
        with bench.only(kind, SETTINGS) as broker:
            create_topic(broker, TOPIC, PARTITIONS)
            generators.produce(broker, TOPIC, count, RECORD_BYTES, partition=-PARTITIONS)
            for repeat in range(bench.repeats):
                for name, command, more in (("headrace", ours, ()), (RIVAL, rival, (stock_spark.jars(),))):
                    found = _records_per_s(broker, count, command, more)
                    rate.add(name, found)
                    bench.say(f"T13  {name:12} {repeat + 1}/{bench.repeats}  {found:,.0f} records/s")


def _records_per_s(broker: Broker, count: int, command: list[str], more: tuple[str, ...]) -> float:
    arguments = [*command, broker.bootstrap, TOPIC, str(count), *more]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[:4])}: {done.stderr[-4000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["records_per_s"])
