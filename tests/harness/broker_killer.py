"""Kills the nodes of a cluster in turn, with SIGKILL, and starts each again, for as long as tests use it."""

from __future__ import annotations

import threading
import time

from harness.cluster import Cluster
from harness.wait import Patience

DOWN_S = 1.0
QUIET_S = 3.0  # after all replicas are in sync again
SYNC_S = 120.0


class BrokerKiller:
    def __init__(self, cluster: Cluster) -> None:
        self.kills = 0
        self.failure: str | None = None
        self.down: int | None = None  # the node that it has killed and not yet started again
        self._cluster = cluster
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """All nodes run again when it returns."""
        self._stopping.set()
        self._thread.join()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for number in self._cluster.nodes:
                    if self._stopping.wait(QUIET_S):
                        return
                    self._kill(number)
        except Exception as error:
            self.failure = f"after {self.kills} kills: {error!r}"

    def _kill(self, number: int) -> None:
        node = self._cluster.nodes[number]
        assert node.is_running, f"node {number} ended by itself: {node.output()[-4000:]}"
        self.down = number
        self._cluster.kill(number)
        self.kills += 1
        time.sleep(DOWN_S)
        node.launch()
        node.wait_until_ready()
        self.down = None
        patience = Patience(SYNC_S)
        while not self._is_in_sync() and not self._stopping.is_set():
            assert not patience.is_over, f"replicas are not in sync: {self._missing()}"
            time.sleep(0.1)

    def _is_in_sync(self) -> bool:
        return not self._missing()

    def _missing(self) -> list[str]:
        """Partitions without a leader or with a replica that is not in sync."""
        try:
            told = self._cluster.admin().list_topics(timeout=10)
        except Exception as error:
            return [repr(error)]
        if len(told.brokers) < len(self._cluster.nodes):
            return [f"brokers {list(told.brokers)}"]
        return [
            f"{topic}-{one.id}: leader {one.leader}, in sync {one.isrs} of {one.replicas}"
            for topic, described in told.topics.items()
            for one in described.partitions.values()
            if one.leader < 0 or set(one.isrs) != set(one.replicas)
        ]
