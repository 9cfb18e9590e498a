"""Several brokers as one cluster, Headrace or Apache Kafka: started together, killed and paused one by one.

Every node is a broker and a voter. Topics have three replicas, two of which have to have a record, as
`headrace up --brokers 3` sets it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from harness.broker import Broker, BrokerFailed, write_properties
from harness.headrace import Headrace
from harness.kafka import CLUSTER_ID, Kafka, free_ports, java
from harness.node_links import NodeLinks
from harness.wait import Patience

REPLICAS = 3
WAIT_S = 60.0


class HeadraceNode(Headrace):
    """A node of a cluster, whose settings are given whole, and whose port is chosen beforehand."""

    def is_serving(self) -> bool:
        return Broker.is_serving(self)

    def write_settings(self) -> None:
        defaults = {"log.dirs": str(self.data), "headrace.network.core": str(self.uses_core).lower()}
        write_properties(self.directory / "server.properties", defaults | self.settings)


class KafkaNode(Kafka):
    def write_settings(self) -> None:
        write_properties(self.directory / "server.properties", {"log.dirs": str(self.data), **self.settings})

    def format(self) -> None:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.directory / "server.properties")]
        done = subprocess.run(
            java("kafka.tools.StorageTool", *arguments), capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise BrokerFailed(f"kafka format: {done.stdout}{done.stderr}")


NODES: dict[str, type[Broker]] = {"headrace": HeadraceNode, "kafka": KafkaNode}


class Cluster:
    def __init__(
        self,
        kind: str,
        directory: Path,
        settings: dict[str, str] | None = None,
        nodes: int = 3,
        links: NodeLinks | None = None,
    ) -> None:
        """`links`: through which the nodes talk to each other; clients reach them directly."""
        self.name = kind
        self.directory = directory
        self.links = links
        ports = free_ports(3 * nodes)
        controllers = {n + 1: ports[nodes + n] for n in range(nodes)}
        known = controllers if links is None else links.controller_ports
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in known.items())
        replicas = str(min(nodes, REPLICAS))
        in_sync = "2" if nodes >= REPLICAS else "1"
        shared = {
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
        }
        if kind == "headrace":
            shared["headrace.cluster.id"] = CLUSTER_ID
        self.nodes: dict[int, Broker] = {}
        for n in range(nodes):
            own = {
                "node.id": str(n + 1),
                "listeners": f"PLAINTEXT://127.0.0.1:{ports[n]},CONTROLLER://127.0.0.1:{controllers[n + 1]}",
            }
            if links is not None:
                inner = ports[2 * nodes + n]
                links.serve(n + 1, inner, controllers[n + 1])
                own["listeners"] += f",NODES://127.0.0.1:{inner}"
                own |= {
                    "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[n]},"
                    f"NODES://127.0.0.1:{links.broker_ports[n + 1]}",
                    "inter.broker.listener.name": "NODES",
                    "listener.security.protocol.map": ",".join(
                        f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "NODES", "CONTROLLER")
                    ),
                }
            node = NODES[kind](directory / f"node-{n + 1}", shared | own | (settings or {}))
            node.port = ports[n]
            self.nodes[n + 1] = node

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> Self:
        """Starts all that do not run, and waits until they know each other."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        for number, node in self.nodes.items():
            if not node.is_running:
                if self.links is not None:
                    self.links.up(number)
                node.launch()

    def wait_until_ready(self) -> None:
        for node in self.nodes.values():
            node.wait_until_ready()
        self.wait(lambda: len(self.admin().list_topics(timeout=5).brokers) == len(self.nodes))

    def kill(self, number: int) -> None:
        self.nodes[number].kill()
        if self.links is not None:
            self.links.down(number)

    def pause(self, number: int) -> None:
        self.nodes[number].pause()

    def go_on(self, number: int) -> None:
        self.nodes[number].go_on()

    def stop(self) -> int:
        """SIGTERM to all at once; the worst exit code."""
        running = [node for node in self.nodes.values() if node.process is not None]
        for node in running:
            node.go_on()
            node.terminate()
        return max((node.wait_for_end() for node in running), default=0)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def leader(self, topic: str, partition: int = 0) -> int:
        """-1: nobody leads."""
        described = self.admin().list_topics(topic, timeout=10).topics[topic].partitions
        return int(described[partition].leader) if partition in described else -1

    def in_sync(self, topic: str) -> bool:
        """Whether all replicas of the topic are in sync and every partition has a leader."""
        try:
            described = self.admin().list_topics(topic, timeout=10).topics[topic]
        except Exception:
            return False
        return bool(described.partitions) and all(
            one.leader > 0 and set(one.isrs) == set(one.replicas) for one in described.partitions.values()
        )

    def active_controller(self) -> int:
        """The node that leads the metadata quorum, by Kafka's own tool."""
        done = subprocess.run(
            java(
                "org.apache.kafka.tools.MetadataQuorumCommand",
                "--bootstrap-server",
                self.bootstrap,
                "describe",
                "--status",
            ),
            capture_output=True,
            text=True,
            timeout=60,
        )
        for line in done.stdout.splitlines():
            if line.startswith("LeaderId:"):
                return int(line.split()[1])
        raise BrokerFailed(f"no leader of the quorum: {done.stdout}{done.stderr}")

    def wait(self, condition: Callable[[], bool], what: str = "the cluster") -> None:
        patience = Patience(WAIT_S)
        while not condition():
            if patience.is_over:
                ends = {number: node.output()[-1500:] for number, node in self.nodes.items()}
                raise BrokerFailed(f"waited in vain for {what}: {json.dumps(ends, indent=1)}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()
