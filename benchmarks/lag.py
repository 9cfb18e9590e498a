"""The event loop's lag while every background job runs at once: retention, flushing, recompression."""

from __future__ import annotations

import re
import urllib.request

from benchmarks import generators
from benchmarks.bench import Bench, create_topic
from harness.kafka import free_ports

LIMIT_MS = 10.0
SECONDS_OF_LOAD = 20
BUCKET = re.compile(r'^headrace_event_loop_lag_seconds_bucket\{.*?le="([^"]+)"\} (\d+)', re.MULTILINE)


def run(bench: Bench) -> None:
    if "headrace" not in bench.kinds:
        return
    (port,) = free_ports(1)
    settings = {
        "headrace.metrics.port": str(port),
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "100",
    }
    measure = bench.measure(
        "lag", "loop lag p99.9, all jobs at once", "ms", higher_is_better=False, limit=LIMIT_MS
    )
    with bench.only("headrace", settings) as broker:
        configs = {
            "segment.bytes": str(8 << 20),
            "retention.bytes": str(64 << 20),
            "flush.messages": "1000",
            "headrace.sealed.compression.type": "zstd",
        }
        create_topic(broker, "busy", 4, **configs)
        for repeat in range(bench.repeats):
            before = _buckets(port)
            generators.produce(
                broker, "busy", bench.amount(2_000_000), 1000, "batch.size=65536", partition=-4
            )
            after = _buckets(port)
            lag_ms = 1000 * quantile({le: after[le] - before.get(le, 0) for le in after}, 0.999)
            measure.add("headrace", lag_ms)
            bench.say(f"lag  headrace {repeat + 1}/{bench.repeats}  p99.9 {lag_ms:.2f} ms")


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
