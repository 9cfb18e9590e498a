"""The pytest plugin: fixtures with a real broker, and the marker and ini options that configure it.

A test run starts one broker per shape (settings, storage, process), and resets it between tests at the same
address. The plugin imports nothing but pytest until a test uses a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from headrace.testing.broker import Broker
    from headrace.testing.cluster import Cluster

MARKER = """\
headrace(settings=None, topics=None, storage=None, process=None): how headrace_broker is made for this test; \
settings by Kafka's names, topics as {name: partitions} or a list, storage "memory" or "disk", process=True \
for a broker in its own process. The mark closest to the test wins; settings are merged."""


class Shape(NamedTuple):
    """The arguments for which tests need different brokers. Topics are not among them: a reset creates
    them.
    """

    settings: tuple[tuple[str, str], ...]
    storage: str
    process: bool

    def broker(self) -> Broker:
        from headrace.testing.broker import Broker

        return Broker(dict(self.settings), storage=self.storage, process=self.process)  # type: ignore[arg-type]


class Wishes(NamedTuple):
    """The broker that a test wants, from its marks and the ini options."""

    shape: Shape
    topics: Mapping[str, int] | tuple[str, ...]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _spare_the_broker(pluginmanager)
    parser.addini("headrace_settings", "broker settings, one key=value per line", type="linelist", default=[])
    parser.addini("headrace_storage", "memory (default) or disk", default="memory")
    parser.addini("headrace_process", "run each broker in its own process", type="bool", default=False)


def _spare_the_broker(pluginmanager: pytest.PytestPluginManager) -> None:
    """Exclude the broker's modules from pytest's rewriting of asserts.

    pytest rewrites the asserts in every module of a distribution that has a plugin. For the broker that
    takes some seconds at the first run and makes all of its code slower. pytest has no public way to exclude
    modules; if this private one no longer exists, everything still works, but more slowly.
    """
    rewritten: set[str] = getattr(pluginmanager.rewrite_hook, "_must_rewrite", set())
    rewritten.difference_update({"headrace", "headrace.testing"})


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


class Brokers:
    """The brokers of one test run, by their shape."""

    def __init__(self) -> None:
        self._running: dict[Shape, Broker] = {}

    def lend(self, wishes: Wishes) -> Broker:
        """An empty broker with the topics that the test wants."""
        broker = self._running.get(wishes.shape)
        if broker is None or not broker.is_started:
            broker = self._running[wishes.shape] = wishes.shape.broker().start()
        broker.reset(wishes.topics)
        return broker

    def stop(self) -> None:
        while self._running:
            _, broker = self._running.popitem()
            broker.stop()


@pytest.fixture(scope="session")
def _headrace_brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    yield brokers
    brokers.stop()


@pytest.fixture
def headrace_broker(request: pytest.FixtureRequest, _headrace_brokers: Brokers) -> Iterator[Broker]:
    """An empty Kafka broker; `bootstrap_servers` is its address."""
    broker = _headrace_brokers.lend(_wishes(request))
    yield broker
    if broker.is_started and (lines := broker.log()):
        request.node.add_report_section("teardown", "headrace", "".join(lines))


@pytest.fixture
def headrace_broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Broker]]:
    """Starts brokers with the arguments of `headrace.testing.Broker`, and stops them after the test."""
    from headrace.testing.broker import Broker

    made: list[Broker] = []

    def make(settings: Mapping[str, Any] | None = None, **options: Any) -> Broker:
        broker = Broker(dict(_ini_settings(request.config)) | dict(settings or {}), **options)
        made.append(broker)
        return broker.start()

    yield make
    for broker in made:
        broker.stop()


@pytest.fixture
def headrace_cluster(request: pytest.FixtureRequest) -> Iterator[Callable[..., Cluster]]:
    """Starts clusters with the arguments of `headrace.testing.Cluster`, such as `headrace_cluster(3)`, and
    stops them after the test.
    """
    from headrace.testing.cluster import Cluster

    made: list[Cluster] = []

    def make(nodes: int = 3, settings: Mapping[str, Any] | None = None, **options: Any) -> Cluster:
        cluster = Cluster(nodes, dict(_ini_settings(request.config)) | dict(settings or {}), **options)
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in made:
        if cluster.is_started:
            lines = [f"node {node} {line}" for node in cluster.nodes for line in cluster.log(node)]
            if lines:
                request.node.add_report_section("teardown", "headrace", "".join(lines))
        cluster.stop()


def _wishes(request: pytest.FixtureRequest) -> Wishes:
    from headrace.testing.broker import setting_text

    settings = dict(_ini_settings(request.config))
    storage: str = request.config.getini("headrace_storage")
    process: bool = request.config.getini("headrace_process")
    topics: Mapping[str, int] | tuple[str, ...] = ()
    marks = list(request.node.iter_markers("headrace"))
    for mark in reversed(marks):  # the closest comes last
        asked = _checked(mark)
        settings.update({key: setting_text(value) for key, value in (asked.get("settings") or {}).items()})
        storage = asked.get("storage") or storage
        process = process if asked.get("process") is None else bool(asked["process"])
        if asked.get("topics") is not None:
            given = asked["topics"]
            topics = given if isinstance(given, Mapping) else tuple(given)
    return Wishes(Shape(tuple(sorted(settings.items())), storage, process), topics)


def _checked(mark: pytest.Mark) -> Mapping[str, Any]:
    unknown = set(mark.kwargs) - {"settings", "topics", "storage", "process"}
    if mark.args or unknown:
        what = f"{sorted(unknown)[0]!r}" if unknown else "arguments without a name"
        raise pytest.UsageError(f"@pytest.mark.headrace does not take {what}; see `pytest --markers`")
    return mark.kwargs


def _ini_settings(config: pytest.Config) -> list[tuple[str, str]]:
    pairs = []
    for line in config.getini("headrace_settings"):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"headrace_settings: {line!r} is not key=value")
        pairs.append((key.strip(), value.strip()))
    return pairs
