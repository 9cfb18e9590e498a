"""Development nodes that are one cluster, for `up`: their ports, their common id, and their restarts.

DIR/
  cluster-id          the id that all nodes have; only if there are several
  node-1/, node-2/…   what each node has is in local_node.py
"""

import os
import re
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.local_node import HOST, LocalNode, NodeFailed, first_missing

if TYPE_CHECKING:
    from headrace.cli.secure_cluster import SecureCluster

RESTART_AFTER_S = 1.0
LOOK_EVERY_S = 0.1
NEVER = float("inf")
CONTROLLER_PORTS_FROM = 10_000  # added to the port for clients; the next free ones are taken
# With --port 0, a random one below the ports that the kernel gives to outgoing connections: two clusters that
# start at the same time must not find the same ports free.
RANDOM_PORTS = range(20_000, 32_000)


class LocalCluster:
    """One node, or several that are one cluster, on ports that follow each other."""

    def __init__(
        self,
        directory: Path,
        brokers: int,
        port: int,
        settings: dict[str, str],
        first_settings: dict[str, str],
        secure: "SecureCluster | None" = None,
    ) -> None:
        """`first_settings` are those of the first node only, such as the port of its registry."""
        self.directory = directory
        self.last_end = ""  # which node ended last, and how
        self._ended_at: dict[int, float] = {}
        self._starting: set[int] = set()  # nodes that were started again, and do not serve yet
        controller_ports: dict[int, int] = {}
        internal_ports: dict[int, int] = {}  # for the other nodes of a secure cluster
        if brokers > 1:
            settings = {"headrace.cluster.id": self._cluster_id(), **settings}
            numbers = range(1, brokers + 1)
            first = port + CONTROLLER_PORTS_FROM if port else 0
            if not 0 < first <= 65536 - brokers:
                first = _random_port()
            free = _free_ports(brokers if secure is None else 2 * brokers, first)
            controller_ports = dict(zip(numbers, free))
            internal_ports = dict(zip(numbers, free[brokers:]))
        self._settings = settings
        ports = [port + n if port else 0 for n in range(brokers)]
        self.nodes = [
            LocalNode(
                directory,
                n,
                one_port,
                (secure.settings(n) if secure is not None else {})
                | settings
                | (first_settings if n == 1 else {}),
                controller_ports,
                internal_port=internal_ports.get(n),
                is_secure=secure is not None,
            )
            for n, one_port in enumerate(ports, 1)
        ]

    @property
    def first(self) -> LocalNode:
        return self.nodes[0]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def is_running(self) -> bool:
        return any(node.is_running for node in self.nodes)

    def check_data(self) -> None:
        """NodeFailed: the directory has files with which these nodes cannot be one cluster."""
        nodes = len(self.nodes)
        kept = {
            int(path.name.removeprefix("node-")): id
            for path in self.directory.glob("node-*")
            if path.name.removeprefix("node-").isdecimal() and (id := _kept_cluster_id(path)) is not None
        }
        if (last := max(kept, default=0)) > nodes:
            raise NodeFailed(
                f"{self.directory} has the files of a cluster of {last} nodes. Start all of them with "
                f"--brokers {last}, or choose another directory with --data."
            )
        if nodes == 1:
            return
        if list(kept) == [1] and not self._id_path.exists():
            raise NodeFailed(
                f"{self.directory} has the files of a broker that was started without --brokers, and such a "
                "broker cannot become part of a cluster. Start it alone again, or choose another directory "
                "with --data."
            )
        for number, id in sorted(kept.items()):
            if id != (own := self._settings["headrace.cluster.id"]):
                raise NodeFailed(
                    f"{self.directory / f'node-{number}'} has the files of another cluster ({id}) than "
                    f"{self.directory} ({own}). Put the right directory there, or choose another one with "
                    "--data."
                )

    @property
    def _id_path(self) -> Path:
        return self.directory / "cluster-id"

    def _cluster_id(self) -> str:
        """All nodes have the same one; it is kept with their data."""
        if self._id_path.exists():
            return self._id_path.read_text().strip()
        import base64

        return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")

    def start(self) -> None:
        """Starts all nodes and waits until all of them serve. If one fails, nothing new is left behind."""
        if len(self.nodes) == 1:
            self.first.start()
            return
        paths = (self._id_path, *(node.directory for node in self.nodes))
        new = {path for path in map(first_missing, paths) if path is not None}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._id_path.write_text(self._settings["headrace.cluster.id"] + "\n")
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.await_ready()
        except BaseException:
            self.stop()
            _remove(new)
            raise

    def stop(self) -> int:
        """SIGTERM to all at once; the highest exit code."""
        for node in self.nodes:
            node.terminate()
        return max(node.await_end() for node in self.nodes)

    def look_after(self, *, restarts: bool, tell: Callable[[str], None]) -> bool:
        """Notices nodes that ended, and starts them again after a while. False: none is left.

        It does not wait until a node serves: if most of them have ended, none serves before others run.
        """
        restarts = restarts and len(self.nodes) > 1
        for node in self.nodes:
            number = node.node_id
            if node.process is not None and not node.is_running:
                code = node.wait()
                self._ended_at[number] = time.monotonic()
                self._starting.discard(number)
                self.last_end = f"{node.name} {node.how_it_ended(code)}; its log is {node.log_path}"
                if len(self.nodes) > 1:
                    tell(self.last_end)
            elif number in self._starting and node.has_become_ready():
                self._starting.discard(number)
                tell(f"{node.name} serves again")
            if restarts and time.monotonic() >= self._ended_at.get(number, NEVER) + RESTART_AFTER_S:
                del self._ended_at[number]
                node.launch()
                self._starting.add(number)
        return self.is_running or restarts

    def wait(self, *, restarts: bool, tell: Callable[[str], None]) -> None:
        """Until no node is left."""
        if len(self.nodes) == 1 and self.first.process is not None:
            self.first.process.wait()
        while self.look_after(restarts=restarts, tell=tell):
            time.sleep(LOOK_EVERY_S)


def _kept_cluster_id(directory: Path) -> str | None:
    """The cluster to which the files of a node belong; None: it has none yet."""
    try:
        text = (directory / "data" / "meta.properties").read_text()
    except OSError:
        return None
    found = re.search(r"^cluster\.id=(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def _remove(paths: Iterable[Path]) -> None:
    import shutil  # loads every kind of archive, which a start need not wait for

    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _random_port() -> int:
    import random

    return random.choice(RANDOM_PORTS)  # nosec B311  # no secret


def _free_ports(count: int, start: int) -> list[int]:
    found: list[int] = []
    for port in range(start, 65536):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the node itself
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise NodeFailed(f"there are no {count} free ports from {start} on for the controllers of the nodes.")
