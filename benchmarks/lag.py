"""The event loop's lag while every background job runs at once: retention, flushing, recompression.

Beside it is the lag of a loop that has nothing to do, at the same time: what the machine itself does.
"""

from __future__ import annotations

import re
import urllib.request

from benchmarks import generators
from benchmarks.bench import Bench, create_topic
from benchmarks.idle_loop import LOOP, IdleLoop
from harness.kafka import free_ports

LIMIT_MS = 10.0
IDLE_RATIO = 1.2  # or so many times the lag of an idle loop
RATE = 50_000  # records of 1000 B a second: enough for every job to run all the time, without filling a core
BUCKET = re.compile(r'^headrace_event_loop_lag_seconds_bucket\{.*?le="([^"]+)"\} (\d+)', re.MULTILINE)
BUSY = {
    "segment.bytes": str(8 << 20),
    "retention.bytes": str(64 << 20),
    "flush.messages": "1000",
    "headrace.sealed.compression.type": "zstd",
}


def run(bench: Bench) -> None:
    """The same load twice: on plain topics, and with all jobs."""
    if "headrace" not in bench.kinds:
        return
    for what, configs, limit in (
        ("no background jobs", {}, None),
        ("all jobs at once", BUSY, LIMIT_MS),
    ):
        measure = bench.measure(
            "lag",
            f"loop lag p99.9, {what}",
            "ms",
            higher_is_better=False,
            limit=limit,
            ratio_target=limit and IDLE_RATIO,
            rival=LOOP,
            either=True,
        )
        lag_ms, idle_ms = _under_load(bench, configs)
        measure.add("headrace", lag_ms)
        measure.add(LOOP, idle_ms)
        bench.say(f"lag  headrace {what}: p99.9 ≤ {lag_ms:g} ms, of {LOOP} ≤ {idle_ms:g} ms")


def _under_load(bench: Bench, configs: dict[str, str]) -> tuple[float, float]:
    """Of the broker and of an idle loop, over all repeats together: the probe beats 20 times a second, and
    p99.9 needs a thousand beats.
    """
    (port,) = free_ports(1)
    settings = {
        "headrace.metrics.port": str(port),
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "100",
    }
    with bench.only("headrace", settings) as broker:
        create_topic(broker, "busy", 4, **configs)
        idle = IdleLoop()
        before, idle_before = _buckets(port), idle.lag_buckets()
        for repeat in range(bench.repeats):
            figures = generators.produce(
                broker,
                "busy",
                bench.amount(20 * RATE),
                1000,
                "batch.size=65536",
                f"rate={RATE}",
                partition=-4,
            )
            bench.say(f"lag  headrace {repeat + 1}/{bench.repeats}  {figures['mb_per_s']:.0f} MB/s")
        after, idle_after = _buckets(port), idle.lag_buckets()
        idle.stop()
    return _p999_ms(before, after), _p999_ms(idle_before, idle_after)


def _p999_ms(before: dict[float, int], after: dict[float, int]) -> float:
    return 1000 * quantile({le: after[le] - before.get(le, 0) for le in after}, 0.999)


def _buckets(port: int) -> dict[float, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {float(le): int(count) for le, count in BUCKET.findall(text)}


def quantile(cumulative: dict[float, int], share: float) -> float:
    """The bound of the bucket in which the quantile falls: an upper estimate."""
    total = max(cumulative.values(), default=0)
    if total == 0:
        raise ValueError("nothing was observed")
    return min(le for le, count in cumulative.items() if count >= share * total)
