"""The simulated network between nodes: answers, and the three ways in which there is none."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.node import Node
from headrace.node.peers import Peer, Unanswered
from headrace.node.settings import Settings
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.simulator.history import History
from headrace.simulator.host import Host
from headrace.simulator.network import Network
from headrace.simulator.world import World
from headrace.storage.disk import Disk

TIMEOUT_MS = 5_000


class Pair:
    """Two nodes of which the first asks the second for its versions."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        history = History(self.world, [])
        self.hosts = [self._host(history, id) for id in (1, 2)]
        self.asking, self.asked = self.hosts
        self.asked.restarts = False
        self.results: list[Any] = []
        for host in self.hosts:
            host.start()
        self.world.run(self.world.mono + 5.0)

    def _host(self, history: History, id: int) -> Host:
        texts = {"node.id": str(id), "listeners": f"PLAINTEXT://127.0.0.1:{9000 + id}", "log.dirs": "a"}
        settings = Settings.parse(texts)

        def start(disks: dict[str, Disk], rng: Randomness, boot_id: str, now: Now) -> Node:
            return Node(settings, disks, rng, boot_id, now)

        host = Host(self.world, history, ["a"], start, id=id, network=self.network)
        self.network.listen(("127.0.0.1", 9000 + id), host, "PLAINTEXT")
        return host

    def ask(self, lane: str = "lane") -> None:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")

        def send(node: Node, now: Now) -> None:
            peer = Peer(2, "127.0.0.1", 9002)
            node.peers.send(now, peer, lane, request, TIMEOUT_MS, lambda now, it: self.results.append(it))

        self.asking.touch(send)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.mono + seconds)

    @property
    def outcome(self) -> list[Unanswered | str]:
        return [it if isinstance(it, Unanswered) else "answered" for it in self.results]


def test_a_peer_answers_in_order() -> None:
    pair = Pair()
    for _ in range(3):
        pair.ask()
    pair.run(2)
    assert pair.outcome == ["answered"] * 3


def test_a_peer_that_is_down_refuses() -> None:
    pair = Pair()
    pair.asked.kill()
    pair.ask()
    pair.run(1)
    assert pair.outcome == [Unanswered.REFUSED]


def test_a_peer_that_dies_loses_what_it_was_asked() -> None:
    pair = Pair()
    pair.ask()
    pair.run(1)
    pair.asked.pause(3)
    pair.ask()
    pair.run(1)
    pair.asked.kill()
    pair.run(1)
    assert pair.outcome == ["answered", Unanswered.LOST]


@pytest.mark.parametrize("link", [(1, 2), (2, 1)])
def test_a_link_that_is_cut_in_one_direction_is_silent(link: tuple[int, int]) -> None:
    pair = Pair()
    pair.ask()
    pair.run(1)
    pair.network.cut(*link)
    pair.ask()
    pair.run(TIMEOUT_MS / 1000 + 1)
    assert pair.outcome == ["answered", Unanswered.SILENT]


def test_what_waited_for_a_link_arrives_when_it_has_healed() -> None:
    pair = Pair()
    pair.ask()
    pair.run(1)
    pair.network.cut(1, 2)
    pair.ask()
    pair.run(2)
    pair.network.heal()
    pair.run(1)
    assert pair.outcome == ["answered", "answered"]


def test_a_paused_peer_answers_when_it_goes_on() -> None:
    pair = Pair()
    pair.asked.pause(2)
    pair.ask()
    pair.run(1.5)
    assert pair.outcome == []
    pair.run(1.5)
    assert pair.outcome == ["answered"]


def test_a_paused_peer_goes_on_when_all_heals() -> None:
    pair = Pair()
    pair.asked.pause(10)
    pair.ask()
    pair.run(1)
    assert pair.outcome == []
    pair.asked.heal()
    pair.run(1)
    assert pair.outcome == ["answered"]


def test_a_link_that_refuses_breaks_what_there_is() -> None:
    pair = Pair()
    pair.asked.pause(1)
    pair.ask()
    pair.run(0.5)
    pair.network.refuse(1, 2)
    pair.run(0.1)
    pair.ask()
    pair.run(1)
    assert pair.outcome == [Unanswered.LOST, Unanswered.REFUSED]


def test_a_link_that_is_severed_stays_so_whatever_is_mended() -> None:
    pair = Pair()
    pair.ask()
    pair.run(1)
    pair.network.sever([(1, 2)])
    pair.network.mend(1, 2)
    pair.ask()
    pair.run(2)
    assert pair.outcome == ["answered"]
    pair.network.sever([])
    pair.run(1)
    assert pair.outcome == ["answered", "answered"]


def test_a_request_that_lingers_outlives_its_sender() -> None:
    """It arrives after a request of the next run, which has a connection of its own."""
    pair = Pair()
    node = pair.asked.node
    assert node is not None
    handled: list[int] = []  # connections
    handle = node.handle

    def note(now: Now, connection: Connection, frame: memoryview) -> Any:
        handled.append(connection.id)
        return handle(now, connection, frame)

    node.handle = note  # type: ignore[method-assign]
    pair.ask()
    pair.run(1)
    (old,) = handled
    pair.network.linger(1, 2, 2.0)
    pair.ask()
    pair.run(0.1)
    pair.network.linger(1, 2, 0.0)
    pair.asking.kill()
    pair.run(1)
    pair.ask()
    pair.run(0.5)
    assert len(handled) == 2
    assert old != handled[1]
    pair.run(1)
    assert handled[2:] == [old]


def test_answers_that_are_held_are_sent_when_they_are_released() -> None:
    pair = Pair()
    pair.asked.hold_answers(1)
    pair.ask()
    pair.run(2)
    assert pair.outcome == []
    pair.asked.release_answers()
    pair.run(1)
    assert pair.outcome == ["answered"]


def test_the_other_end_of_a_connection_hears_that_its_sender_died() -> None:
    pair = Pair()
    pair.ask()
    pair.run(1)
    node = pair.asked.node
    assert node is not None
    assert node.metrics.connections == 1
    pair.asking.restarts = False
    pair.asking.kill()
    pair.run(1)
    assert node.metrics.connections == 0
    assert pair.outcome == ["answered"]
