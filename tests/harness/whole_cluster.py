"""A cluster of several nodes in the place of one broker: what a test does to the broker is done to all nodes.

So a suite that was written for one broker runs on three, and finds them all in `bootstrap`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

from harness.broker import Broker
from harness.broker_killer import BrokerKiller
from harness.cluster import Cluster


class WholeCluster(Broker):
    def __init__(
        self,
        kind: str,
        directory: Path,
        settings: dict[str, str] | None,
        nodes: int,
        kills_brokers: bool = False,
    ) -> None:
        """`kills_brokers`: while it runs, its nodes are killed and started again, one after the other."""
        super().__init__(directory, settings)
        self.name = kind
        self.cluster = Cluster(kind, directory, settings, nodes)
        self.nodes = list(self.cluster.nodes.values())
        self.port = self.nodes[0].port  # of the node with the first id
        self.is_under_fire = kills_brokers
        self._killer: BrokerKiller | None = None

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def node_ports(self) -> list[int]:
        return [node.port for node in self.nodes]

    @property
    def node_ids(self) -> list[int]:
        return list(self.cluster.nodes)

    @property
    def is_running(self) -> bool:
        down = None if self._killer is None else self._killer.down
        return all(node.is_running or number == down for number, node in self.cluster.nodes.items())

    def output(self) -> str:
        return "\n".join(node.output() for node in self.nodes)

    def launch(self) -> None:
        for node in self.nodes:
            node.is_judged = self.is_judged
        self.cluster.launch()

    def wait_until_ready(self) -> None:
        self.cluster.wait_until_ready()
        if self.is_under_fire:
            self._killer = BrokerKiller(self.cluster)
            self._killer.start()

    def _stop_killing(self) -> None:
        if self._killer is not None:
            killer, self._killer = self._killer, None
            killer.stop()
            print(f"brokers were killed {killer.kills} times", file=sys.stderr)

    def kill(self) -> None:
        self._stop_killing()
        for node in self.nodes:
            node.kill()

    def pause(self) -> None:
        self._stop_killing()
        for node in self.nodes:
            node.pause()

    def go_on(self) -> None:
        for node in self.nodes:
            node.go_on()

    def stop(self) -> int:
        self._stop_killing()
        return self.cluster.stop()

    def write_settings(self) -> None:
        raise NotImplementedError("each node has its own")

    def spawn(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        raise NotImplementedError("each node is a process")
