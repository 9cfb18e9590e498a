"""What the client tests talk to: `--broker=headrace`, the default, or the oracle, `--broker=kafka`; one node,
or as many as `--nodes` says.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from harness import answer_order, open_sockets
from harness.broker import Broker
from harness.headrace import Headrace
from harness.judged_server import MARK
from harness.kafka import Kafka
from harness.whole_cluster import WholeCluster

# `make test` tries the same examples each time, so a change fails by its own fault. `make fuzz` looks for
# new ones, with --hypothesis-profile=random. Neither fails because the machine is busy with something else.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", UNHURRIED, derandomize=True)
settings.register_profile("random", UNHURRIED, derandomize=False)
settings.load_profile("fixed")

open_sockets.watch()

BROKERS: dict[str, type[Broker]] = {"headrace": Headrace, "kafka": Kafka}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", choices=sorted(BROKERS), default="headrace", help="what the clients talk to")
    parser.addoption(
        "--kill-brokers", action="store_true", help="with --nodes: they are killed and started again, in turn"
    )
    parser.addoption(
        "--network-core",
        choices=("on", "off"),
        default="on",
        help="whether brokers use the compiled network core, or asyncio's transports",
    )
    parser.addoption("--nodes", type=int, default=1, help="how many nodes the broker consists of")


# What kafka-python and aiokafka leave open when a connection breaks under them.
LEAKS = ("unclosed <socket", "unclosed transport", "loop is closed", "Unclosed AIOKafkaConnection")


def pytest_configure(config: pytest.Config) -> None:
    Headrace.uses_core = config.getoption("--network-core") == "on"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need all brokers all the time are skipped while brokers are killed."""
    if config.getoption("--kill-brokers"):
        for item in items:
            for leak in LEAKS:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{leak}:ResourceWarning"))
            if item.get_closest_marker("steady"):
                item.add_marker(pytest.mark.skip("brokers are killed"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (origin := open_sockets.origin_of(report.longreprtext)) is not None:
        report.sections.append(("the socket was opened here", origin))
    return report


@pytest.fixture(scope="session")
def misplaced_answers() -> Iterator[list[str]]:
    """What the judge of answers' order has seen in this process."""
    seen: list[str] = []
    end = answer_order.watch(seen.append)
    yield seen
    end()


@pytest.fixture(autouse=True)
def answers_leave_in_request_order(misplaced_answers: list[str]) -> Iterator[None]:
    misplaced_answers.clear()
    yield
    assert not misplaced_answers, "\n".join(misplaced_answers)


@pytest.fixture(scope="session")
def new_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Broker]]:
    """Makes brokers of the chosen kind, not yet started; all that still run are killed at the end."""
    kind = request.config.getoption("--broker")
    nodes = request.config.getoption("--nodes")
    made: list[Broker] = []

    def make(
        settings: dict[str, str] | None = None, directory: Path | None = None, nodes: int = nodes
    ) -> Broker:
        place = directory or tmp_path_factory.mktemp(kind)
        if nodes > 1:
            made.append(
                WholeCluster(kind, place, settings, nodes, request.config.getoption("--kill-brokers"))
            )
        else:
            made.append(BROKERS[kind](place, settings))
        made[-1].is_judged = True
        return made[-1]

    yield make
    for broker in made:
        broker.kill()
    assert not [line for broker in made for line in broker.output().splitlines() if MARK in line]
