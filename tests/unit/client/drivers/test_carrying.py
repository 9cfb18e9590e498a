"""What both drivers do for a session: carry its requests, settle every ticket once, wait, and end."""

from __future__ import annotations

from typing import Any

import pytest

from harness.carriers import Carrier
from harness.scripted_peer import Peer, ScriptedServer, closed_port
from headrace.client.errors import (
    ClientBroken,
    ClientError,
    Closed,
    ConnectionLost,
    Unreachable,
    UnsupportedByBroker,
)
from headrace.client.network.connection import ByVersion
from headrace.client.session import FETCH
from headrace.protocol.messages.fetch import FetchRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

MANY_BYTES = 16 << 20  # more than sockets hold


def serve(peer: Peer) -> None:
    peer.negotiate()
    while True:
        asked = peer.read()
        if isinstance(asked.request, MetadataRequest):
            peer.answer(asked, MetadataResponse(cluster_id=f"{asked.correlation_id}"))
        elif asked.request.acks != 0:
            peer.answer(asked, ProduceResponse())


def stall(peer: Peer) -> None:
    peer.negotiate()
    peer.wait_for_end()


def produce(size: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(size))
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def test_answers_find_their_questions(connect: Any) -> None:
    with ScriptedServer(serve) as server:
        client: Carrier = connect(server.address)
        numbers = [client.begin() for _ in range(20)]
        answers: list[Any] = [client.answer(number) for number in numbers]
        assert [answer.cluster_id for answer in answers] == [f"{number}" for number in numbers]
        assert server.connection_count == 1


def test_a_lane_has_connections_of_its_own(connect: Any) -> None:
    """What a broker holds back must not hold up the rest."""

    def hold_back(peer: Peer) -> None:
        peer.negotiate()
        while isinstance((asked := peer.read()).request, MetadataRequest):
            peer.answer(asked, MetadataResponse())
        peer.wait_for_end()

    with ScriptedServer(hold_back) as server:
        client: Carrier = connect(server.address)
        held = client.begin(FindCoordinatorRequest(), lane=FETCH)
        assert isinstance(client.ask(), MetadataResponse)
        assert held not in client.session.answers


def test_requests_larger_than_what_sockets_hold(connect: Any) -> None:
    with ScriptedServer(serve) as server:
        client: Carrier = connect(server.address)
        numbers = [client.begin(produce(MANY_BYTES), version_max=9), client.begin()]
        assert isinstance(client.answer(numbers[0]), ProduceResponse)
        assert isinstance(client.answer(numbers[1]), MetadataResponse)


def test_a_request_without_an_answer_is_settled_when_it_has_left(connect: Any) -> None:
    with ScriptedServer(serve) as server:
        client: Carrier = connect(server.address)
        assert not isinstance(
            client.ask(produce(10, acks=0), version_max=9, expects_answer=False), ClientError
        )
        assert isinstance(client.ask(), MetadataResponse)


def test_a_request_that_the_broker_does_not_know_fails_alone(connect: Any) -> None:
    with ScriptedServer(serve) as server:
        client: Carrier = connect(server.address)
        numbers = [client.begin(FetchRequest()), client.begin()]
        assert isinstance(client.answer(numbers[0]), UnsupportedByBroker)
        assert isinstance(client.answer(numbers[1]), MetadataResponse)
        assert server.connection_count == 1


def test_any_broker_means_one_that_answers(connect: Any) -> None:
    with ScriptedServer(serve) as server:
        client: Carrier = connect(closed_port(), closed_port(), server.address)
        failures = 0
        while isinstance(client.ask(), Unreachable):
            failures += 1
        assert failures <= 2  # each dead one was asked once at most
        for _ in range(10):
            assert isinstance(client.ask(), MetadataResponse)


def test_brokers_of_the_cluster_come_before_bootstrap_addresses(connect: Any) -> None:
    with ScriptedServer(serve) as first, ScriptedServer(serve) as second:
        client: Carrier = connect(first.address)
        host, port = second.address
        broker = MetadataResponseBroker(node_id=2, host=host, port=port)
        client.session.cluster.update(MetadataResponse(brokers=[broker]))
        assert isinstance(client.ask(), MetadataResponse)
        assert (first.connection_count, second.connection_count) == (0, 1)


def test_an_idle_connection_is_closed_and_opened_again(connect: Any) -> None:
    with ScriptedServer(serve) as server:
        client: Carrier = connect(server.address, idle_s=0.05)
        for count in (1, 2):
            assert isinstance(client.ask(), MetadataResponse)
            assert server.connection_count == count
            client.wait_until(lambda: not server.ended.empty(), 0.2)
            server.wait_until_ended()


def test_waiting_ends_with_its_time(connect: Any) -> None:
    with ScriptedServer(stall) as server:
        client: Carrier = connect(server.address)
        number = client.begin()
        assert client.wait_until(lambda: number in client.session.answers, 0.05) is False
        assert client.wait_until(lambda: number in client.session.answers, 0.0) is False


def test_closing_settles_what_is_on_its_way(connect: Any) -> None:
    with ScriptedServer(stall) as server:
        client: Carrier = connect(server.address)
        number = client.begin()
        client.wait_until(lambda: False, 0.05)
        client.close()
        assert isinstance(client.session.answers[number], ConnectionLost)
        with pytest.raises(Closed):
            client.driver.check()
        server.wait_until_ended()  # it saw the end of the stream


def test_a_mistake_in_the_session_reaches_everybody_who_waits(connect: Any) -> None:
    with ScriptedServer(serve) as server:
        client: Carrier = connect(server.address)

        def fail(answer: object) -> None:
            raise ZeroDivisionError("a planted mistake")

        client.session.on_answer = fail
        with pytest.raises(ClientBroken, match="planted") as raised:
            client.ask()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        with pytest.raises(ClientBroken):  # and everybody who comes later
            client.wait_until(lambda: False, 20.0)
        server.wait_until_ended()


def test_a_mistake_in_the_shell_reaches_everybody_who_waits(connect: Any) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a planted mistake")

    client: Carrier = connect(closed_port(), after_turn=fail)
    with pytest.raises(ClientBroken, match="planted"):
        client.wait_until(lambda: False, 20.0)


def test_a_mistake_in_a_question_reaches_everybody_who_waits(connect: Any) -> None:
    def make(version: int) -> MetadataRequest:
        raise ZeroDivisionError("a planted mistake")

    with ScriptedServer(serve) as server:
        client: Carrier = connect(server.address)
        with pytest.raises(ClientBroken, match="planted"):
            client.ask(ByVersion(MetadataRequest, make))


def test_the_shell_is_called_after_every_turn(connect: Any) -> None:
    seen: list[int] = []
    clients: list[Carrier] = []
    with ScriptedServer(serve) as server:
        note = lambda: seen.extend(len(client.session.answers) for client in clients)  # noqa: E731
        clients.append(connect(server.address, after_turn=note))
        for _ in range(3):
            clients[0].ask()
        assert set(seen) >= {1, 2}  # the turn of the third answer may not be over yet
