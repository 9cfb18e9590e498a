"""Nodes of one cluster on a simulated network, and a clock that the test lets run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.snapshot import image_hash
from headrace.node.connection import Connection
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.simulator.frames import read_answer, request_bytes
from headrace.simulator.history import History
from headrace.simulator.host import Host
from headrace.simulator.network import Network
from headrace.simulator.world import World
from headrace.storage.disk import Disk

COMBINED = dict.fromkeys((1, 2, 3), "broker,controller")
APART = {**dict.fromkeys((1, 2, 3), "controller"), **dict.fromkeys((4, 5), "broker")}


class SimulatedCluster:
    """By default three nodes, each broker and controller."""

    def __init__(
        self,
        seed: int = 1,
        *,
        roles: dict[int, str] | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.history = History(self.world, [])
        self._settings = settings or {}
        self._roles = roles or COMBINED
        self.hosts = {id: self._host(id) for id in self._roles}
        for host in self.hosts.values():
            host.is_alone = False
            host.restarts = False
            host.start()

    def _host(self, id: int) -> Host:
        roles = self._roles[id]
        voters = [voter for voter, its_roles in self._roles.items() if "controller" in its_roles]
        listeners = {"broker": f"PLAINTEXT://127.0.0.1:{9000 + id}"} if "broker" in roles else {}
        if "controller" in roles:
            listeners["controller"] = f"CONTROLLER://127.0.0.1:{9100 + id}"
        settings = Settings.parse(
            {
                "node.id": str(id),
                "process.roles": roles,
                "listeners": ",".join(listeners.values()),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{9100 + one}" for one in voters),
                "log.dirs": "a",
                "headrace.cluster.id": "c1",
                "min.insync.replicas": "2",
                **self._settings,
            }
        )

        def start(disks: dict[str, Disk], rng: Randomness, boot_id: str, now: Now) -> Node:
            return Node(settings, disks, rng, boot_id, now)

        host = Host(self.world, self.history, ["a"], start, id=id, network=self.network)
        if "broker" in roles:
            self.network.listen(("127.0.0.1", 9000 + id), host, "PLAINTEXT")
        if "controller" in roles:
            self.network.listen(("127.0.0.1", 9100 + id), host, "CONTROLLER")
        return host

    # --- time -------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        self.world.run(self.world.mono + seconds)

    def until(self, holds: Callable[[], Any], seconds: float = 10.0) -> float:
        """Let time pass until it holds; how long that took."""
        begin = self.world.mono
        assert self.run_until(holds, seconds), f"not within {seconds} s"
        return self.world.mono - begin

    def run_until(self, holds: Callable[[], Any], seconds: float) -> bool:
        """Let time pass until it holds, or so long; whether it holds."""
        begin = self.world.mono
        while not holds():
            if self.world.mono - begin >= seconds:
                return False
            self.run(0.005)
        return True

    # --- the nodes --------------------------------------------------------------------------------------

    def node(self, id: int) -> Node:
        node = self.hosts[id].node
        assert node is not None, f"node {id} is down"
        return node

    @property
    def up(self) -> list[int]:
        return [id for id, host in self.hosts.items() if host.node is not None]

    def active(self) -> int | None:
        """The active controller, if there is one."""
        found = [id for id in self.up if self.node(id).controller.metadata.is_active]
        return found[0] if len(found) == 1 else None

    def image(self, id: int | None = None) -> ClusterImage:
        """The committed image of the active controller, or of one node."""
        chosen = self.active() if id is None else id
        assert chosen is not None
        return self.node(chosen).controller.metadata.image

    def unfenced(self) -> list[int]:
        if self.active() is None:
            return []
        return [broker.id for broker in self.image().live_brokers()]

    def all_ready(self) -> bool:
        return all(self.node(id).is_ready for id in self.up)

    def agrees(self) -> bool:
        """All nodes that are up have the same image."""
        return len({image_hash(self.image(id)) for id in self.up}) == 1

    def others(self, id: int | None) -> list[int]:
        return [other for other in self.up if other != id]


class ClusterClient:
    """Asks one node, and takes the answer when it comes."""

    def __init__(self, cluster: SimulatedCluster, id: int) -> None:
        self.cluster = cluster
        self.host = cluster.hosts[id]
        self.answers: list[bytes] = []
        self.muted_until = 0.0  # as its node said; it asks on all the same
        connection = self.host.accept(self)
        assert connection is not None, f"node {id} does not serve"
        self.connection: Connection = connection

    def answered(self, frame: bytes) -> None:
        self.answers.append(frame)

    def broke(self) -> None:
        """The node is gone: nobody asks it any more."""

    def mute(self, until: float) -> None:
        self.muted_until = until

    def send(self, request: Any, version: int) -> None:
        self.host.received(
            self, self.connection, request_bytes(type(request).KEY, version, 1, "test", request)
        )

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        self.cluster.until(lambda: self.answers)
        return read_answer(self.answers.pop(), type(request).KEY, version)

    def metadata(self, *topics: str) -> Any:
        asked = [MetadataRequestTopic(name=name) for name in topics]
        return self.ask(MetadataRequest(topics=asked if topics else None), 9)
