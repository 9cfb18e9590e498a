"""T16's load: brokers of the testing kit are started, used and reset, in a process of its own.

    python -m benchmarks.testing_loads

Prints the milliseconds of each start and each reset as JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from headrace import testing

TIMES = 20  # in each turn: one takes milliseconds


def main() -> None:
    start: list[float] = []
    reset: list[float] = []
    with testing.Broker() as broker:
        _use(broker)  # what is loaded on first use is loaded now
    for _ in range(TIMES):
        broker = testing.Broker()
        start.append(_milliseconds(broker.start))
        producer = _use(broker)  # a client that is still there, as after most tests
        reset.append(_milliseconds(broker.reset))
        del producer
        broker.stop()
    process = testing.Broker(process=True)
    beside = [_milliseconds(process.start)]
    process.stop()
    print(json.dumps({"start": start, "reset": reset, "beside": beside}))


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


if __name__ == "__main__":
    main()
