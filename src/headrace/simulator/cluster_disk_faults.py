"""Faults of disks in a cluster: torn writes, I/O errors, bits that flip and files that are lost while a node
is down, and disks that are replaced by an empty one or by an older copy.

All but torn writes may cost what a replica had acknowledged, as the loss of its host does: they are limited
in the same way, to one replica that is not in sync. A disk that is replaced costs the quorum a voter, or what
that had promised; so the other nodes must hold everything that is committed, and know their leader.
"""

import errno
from collections.abc import Callable

from headrace.simulator.bit_flips import batch_positions, damaged_position
from headrace.simulator.cluster import Cluster
from headrace.simulator.host import Host
from headrace.storage.faulty_disk import Fail, Fault, Operation
from headrace.storage.memory_disk import MemoryDisk

METADATA_DIRECTORY = "__cluster_metadata-0/"
LOSABLE = (".log", "index", ".snapshot", "-checkpoint", "partition.metadata")
COPY_AFTER_S = (0.5, 4.0)  # from a copy of a disk to the loss of the disk
OPERATIONS: tuple[Operation, ...] = ("append", "sync", "rename", "truncate")


class ClusterDiskFaults:
    def __init__(self, cluster: Cluster, may_lose: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._may_lose = may_lose
        self._replaced: set[int] = set()  # nodes with an empty disk: the quorum does not know them any more

    def _any(self) -> Host:
        return self._world.rng.choice(list(self._cluster.hosts.values()))

    def tear(self) -> str:
        """The process dies inside one of its next disk calls, which is done in part."""
        host, rng = self._any(), self._world.rng
        if host.node is None:
            return "no write is torn"
        calls, written = rng.randrange(12), rng.choice((0, 1, 17, 60, 61, 70, 150))
        host.crash_at_call(calls, "killed", written)
        return f"node {host.id} dies in disk call {calls}, {written} bytes of it written"

    def fail(self) -> str:
        host, rng = self._any(), self._world.rng
        if host.node is None or not self._may_lose():
            return "no disk fails"
        operation = rng.choice(OPERATIONS)
        for disk in host.disks.values():
            disk.faults.append(
                Fault(Fail(errno.EIO, rng.choice((0, 5, 61))), operation, skip=rng.randrange(5))
            )
        host.has_broken_disk = True
        return f"an I/O error of {host.id} on {operation}"

    def rot(self) -> str:
        """A bit flips in the last batch of a log while its node is down. A start reads it again, unless it
        was flushed: of older damage nobody knows before it is read, as in Kafka.
        """
        host, rng = self._any(), self._world.rng
        if host.node is None or not self._may_lose():
            return "no bit flips"
        host.crash("killed")
        flushed = {str(key): offset for key, offset in host.flushed.items()}
        last: dict[str, tuple[MemoryDisk, str, bytes, int]] = {}  # batch of each partition
        for disk in host.stored.values():
            for path, data in disk.files():
                name = path.partition("/")[0]
                if path.endswith(".log") and name in flushed and (found := batch_positions(data)):
                    last[name] = (disk, path, data, found[-1])
        unflushed = [
            name
            for name, (_, _, data, batch) in sorted(last.items())
            if int.from_bytes(data[batch : batch + 8]) >= flushed[name] and not name.startswith("__")
        ]
        if not unflushed:
            return f"node {host.id} is killed"
        disk, path, data, batch = last[rng.choice(unflushed)]
        position = damaged_position(data, batch, rng)
        disk.flip(path, position, 1 << rng.randrange(8))
        return f"node {host.id} is killed, and a bit flips in {path} at {position}"

    def lose_file(self) -> str:
        """A file of a log, or a checkpoint, is gone after a kill. Without a file of its metadata log a voter
        does not start. A log without the first of its segments looks as if retention had removed it: then
        records are lost, as in Kafka.
        """
        host, rng = self._any(), self._world.rng
        if host.node is None or not self._may_lose():
            return "no file is lost"
        host.crash("killed")
        losable = [
            (name, path)
            for name, disk in sorted(host.stored.items())
            for path, _ in disk.files()
            if path.endswith(LOSABLE) and not path.startswith(METADATA_DIRECTORY)
        ]
        firsts: dict[tuple[str, str], list[str]] = {}
        for name, path in losable:
            if path.endswith(".log"):
                firsts.setdefault((name, path.partition("/")[0]), []).append(path)
        needed = {(name, min(paths)) for (name, _), paths in firsts.items() if len(paths) > 1}
        losable = sorted(set(losable) - needed)
        if not losable:
            return f"node {host.id} is killed"
        name, path = rng.choice(losable)
        host.lose_file(name, path)
        return f"node {host.id} is killed, and loses {path}"

    def empty(self) -> str:
        host = self._any()
        voters_left = self._cluster.size - len(self._replaced | {host.id})
        if host.node is None or 2 * voters_left <= self._cluster.size or not self._may_replace(host):
            return "no disk is replaced"
        self._replaced.add(host.id)
        host.crash("lost")
        host.replace_disks({})
        return f"host {host.id} comes back with an empty disk"

    def restore(self) -> str:
        """The disk of a node is copied now, and lost later: then the copy takes its place."""
        host = self._any()
        if host.node is None:
            return "no disk is copied"
        copies = {name: disk.clone() for name, disk in host.stored.items()}

        def swap() -> None:
            if host.node is not None and host.id not in self._replaced and self._may_replace(host):
                host.crash("lost")
                host.replace_disks(copies)

        self._world.after(self._world.between(*COPY_AFTER_S), swap)
        return f"the disk of {host.id} is copied, to be restored later"

    def _may_replace(self, host: Host) -> bool:
        """Whether the quorum needs nothing of what only this node may have. What it has on disk it may have
        promised: a fetch that says so may be on its way, and arrive when the disk is gone.
        """
        if not self._may_lose() or host.node is None:
            return False
        metadata = [node.controller.metadata for node in self._cluster.nodes().values()]
        epoch = max(one.leader_epoch for one in metadata)
        committed = max(one.committed_offset for one in metadata)
        promised = max(committed, host.node.controller.metadata.quorum.log.flushed_offset)
        return all(
            one.leader_epoch == epoch
            and one.leader_id >= 0
            and one.leader_id != host.id
            and one.quorum.log.flushed_offset >= promised
            for one in metadata
        )
