"""A simulated cluster: hosts with a node each, the network between them, and how clients reach them.

To clients it looks as a single host does: they connect to an address, or to any node.
"""

from collections.abc import Callable
from typing import Protocol

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.client.cluster import Address
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.simulator.history import History, JudgedWrong, PartitionKey, Violation
from headrace.simulator.host import Host
from headrace.simulator.network import Network
from headrace.simulator.node_changes import Changes, NodeChanges
from headrace.simulator.world import World
from headrace.storage.disk import Disk

ADDRESS = "127.0.0.1"
CLIENT_PORTS_FROM = 9_000  # and the number of the node
CONTROLLER_PORTS_FROM = 9_500
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"

# Logs here are short: most of one that moves to another directory is copied while it is written and read.
REST_BYTES_MAX = 1_000

# Shorter than the defaults, so that a run of some seconds has several failovers.
QUICK = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "3000",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "700",
    "log.initial.task.delay.ms": "100",
}


class ClusterJudge(Protocol):
    """Checks one promise over the state of all nodes."""

    @property
    def name(self) -> str: ...

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        """The node was called, and this has changed since the judges looked at it before; raises Violation
        when its state cannot be.
        """
        ...


class Cluster:
    def __init__(
        self, world: World, history: History, nodes: int, settings: dict[str, str], judges: list[ClusterJudge]
    ) -> None:
        self.world = world
        self.history = history
        self.network = Network(world)
        self._judges = judges
        self._changes = NodeChanges()
        replicas = str(min(nodes, 3))
        in_sync = "2" if nodes >= 3 else "1"
        shared = QUICK | {
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{n}@{ADDRESS}:{CONTROLLER_PORTS_FROM + n}" for n in range(1, nodes + 1)
            ),
            "headrace.cluster.id": CLUSTER_ID,
            "log.dirs": "a",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
        }
        self.hosts = {n: self._host(n, shared | settings) for n in range(1, nodes + 1)}

    def _host(self, number: int, texts: dict[str, str]) -> Host:
        client, controller = CLIENT_PORTS_FROM + number, CONTROLLER_PORTS_FROM + number
        listeners = f"PLAINTEXT://{ADDRESS}:{client},CONTROLLER://{ADDRESS}:{controller}"
        settings = Settings.parse(texts | {"node.id": str(number), "listeners": listeners})

        directories = texts["log.dirs"].split(",")

        def start(disks: dict[str, Disk], rng: Randomness, boot_id: str, now: Now) -> Node:
            node = Node(settings, disks, rng, boot_id, now)
            node.broker.moves.rest_bytes_max = REST_BYTES_MAX
            return node

        host = Host(self.world, self.history, directories, start, id=number, network=self.network)
        host.is_alone = False
        host.seen = self._seen
        self.network.listen((ADDRESS, client), host, "PLAINTEXT")
        self.network.listen((ADDRESS, controller), host, "CONTROLLER")
        return host

    def _seen(self, host: Host) -> None:
        node = host.node
        if node is None:
            return
        changes = self._changes.take(host, node)
        judge: ClusterJudge | None = None
        try:
            with host.unhindered():
                for judge in self._judges:
                    judge.look(host, node, changes)
        except Violation as violation:
            assert judge is not None
            sentence = f"node {host.id}: {violation}"
            raise JudgedWrong(judge.name, sentence, self.history.count, f"a call of node {host.id}") from None

    @property
    def directories(self) -> list[str]:
        """The log directories of each node."""
        return next(iter(self.hosts.values())).directories

    @property
    def size(self) -> int:
        return len(self.hosts)

    @property
    def brokers(self) -> int:
        """How many hosts have a broker."""
        return len(self.hosts)

    # --- for clients ----------------------------------------------------------------------------------

    def reach(self, address: Address | None) -> Host:
        """The host at that address, or any."""
        found = self.network.find((address.host, address.port)) if address is not None else None
        return found[0] if found is not None else self.world.rng.choice(list(self.hosts.values()))

    def durable_end(self, partition: PartitionKey) -> int:
        return -1  # replication promises more than an fsync, and other judges look at it

    # --- its life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        for host in self.hosts.values():
            host.start()

    def heal(self) -> None:
        """The network and all disks are well again, and every node runs."""
        self.network.heal()
        for host in self.hosts.values():
            host.heal()
            host.start()

    def nodes(self) -> dict[int, Node]:
        """Those that run."""
        return {number: host.node for number, host in self.hosts.items() if host.node is not None}

    @property
    def are_recovered(self) -> bool:
        """Whether all have looked at all their logs since their hosts were started: before that, a kill of a
        process counts as another lost host.
        """
        return all(
            directory.is_recovered
            for node in self.nodes().values()
            for _, directory in node.directories.online()
        )

    @property
    def controller_id(self) -> int:
        """The active controller, as far as the nodes that run know; -1: none of them does."""
        known = [node.controller.metadata for node in self.nodes().values()]
        newest = max(known, key=lambda metadata: metadata.leader_epoch, default=None)
        return newest.leader_id if newest is not None else -1

    def when(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Lives until the condition is true; False if it never was."""
        return self.world.run(self.world.mono + seconds, is_done=condition)
