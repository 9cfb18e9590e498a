"""T16: a broker in a test, from nothing to ready, and from one test to the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from benchmarks.bench import Bench
from headrace import testing

TIMES = 20  # in each turn: one takes milliseconds


def run(bench: Bench) -> None:
    if "headrace" not in bench.kinds:
        return
    start = bench.measure(
        "T16", "a fresh broker in a test, imports done", "ms", higher_is_better=False, limit=150
    )
    reset = bench.measure("T16", "reset between two tests", "ms", higher_is_better=False, limit=10)
    beside = bench.measure("T16", "a fresh broker beside the test", "ms", higher_is_better=False)
    with testing.Broker() as broker:
        _use(broker)  # what is loaded on first use is loaded now
    for repeat in range(bench.repeats):
        for _ in range(TIMES):
            broker = testing.Broker()
            start.add("headrace", _milliseconds(broker.start))
            producer = _use(broker)  # a client that is still there, as after most tests
            reset.add("headrace", _milliseconds(broker.reset))
            del producer
            broker.stop()
        process = testing.Broker(process=True)
        beside.add("headrace", _milliseconds(process.start))
        process.stop()
        told = f"start {start.median('headrace'):.1f} ms, reset {reset.median('headrace'):.1f} ms"
        bench.say(f"T16  headrace {repeat + 1}/{bench.repeats}  {told}")


def _use(broker: testing.Broker) -> Producer:
    """As a test does: topics, records, a group."""
    broker.create_topic("orders", 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(100):
        producer.produce("orders", b"x" * 100, str(number).encode())
    producer.flush(30)
    broker.consume_all("orders", group="readers")
    return producer


def _milliseconds(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000
