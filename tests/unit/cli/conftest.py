"""Commands in the test's own process, against a broker in memory that is empty at the start of each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.command_line import CommandLine
from headrace.testing import Broker

# Clients without a login are super users, so the commands need none.
GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    with Broker(GUARDED) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Broker:
    """With an authorizer."""
    shared_broker.reset()
    return shared_broker


@pytest.fixture
def headrace(
    broker: Broker, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap_servers)
    return CommandLine(capfdbinary)
