"""A simulated cluster whose controllers and brokers are processes of their own."""

from __future__ import annotations

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.client.cluster import Address
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.simulator.cluster import ADDRESS, CLIENT_PORTS_FROM, CONTROLLER_PORTS_FROM, Cluster
from headrace.simulator.history import JudgedWrong, Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes
from headrace.storage.disk import Disk

CONTROLLERS = (1, 2, 3)

# Those that look at the metadata of a node, and need no broker there.
LOOK_AT_CONTROLLERS = (
    "metadata_agrees",
    "one_vote_per_epoch",
    "committed_entries_stay",
    "leaders_commit_their_own_epoch",
    "controllers_know_all",
    "truncation_spares_the_committed",
)


class SeparateRoles(Cluster):
    """`nodes` are the brokers that run; faults strike all hosts."""

    def _host(self, number: int, texts: dict[str, str]) -> Host:
        is_controller = number in CONTROLLERS
        port = (CONTROLLER_PORTS_FROM if is_controller else CLIENT_PORTS_FROM) + number
        listener = "CONTROLLER" if is_controller else "PLAINTEXT"
        voters = ",".join(f"{n}@{ADDRESS}:{CONTROLLER_PORTS_FROM + n}" for n in CONTROLLERS)
        settings = Settings.parse(
            texts
            | {
                "node.id": str(number),
                "process.roles": "controller" if is_controller else "broker",
                "listeners": f"{listener}://{ADDRESS}:{port}",
                "controller.quorum.voters": voters,
            }
        )

        def start(disks: dict[str, Disk], rng: Randomness, boot_id: str, now: Now) -> Node:
            return Node(settings, disks, rng, boot_id, now)

        host = Host(self.world, self.history, ["a"], start, id=number, network=self.network)
        host.is_alone = False
        host.seen = self._controller_seen if is_controller else self._seen
        self.network.listen((ADDRESS, port), host, listener)
        return host

    def _controller_seen(self, host: Host) -> None:
        node = host.node
        if node is None:
            return
        for judge in self._judges:
            if judge.name in LOOK_AT_CONTROLLERS:
                try:
                    judge.look(host, node, Changes([], has_quorum=True))
                except Violation as violation:
                    sentence = f"controller {host.id}: {violation}"
                    raise JudgedWrong(judge.name, sentence, self.history.count, "a call of it") from None

    @property
    def brokers(self) -> int:
        return len(self.hosts) - len(CONTROLLERS)

    def reach(self, address: Address | None) -> Host:
        if address is not None:
            return super().reach(address)
        return self.world.rng.choice([host for id, host in self.hosts.items() if id not in CONTROLLERS])

    def nodes(self) -> dict[int, Node]:
        return {number: node for number, node in super().nodes().items() if number not in CONTROLLERS}
