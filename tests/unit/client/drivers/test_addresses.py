"""Names and what they stand for: several addresses, and name servers that take their time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.carriers import Carrier, LoopCarrier, ThreadCarrier
from harness.scripted_peer import PATIENCE_S, Peer, ScriptedServer, closed_port
from headrace.client.cluster import Address
from headrace.client.errors import Unreachable
from headrace.client.settings.network import NetworkSettings
from headrace.protocol.messages.metadata import MetadataResponse

BROKER = Address("broker.test", 9092)
SETUP_S = 0.5  # long enough to connect on a busy machine


def serve(peer: Peer) -> None:
    peer.negotiate()
    while True:
        peer.answer(peer.read(), MetadataResponse())


class Names:
    """A name server with one name."""

    def __init__(self) -> None:
        self.addresses: list[Address] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *, flags: int = 0, **options: Any) -> Any:
        if host != BROKER.host:
            return self._real(host, port, flags=flags, **options)
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror("not an address")
        assert self.may_answer.wait(PATIENCE_S)
        if not self.addresses:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in self.addresses]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr("socket.getaddrinfo", lambda host, port, *_, **options: made(host, port, **options))
    yield made
    made.may_answer.set()


@pytest.fixture(params=[ThreadCarrier, LoopCarrier], ids=["threads", "asyncio"])
def client(names: Names, request: pytest.FixtureRequest) -> Iterator[Carrier]:
    carrier: Carrier = request.param()
    carrier.start(NetworkSettings((BROKER,), setup_first_s=SETUP_S, setup_last_s=SETUP_S), None)
    yield carrier
    names.may_answer.set()
    carrier.close()


def test_a_name_with_several_addresses_is_tried_to_its_end(client: Carrier, names: Names) -> None:
    """As localhost, when a broker listens on IPv4 only."""
    with ScriptedServer(serve) as server:
        names.addresses = [closed_port(), closed_port(), server.address]
        assert isinstance(client.ask(), MetadataResponse)


def test_the_last_address_says_what_is_wrong(client: Carrier, names: Names) -> None:
    names.addresses = [closed_port(), closed_port()]
    answer = client.ask()
    assert isinstance(answer, Unreachable)
    assert str(answer) == "cannot connect to broker.test:9092: connection refused"


def test_a_name_server_that_takes_its_time_holds_nobody_up(client: Carrier, names: Names) -> None:
    names.may_answer.clear()
    with ScriptedServer(serve) as server:
        late = client.begin()
        assert isinstance(client.ask(to=server.address), MetadataResponse)
        answer = client.answer(late)
        assert isinstance(answer, Unreachable)
        assert "its name was not found in time" in str(answer)
        # found at last, for nobody
        names.addresses = [server.address]
        names.may_answer.set()
        assert isinstance(client.ask(), MetadataResponse)
        assert server.connection_count == 2


def test_a_name_that_nobody_knows(client: Carrier, names: Names) -> None:
    answer = client.ask()
    assert isinstance(answer, Unreachable)
    assert str(answer) == "cannot find the host 'broker.test': no such name"
