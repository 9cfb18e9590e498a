"""Two Sparks: ours, and the one that Spark's own Kafka connector is for; a turn is a process of one of them.

Spark's own connector exists for 4.0.0 only as far as it can be had, ours runs on 4.3: the figures are of two
Sparks, which every row says.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.report import Measure
from harness import stock_spark
from harness.broker import Broker

PARTITIONS = 4
TIMEOUT_S = 600
LOAD = str(Path(__file__).with_name("spark_loads.py"))
RIVAL = f"Spark {stock_spark.VERSION}"


class Side(NamedTuple):
    name: str
    python: str
    format: str
    settings: tuple[str, ...] = ()


class Figures(NamedTuple):
    records_per_s: float
    cpu_s_per_million: float  # of Spark

    def __str__(self) -> str:
        return (
            f"{self.records_per_s:,.0f} records/s, {self.cpu_s_per_million:.2f} s of Spark's CPU per million"
        )


def is_possible(bench: Bench, row: str) -> bool:
    if importlib.util.find_spec("pyspark") is not None:
        return True
    bench.say(f"{row} needs PySpark, which `make spark` installs")
    return False


def sides(bench: Bench, row: str) -> list[Side]:
    """In the order of their turns; the rival is fetched on first use."""
    bench.say(f"{row}  headrace runs on Spark {importlib.metadata.version('pyspark')}, its rival on {RIVAL}")
    ours = Side("headrace", sys.executable, "headrace")
    return [ours, Side(RIVAL, stock_spark.python(), "kafka", (f"spark.jars={stock_spark.jars()}",))]


def measures(bench: Bench, row: str, what: str, ratio_target: float | None) -> tuple[Measure, Measure]:
    """Of the rate, and of what a million records cost."""
    rate = bench.measure(row, what, "records/s", ratio_target=ratio_target, rival=RIVAL)
    return rate, bench.measure(row, "Spark's CPU per million", "s", higher_is_better=False, rival=RIVAL)


def take(side: Side, work: str, broker: Broker, topic: str, count: int, *more: str) -> Figures:
    return Figures(**call(side, work, broker, topic, count, *more))


def call(side: Side, work: str, broker: Broker, topic: str, count: int, *more: str) -> dict[str, float]:
    command = [side.python, LOAD, work, side.format, broker.bootstrap, topic, str(count), *more]
    command += ["--set", *side.settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])}: {done.stderr[-4000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures
