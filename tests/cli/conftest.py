"""The command as users run it: a process with pipes, against a real broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from cli.guarded import AUTHORIZED
from cli.shell import Inside, Shell
from harness.broker import Broker
from headrace import Admin
from headrace.client.admin.acls import AclFilter


@pytest.fixture(scope="session")
def cli_broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    with new_broker() as broker:
        yield broker


@pytest.fixture
def new_shell() -> Iterator[Callable[[str], Shell]]:
    """Makes shells for brokers by their addresses."""
    made: list[Shell] = []

    def make(bootstrap: str = "") -> Shell:
        made.append(Shell(bootstrap))
        return made[-1]

    yield make
    for shell in made:
        shell.end()


@pytest.fixture
def headrace(cli_broker: Broker, new_shell: Callable[[str], Shell]) -> Shell:
    return new_shell(cli_broker.bootstrap)


@pytest.fixture
def inside(cli_broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    """For many commands: a process for each would take longer than all they do."""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", cli_broker.bootstrap)
    return Inside(capsys)


_numbers = itertools.count()


@pytest.fixture
def topic(cli_broker: Broker) -> str:
    """A new topic with two partitions."""
    name = f"cli-{os.getpid()}-{next(_numbers)}"
    with Admin(cli_broker.bootstrap) as admin:
        admin.create_topic(name, partitions=2)
    return name


@pytest.fixture(scope="session")
def guarded_broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """A broker with an authorizer."""
    with new_broker(AUTHORIZED) as broker:
        yield broker


@pytest.fixture
def guarded(
    guarded_broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Inside:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", guarded_broker.bootstrap)
    with Admin(guarded_broker.bootstrap) as admin:
        admin.delete_acls([AclFilter()])
    return Inside(capsys)
