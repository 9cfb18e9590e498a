"""A real cluster for tests: `with Cluster(3) as cluster:`, and any Kafka client can use it.

Every node is a process of its own, broker and controller in one, with its files in a temporary directory. A
test can kill, pause, stop and start each of them, and cut the network between them.
"""

import base64
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace.server.listeners import bind_address
from headrace.testing import views
from headrace.testing.broker import Isolation, checked_settings, partitions_of, setting_text
from headrace.testing.hosts import HostFailed
from headrace.testing.node_processes import NodeFailed, NodeProcesses, node_processes
from headrace.testing.records import Given, Record, as_record
from headrace.testing.topics import Topics, await_consumed

T = TypeVar("T")

HOST = "127.0.0.1"
REPLICAS_MAX = 3
TIMEOUT_S = 30.0
LOOK_EVERY_S = 0.01

# Kafka's defaults but for what makes tests wait: groups do not wait for more members, and a node that is
# paused or cut off is missed after three seconds instead of nine or thirty.
DEFAULTS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "connections.max.idle.ms": "-1",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
# Settings that the cluster itself gives each node.
OWN = ("node.id", "listeners", "log.dirs", "controller.quorum.voters", "headrace.cluster.id")


class Cluster:
    def __init__(
        self,
        nodes: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | Iterable[str] = (),
        path: str | PathLike[str] | None = None,
        log_level: str = "warning",
    ) -> None:
        """`settings` have Kafka's names and apply to all nodes. `topics` are names, or names with numbers of
        partitions. `path` is the directory for all files, which then stay; by default a temporary one.
        """
        if nodes < 1:
            raise ValueError(f"nodes={nodes}: must be at least 1")
        given = {key: setting_text(value) for key, value in (settings or {}).items()}
        for key in OWN:
            if key in given:
                raise ValueError(f"{key} cannot be set: each node of the cluster has its own")
        self.settings = checked_settings(
            DEFAULTS | replication_settings(nodes) | given,
            also={"node.id": "1", "controller.quorum.voters": ""},
        )
        self.nodes = tuple(range(1, nodes + 1))
        self._topics = partitions_of(topics)
        self._given_path = Path(path) if path is not None else None
        self._temporary: Path | None = None
        self._log_level = log_level
        self._processes: NodeProcesses | None = None
        self._reserved: list[socket.socket] = []  # bound and never listened on: the ports stay ours
        self._ports: dict[int, int] = {}
        self._controller_ports: dict[int, int] = {}
        self._cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        self._pids: dict[int, int] = {}  # of nodes that run
        self._paused: set[int] = set()
        self._cuts: set[frozenset[int]] = set()

    # --- its life ---------------------------------------------------------------------------------------

    def start(self, node: int | None = None) -> Self:
        """Starts one node, or all that do not run; returns when they serve clients."""
        if self._processes is None:
            self._open()
        else:
            ids = [self._known(node)] if node is not None else list(self.nodes)
            self._start([id for id in ids if id not in self.running])
        return self

    def _open(self) -> None:
        """Takes ports and a directory, starts all nodes and creates the topics."""
        if self._given_path is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="headrace-"))
        try:
            for id in self.nodes:
                self._ports[id] = self._reserve()
                self._controller_ports[id] = self._reserve()
            self._processes = node_processes()
            self._start(list(self.nodes))
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self._close()
            raise

    def _reserve(self) -> int:
        bound = bind_address(HOST, 0, f"{HOST}:0", "listeners")
        self._reserved.append(bound)
        return int(bound.getsockname()[1])

    def _start(self, ids: list[int]) -> None:
        for id in ids:
            self._directory(id).mkdir(parents=True, exist_ok=True)
        pids = self._call(
            "start",
            nodes={id: self._settings_of(id) for id in ids},
            logs={id: str(self._log_path(id)) for id in ids},
            log_level=self._log_level,
            cut_off={id: self._cut_off(id) for id in ids},
        )
        self._pids |= {int(id): pid for id, pid in pids.items()}

    def _settings_of(self, id: int) -> dict[str, str]:
        voters = ",".join(f"{voter}@{HOST}:{port}" for voter, port in self._controller_ports.items())
        return self.settings | {
            "node.id": str(id),
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[id]},CONTROLLER://{HOST}:{self._controller_ports[id]}",
            "log.dirs": str(self._directory(id) / "data"),
            "controller.quorum.voters": voters,
            "headrace.cluster.id": self._cluster_id,
        }

    def stop(self, node: int | None = None) -> None:
        """Stops one node cleanly: the others take over what it leads. Without a node: stops the cluster;
        data in a directory that you passed as `path` stays.
        """
        if node is not None:
            self._call("stop", ids=[self._running(node)])
            self._forget(node)
        elif self._processes is not None:
            self._close()

    def _close(self) -> None:
        processes, self._processes = self._processes, None
        try:
            if processes is not None:
                if self._given_path is not None:  # else nobody will read what a clean stop writes
                    processes.call("stop", ids=list(self._pids))
                processes.end()
        finally:
            for reserved in self._reserved:
                reserved.close()
            self._reserved.clear()
            self._pids.clear()
            self._paused.clear()
            self._cuts.clear()
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self.is_started else "not started"
        return f"Cluster({state})"

    @property
    def is_started(self) -> bool:
        """True between `start` and `stop`, also after a test has killed every node."""
        return self._processes is not None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for the clients' setting `bootstrap.servers`."""
        self._opened()
        return ",".join(f"{HOST}:{self._ports[id]}" for id in self.nodes)

    def address(self, node: int) -> str:
        """Where clients reach this node."""
        return f"{HOST}:{self._ports[self._known(node)]}"

    @property
    def running(self) -> list[int]:
        """The nodes whose processes run, also those that are paused."""
        for id in self._call("ended"):
            self._forget(id)
        return sorted(self._pids)

    def pid(self, node: int) -> int:
        """The process id of a node."""
        return self._pids[self._running(node)]

    def log(self, node: int) -> list[str]:
        """The log lines of a node, of its `log_level` and above."""
        path = self._log_path(self._known(node))
        return path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else []

    def _directory(self, id: int) -> Path:
        root = self._given_path or self._temporary
        assert root is not None
        return root / f"node-{id}"

    def _log_path(self, id: int) -> Path:
        return self._directory(id) / "node.log"

    def _known(self, node: int) -> int:
        if node not in self.nodes:
            raise ValueError(f"there is no node {node}: the nodes are 1 to {len(self.nodes)}")
        return node

    def _running(self, node: int) -> int:
        if self._known(node) not in self._pids:
            raise NodeFailed(f"node {node} is not running: start({node}) starts it")
        return node

    def _opened(self) -> NodeProcesses:
        if self._processes is None:
            raise HostFailed("the cluster is not running: use it in a with statement, or call start()")
        return self._processes

    def _call(self, method: str, /, **arguments: object) -> Any:
        return self._opened().call(method, **arguments)

    def _forget(self, id: int) -> None:
        self._pids.pop(id, None)
        self._paused.discard(id)

    # --- faults -----------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """SIGKILL: connections break, and what the node has written stays."""
        self._call("kill", id=self._running(node))
        self._forget(node)

    def pause(self, node: int) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        self._call("pause", id=self._running(node))
        self._paused.add(node)

    def resume(self, node: int) -> None:
        """SIGCONT: the node goes on where it was, and does not know how long it stood still."""
        self._call("resume", id=self._running(node))
        self._paused.discard(node)

    def cut(self, one: int, other: int) -> None:
        """Cuts the network between two nodes: nothing that they send each other arrives. Clients reach
        both.
        """
        if one == other:
            raise ValueError(f"cut({one}, {other}): a node cannot be cut off from itself")
        self._cuts.add(frozenset((self._known(one), self._known(other))))
        self._tell_cuts()

    def isolate(self, node: int) -> None:
        """Cuts a node off from all other nodes."""
        for other in self.nodes:
            if other != self._known(node):
                self._cuts.add(frozenset((node, other)))
        self._tell_cuts()

    def heal(self) -> None:
        """Ends all cuts. What was sent meanwhile and not given up arrives now."""
        self._cuts.clear()
        self._tell_cuts()

    def _cut_off(self, id: int) -> list[int]:
        return sorted(other for cut in self._cuts if id in cut for other in cut - {id})

    def _tell_cuts(self) -> None:
        self._call("cut_off", peers={id: self._cut_off(id) for id in self.nodes})

    # --- what it knows ----------------------------------------------------------------------------------

    def leader_of(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout: float = TIMEOUT_S,
    ) -> int:
        """The node that leads a partition; waits until a running node other than `other_than` leads it."""

        def look() -> int | None:
            view = self._partitions().get((topic, partition))
            if view is None or view.leader == other_than:
                return None
            return view.leader if view.leader in self._answering() else None

        return self._await(look, lambda: f"{topic}-{partition} has no running leader", timeout)

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas of a partition (ISR), as its leader's side knows them."""
        view = self._partitions().get((topic, partition))
        if view is None:
            raise ValueError(f"there is no partition {topic}-{partition}")
        return sorted(view.isr)

    def controller(self, *, timeout: float = TIMEOUT_S) -> int:
        """The node that is the active controller; waits until a running node is."""

        def look() -> int | None:
            # a node alone has no listener for other controllers
            ports = self._controller_ports if len(self.nodes) > 1 else self._ports
            return views.active_controller(ports[id] for id in self._answering())

        return self._await(look, lambda: "no running node is the active controller", timeout)

    def wait_until_in_sync(self, *topics: str, timeout: float = TIMEOUT_S) -> None:
        """Waits until every partition, or every one of these topics, has a leader and all of its replicas
        in sync. TimeoutError names those that have not.
        """
        lacking: list[str] = []

        def look() -> bool | None:
            known = self._partitions()
            lacking[:] = sorted(set(topics) - {topic for topic, _ in known})
            lacking.extend(
                f"{topic}-{number} ({view})"
                for (topic, number), view in sorted(known.items())
                if (not topics or topic in topics) and not view.is_in_sync
            )
            return None if lacking or not self._answering() else True

        self._await(look, lambda: "not in sync: " + (", ".join(lacking) or "no node answers"), timeout)

    def _answering(self) -> list[int]:
        return [id for id in self.running if id not in self._paused]

    def _partitions(self) -> dict[tuple[str, int], views.PartitionView]:
        return views.partitions(self._ports[id] for id in self._answering())

    def _await(self, look: Callable[[], T | None], what: Callable[[], str], timeout: float) -> T:
        deadline = time.monotonic() + timeout
        while (found := look()) is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{what()}, after {timeout:g} s")
            time.sleep(LOOK_EVERY_S)
        return found

    # --- topics and records -----------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, *, replication_factor: int = -1, **configs: object
    ) -> None:
        """Creates a topic, and waits until all of its replicas are in sync. Write configs with underscores:
        `create_topic("users", cleanup_policy="compact")`.
        """
        told = {key.replace("_", "."): setting_text(value) for key, value in configs.items()}
        self._at_ports().create(name, partitions, told, replication_factor)
        if len(self._answering()) == len(self.nodes) and not self._cuts:
            self.wait_until_in_sync(name)

    def produce_all(self, topic: str, records: Iterable[Given], *, timeout: float = TIMEOUT_S) -> int:
        """Writes records, each a value, a (key, value) pair or a `Record`. Returns when all are acknowledged
        (acks=all); raises an error if one is not within the timeout.
        """
        return self._at_ports().write(topic, map(as_record, records), timeout)

    def consume_all(
        self, topic: str, *, isolation: Isolation = "read_committed", timeout: float = TIMEOUT_S
    ) -> list[Record]:
        """All records of the topic."""
        return self._at_ports().read(topic, isolation, timeout)

    def assert_consumed(
        self,
        topic: str,
        expected: Iterable[Given],
        *,
        group: str | None = None,
        in_order: bool | None = None,
        timeout: float = TIMEOUT_S,
        isolation: Isolation = "read_committed",
    ) -> list[Record]:
        """Like that of a `Broker`: waits until the topic has exactly these records, and returns them."""
        return await_consumed(self._at_ports(), topic, list(expected), group, in_order, timeout, isolation)

    def _at_ports(self) -> Topics:
        """A client of the nodes that answer and are cut off from the fewest others: what they know is not
        outdated, and the client need not wait for nodes that do not answer.
        """
        ids = self._answering()
        if not ids:
            raise NodeFailed("no node of the cluster is running: start() starts them")
        fewest = min(len(self._cut_off(id)) for id in ids)
        return Topics(",".join(self.address(id) for id in ids if len(self._cut_off(id)) == fewest))


def replication_settings(nodes: int) -> dict[str, str]:
    """Three replicas of everything if there are enough nodes, of which two have to have a record."""
    replicas = str(min(nodes, REPLICAS_MAX))
    in_sync = "2" if nodes >= REPLICAS_MAX else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.replication.factor": replicas,
    }
