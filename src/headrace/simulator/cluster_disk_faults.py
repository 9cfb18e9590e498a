"""Faults of disks in a cluster: torn writes, I/O errors, bits that flip and files that are lost while a node
is down, and disks that are replaced by an empty one or by an older copy.

All but torn writes may cost what a replica had acknowledged, as the loss of its host does: they are limited
in the same way, to one replica that is not in sync. A disk that is replaced costs the quorum a voter, or what
that had promised; so the other nodes must hold everything that is committed, and know their leader.
"""

import errno
from collections.abc import Callable

from headrace.node.previous_epoch import COMPLETE_RUNS
from headrace.simulator.bit_flips import batch_positions, damaged_position
from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_late_faults import Later
from headrace.simulator.history import FaultStruck
from headrace.simulator.host import Host
from headrace.storage.checkpoint_sums import SUMS
from headrace.storage.faulty_disk import Fail, Fault, Operation
from headrace.storage.file_list import FILE_LIST
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.stop_record import BOOT_ID

METADATA_DIRECTORY = "__cluster_metadata-0/"
LOSABLE = (
    ".log",
    "index",
    ".snapshot",
    "-checkpoint",
    "partition.metadata",
    FILE_LIST,
    SUMS,
    BOOT_ID,
    COMPLETE_RUNS,
)
SEGMENT_FILES = (".log", "index")
FOUND_S_MAX = 5.0  # from a loss to the start that finds it
LOOK_S = 0.005
WRITER_S_MAX = 1.0  # until somebody writes a large batch
WRITER_LOOK_S = 0.000_5  # shorter than the pause between two pieces
COPY_AFTER_S = (0.5, 4.0)  # from a copy of a disk to the loss of the disk
OPERATIONS: tuple[Operation, ...] = ("append", "sync", "rename", "truncate")


class ClusterDiskFaults:
    def __init__(self, cluster: Cluster, may_lose: Callable[[], bool], later: Later) -> None:
        self._cluster = cluster
        self._later = later
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
        """Files of a log, or a checkpoint, are gone after a stop of any kind: one file, a segment with its
        indexes, or all segments of a log. Without a file of its metadata log a voter does not start. Often
        all other processes are killed, too: then this replica comes back as one that is in sync.
        """
        host, rng = self._any(), self._world.rng
        if host.node is None or not self._may_lose():
            return "no file is lost"
        if rng.random() < 0.25:
            host.reboots = rng.random() < 0.5
            host.ended = self._lose_after_stop
            host.shut_down()
            return f"node {host.id} is told to stop, and will lose files"
        is_host_lost = rng.random() < 0.2
        host.crash("lost" if is_host_lost else "killed")
        are_all_killed = not is_host_lost and rng.random() < 0.5
        for other in self._cluster.hosts.values() if are_all_killed else ():
            other.kill()
        lost = self._lose_some(host)
        if lost and rng.random() < 0.3:
            self._when(lambda: self._has_found_loss(host), FOUND_S_MAX, lambda: self._reboot_unheard(host))
        killed = f"host {host.id} is lost" if is_host_lost else f"node {host.id} is killed"
        killed = "all nodes are killed" if are_all_killed else killed
        return f"{killed}, and {host.id} loses {', '.join(lost) or 'nothing'}"

    def _lose_some(self, host: Host) -> list[str]:
        rng = self._world.rng
        losable = [
            (name, path)
            for name, disk in sorted(host.stored.items())
            for path, _ in disk.files()
            if path.endswith(LOSABLE) and not path.startswith(METADATA_DIRECTORY)
        ]
        if not losable:
            return []
        logs = [one for one in losable if one[1].endswith(".log")]
        name, path = rng.choice(logs if logs and rng.random() < 0.6 else losable)
        lost, how = [path], rng.random()
        if path.endswith(SEGMENT_FILES) and how < 0.4:
            stem = path.partition(".")[0] if how < 0.2 else path.partition("/")[0] + "/"
            lost = [
                one
                for at, one in losable
                if at == name and one.startswith(stem) and one.endswith(SEGMENT_FILES)
            ]
        for one in lost:
            host.lose_file(name, one)
        return lost

    def _lose_after_stop(self, host: Host) -> None:
        """Unless others need what it has: a stop takes a while, and another host may be lost meanwhile."""
        others = {number: node for number, node in self._cluster.nodes().items() if number != host.id}
        if len(others) < self._cluster.brokers - 1 or not all(node.is_ready for node in others.values()):
            return
        for node in others.values():
            for topic in node.controller.metadata.image.topics.values():
                for one in topic.partitions.values():
                    if one.leader not in others or not set(one.replicas) <= {*one.isr, host.id}:
                        return
        lost = self._lose_some(host)
        self._cluster.history.add(FaultStruck(f"{host.id} has stopped, and loses {', '.join(lost)}"))

    def _has_found_loss(self, host: Host) -> bool:
        partitions = host.node.broker.partitions if host.node is not None else None
        return partitions is not None and bool(partitions.damaged or partitions.lacking)

    def _reboot_unheard(self, host: Host) -> None:
        """The node stops cleanly and its computer is started again, before the controller hears of the
        loss.
        """
        if not self._has_found_loss(host):
            return
        links = [(host.id, other) for other in self._cluster.hosts if other != host.id]
        for link in links:
            self._cluster.network.cut(*link)
        host.reboots = True
        host.shut_down()
        self._cluster.history.add(FaultStruck(f"{host.id} is rebooted before others hear of its loss"))

        def mend() -> None:
            for link in links:
                self._cluster.network.mend(*link)

        self._later(1.0, 4.0, mend)

    def kill_writer(self) -> str:
        """The next leader that has written a part of a large batch is killed."""

        def writer() -> Host | None:
            for host in self._cluster.hosts.values():
                partitions = host.node.broker.partitions.all() if host.node is not None else ()
                for one in partitions:
                    unfinished = one.log.unfinished if one.log is not None else None
                    if unfinished is not None and unfinished.written:
                        return host
            return None

        def kill() -> None:
            host = writer()
            if host is not None:
                host.kill()

        self._when(lambda: writer() is not None, WRITER_S_MAX, kill, every_s=WRITER_LOOK_S)
        return "whoever writes a large batch next is killed"

    def _when(
        self,
        condition: Callable[[], bool],
        seconds: float,
        act: Callable[[], None],
        *,
        every_s: float = LOOK_S,
    ) -> None:
        """Act once the condition holds; after a time not any more."""
        ends_at = self._world.mono + seconds

        def look() -> None:
            if condition():
                act()
            elif self._world.mono < ends_at:
                self._later(every_s, every_s, look)

        look()

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
