"""Commands that outlive the broker: killed and started again under them, they go on where they were."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.broker import Broker


@pytest.fixture
def broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    with new_broker() as running:
        yield running


@pytest.fixture
def shell(broker: Broker, new_shell: Callable[[str], Any]) -> Any:
    """The command, with the broker that this test may kill."""
    return new_shell(broker.bootstrap)


def test_a_follower_goes_on_after_a_kill(broker: Broker, shell: Any) -> None:
    shell("topic", "create", "log")
    follower = shell.start("consume", "log", "--follow", "--from", "earliest", stdout=subprocess.PIPE)
    assert follower.stdout is not None
    shell("produce", "log", stdin=b"before\n")
    assert follower.stdout.readline() == b"before\n"
    broker.kill()
    broker.start()
    shell("produce", "log", stdin=b"after\n")
    assert follower.stdout.readline() == b"after\n"


def test_a_producer_loses_and_doubles_nothing(broker: Broker, shell: Any) -> None:
    """Lines go in while the broker is killed and started again, three times."""
    shell("topic", "create", "log", "--partitions", "2")
    reader, writer = os.pipe()
    producer = shell.start("produce", "log", "-K", ":", stdin=reader)
    os.close(reader)
    lines = [f"k{i % 10}:{i}" for i in range(8000)]
    with open(writer, "wb") as pipe:
        for start in range(0, 8000, 2000):
            pipe.write("".join(f"{line}\n" for line in lines[start : start + 2000]).encode())
            pipe.flush()
            if start == 0:  # it has found its broker
                shell("consume", "log", "--follow", "--from", "earliest", "-n", "1")
            if start < 6000:
                broker.kill()
                broker.start()
    assert producer.wait(60) == 0
    seen: dict[str, list[int]] = {}
    for line in shell("consume", "log", "-K", ":").lines:
        key, value = line.split(":")
        seen.setdefault(key, []).append(int(value))
    expected: dict[str, list[int]] = {}
    for line in lines:
        key, value = line.split(":")
        expected.setdefault(key, []).append(int(value))
    assert seen == expected, "each key once, whole and in order"


def test_a_broker_that_stays_away_is_told_of_in_time(broker: Broker, shell: Any) -> None:
    shell("topic", "create", "log")
    broker.kill()
    refused = shell.attempt("consume", "log", "--timeout", "1")
    assert refused.code == 1
    assert "connection refused" in refused.err


def test_a_topic_that_the_broker_will_not_make(
    new_broker: Callable[..., Broker], new_shell: Callable[[str], Any]
) -> None:
    with new_broker({"auto.create.topics.enable": "false"}) as strict:
        refused = new_shell(strict.bootstrap).attempt("produce", "never", "--timeout", "1", stdin=b"x\n")
    assert refused.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.err
    assert "headrace topic create" in refused.err
