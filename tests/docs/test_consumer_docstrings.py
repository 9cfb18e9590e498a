"""Every public name of the consumer has an example, and the examples do what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
import headrace.aio
from docs.docstring_examples import documented, examples, run
from headrace.testing import Broker, Record

CALLS = [getattr(headrace.Consumer, name) for name in documented(headrace.Consumer)]
AIO_CALLS = [getattr(headrace.aio.Consumer, name) for name in documented(headrace.aio.Consumer)]
WHOLE = [headrace.Consumer, headrace.RebalanceListener, headrace.UndecodableRecord, headrace.StoredOffsets]
PLAIN = {"assignment", "subscription", "paused", "resume"}  # what others' examples show


@pytest.fixture
def servers(headrace_broker: Broker) -> str:
    headrace_broker.create_topic("orders")
    orders = [("alice", "first", 1000), ("bob", "second", 2000)]
    headrace_broker.produce_all(
        "orders", [Record.of(value, key=key, timestamp_ms=at) for key, value, at in orders]
    )
    headrace_broker.create_topic("numbers")
    headrace_broker.produce_all("numbers", ["not a number", "5"])
    return headrace_broker.bootstrap_servers


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def _id(subject: Any) -> str:
    return str(getattr(subject, "__qualname__", getattr(subject, "fget", subject)))


@pytest.mark.parametrize("call", [call for call in CALLS if examples(call)], ids=_id)
def test_calls(servers: str, runner: asyncio.Runner, call: Any) -> None:
    with headrace.Consumer(servers, group_id="billing", auto_offset_reset="earliest") as consumer:
        run(call, {"consumer": consumer}, runner)


@pytest.mark.parametrize("call", [call for call in AIO_CALLS if examples(call)], ids=_id)
def test_awaited_calls(servers: str, runner: asyncio.Runner, call: Any) -> None:
    consumer = headrace.aio.Consumer(servers, group_id="billing", auto_offset_reset="earliest")
    run(call, {"consumer": consumer}, runner)
    runner.run(consumer.close())


@pytest.mark.parametrize("subject", [*WHOLE, headrace.aio.Consumer], ids=_id)
def test_classes(servers: str, runner: asyncio.Runner, subject: Any) -> None:
    assert examples(subject)
    run(subject, {"servers": servers}, runner)


def test_nothing_is_without_an_example() -> None:
    without = {
        name for name in documented(headrace.Consumer) if not examples(getattr(headrace.Consumer, name))
    }
    assert without == PLAIN
    assert set(documented(headrace.aio.Consumer)) - {"__aiter__"} == set(documented(headrace.Consumer)) - {
        "__iter__"
    }
