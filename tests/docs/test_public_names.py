"""The names that users import: all there, loaded late, and documented with examples that run."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
import headrace.aio
from docs.docstring_examples import documented, examples, run
from headrace.testing import Broker


def test_every_name_is_there_and_nothing_else_is_promised() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
    assert set(headrace.__all__) == {*headrace._HOME_OF, "__version__"}
    assert set(headrace.__all__) <= set(dir(headrace))
    with pytest.raises(AttributeError, match="no attribute 'Producr'"):
        headrace.Producr  # noqa: B018


def test_names_are_loaded_when_they_are_used() -> None:
    """A broker's start must not pay for a client; nobody pays for pyarrow unasked."""
    program = (
        "import sys, headrace\n"
        "assert 'headrace.client' not in sys.modules\n"
        "headrace.Producer\n"
        "assert 'asyncio' not in sys.modules and 'pyarrow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


KINDS = [headrace.Producer, headrace.aio.Producer]
OTHERS = [
    headrace.Delivery,
    headrace.GroupMembership,
    headrace.PartitionRows,
    headrace.RecordMetadata,
    headrace.Serializer,
    headrace.TableDelivery,
    headrace.TableMetadata,
    headrace.TopicPartition,
    headrace.dataclass_json,
    headrace.msgspec_json,
    headrace.msgspec_messagepack,
    headrace.pydantic_json,
    headrace.serializer_for,
]
CALLS = [(kind, name) for kind in KINDS for name in documented(kind)]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def names(headrace_broker: Broker) -> dict[str, Any]:
    return {"__name__": "example", "headrace": headrace, "servers": headrace_broker.bootstrap_servers}


@pytest.mark.parametrize(("kind", "name"), CALLS, ids=lambda part: getattr(part, "__module__", part))
def test_every_call_of_a_producer_has_an_example_that_runs(
    kind: Any, name: str, names: dict[str, Any], runner: asyncio.Runner
) -> None:
    producer = names["producer"] = kind(names["servers"])
    call = getattr(kind, name)
    assert examples(call)
    run(call, names, runner)
    closing = producer.close()
    if closing is not None:
        runner.run(closing)


@pytest.mark.parametrize("subject", [*KINDS, *OTHERS], ids=lambda subject: subject.__name__)
def test_and_so_has_everything_else(subject: Any, names: dict[str, Any], runner: asyncio.Runner) -> None:
    with headrace.Producer(names["servers"]) as producer:
        names["producer"] = producer
        assert examples(subject)
        run(subject, names, runner)


@pytest.mark.parametrize(("kind", "name"), CALLS, ids=lambda part: getattr(part, "__module__", part))
def test_every_call_is_typed(kind: Any, name: str) -> None:
    call = inspect.unwrap(getattr(kind, name))
    hints = inspect.get_annotations(call)
    assert {*inspect.signature(call).parameters} - {"self"} | {"return"} == set(hints) - {"self"}
