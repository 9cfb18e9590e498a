"""Every public name of the admin client has an example, and the examples run."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from confluent_kafka import Producer

from harness.broker import Broker
from harness.wait import WAIT_S
from headrace.client import admin
from headrace.client.aio import admin as asyncly
from headrace.client.cluster import TopicPartition
from headrace.client.membership.events import CommittedOffset
from headrace.client.threads import admin as blocking
from headrace.client.threads.admin import Admin

ONE_PARTITION_EACH = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}

# APIs that no other broker has; whoever asks one is told so.
OF_HEADRACE_ONLY = {
    *("split_ranges", "RangeSplits"),
    *("Sink", "list_sinks", "commit_sink", "abort_sink", "reset_sink"),
}


def operations() -> dict[str, Any]:
    return {name: made for name, made in vars(Admin).items() if not name.startswith("_") and callable(made)}


def values() -> dict[str, Any]:
    """Public classes of the modules in which operations are written."""
    modules = {import_module(f"{admin.__name__}.{one.name}") for one in iter_modules(admin.__path__)}
    homes = {
        module
        for module in modules
        if any(
            inspect.isgeneratorfunction(one) and name in operations() for name, one in vars(module).items()
        )
    }
    return {
        name: made
        for module in homes
        for name, made in vars(module).items()
        if inspect.isclass(made) and made.__module__ == module.__name__ and not name.startswith("_")
    }


@pytest.fixture(scope="module")
def world(new_broker: Callable[..., Broker]) -> Iterator[dict[str, Any]]:
    """What the examples take for granted: a topic, a group that has read of it, and a transactional id."""
    broker = new_broker(ONE_PARTITION_EACH, nodes=1)
    with broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=3)
        writer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for _ in range(2):
            writer.produce("orders", b"value", partition=0)
        assert writer.flush(WAIT_S) == 0
        admin.alter_group_offsets("readers", {("orders", 0): 1})
        copier = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "copier"})
        copier.init_transactions(WAIT_S)
        yield values() | {
            "Admin": Admin,
            "CommittedOffset": CommittedOffset,
            "TopicPartition": TopicPartition,
            "admin": admin,
            "broker": broker.name,
            "servers": broker.bootstrap,
        }


@pytest.mark.parametrize("name", sorted({*operations(), *values()}))
def test_an_example_runs(name: str, world: dict[str, Any]) -> None:
    documented = operations().get(name) or values()[name]
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(documented) or "")
    assert examples, f"{name} has no example"
    if world["broker"] == "kafka" and name in OF_HEADRACE_ONLY:
        with pytest.raises(AssertionError, match="UnsupportedByBroker"):
            run(name, documented, world)
    else:
        run(name, documented, world)


@pytest.mark.parametrize("module", [blocking, asyncly])
def test_the_example_of_each_shell_runs(module: Any, world: dict[str, Any]) -> None:
    run(module.__name__, module.Admin, world)


def run(name: str, documented: Any, world: dict[str, Any]) -> None:
    text = inspect.getdoc(documented) or ""
    test = doctest.DocTestParser().get_doctest(text, dict(world), name, None, 0)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append)
    assert result.failed == 0, "".join(output)
