"""Fault injection: the kinds of faults of a simulated run, and the choice between them by their weights."""

import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.base.ids import BrokerId
from headrace.base.time import Now
from headrace.machines.replication.leader import NO_BROKER_EPOCH, PartitionChanged, ReplicaFetched
from headrace.node.effects import Run
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.simulator.fault_profiles import FaultProfile
from headrace.simulator.history import FaultStruck
from headrace.simulator.host import Host
from headrace.simulator.job_queues import Step
from headrace.simulator.operator import Operator
from headrace.simulator.stranded_end import PATIENCE_S, strand_an_end
from headrace.storage.faulty_disk import Fail, Fault, Operation
from headrace.storage.memory_disk import CrashKind

# Kinds of jobs, by the queues that they run in.
QUEUES = (
    "flush",
    "flush",
    "checkpoint",
    "removal",
    "rewriting",
    "move",
    "loading",
    "metadata",
    "snapshot",
    "validation",
)
COORDINATORS_TOPICS = ("__consumer_offsets", "__transaction_state")
KINDS_OF_FILES = ("", "", ".log", ".index", ".timeindex", ".snapshot", "checkpoint", ".tmp", "-delete")
NEEDING_SPACE: tuple[Operation, ...] = (
    "create",
    "make_dir",
    "rename",
    "remove",
    "append",
    "sync",
    "sync_dir",
)
NEEDING_DESCRIPTORS: tuple[Operation, ...] = ("open", "create")

FOLLOWER = BrokerId(99)  # a replica that is in sync by name and hears late of everything
HOUR_MS = 3_600_000


class Connected(Protocol):
    """Somebody whose connection may break."""

    @property
    def name(self) -> str: ...

    def hang_up(self) -> None: ...


class FaultInjector:
    def __init__(
        self, host: Host, clients: Sequence[Connected], profile: FaultProfile, operator: Operator
    ) -> None:
        self._host = host
        self._world = host.world
        self._clients = clients
        self._profile = profile
        self._operator = operator
        host.lingers, host.hears_after_stop = profile.lingers, profile.hears_after_stop
        self._is_over = False
        self._kinds: list[tuple[Callable[[], str], int]] = [
            (self._kill, profile.kill),
            (self._lose, profile.lose),
            (self._crash_in_call, profile.crash_in_call),
            (self._stop_cleanly, profile.stop_cleanly),
            (self._slow_jobs, profile.slow_jobs),
            (self._fill_disk, profile.disk_full),
            (self._io_error, profile.io_error),
            (self._jump_clock, profile.clock_jump),
            (self._late_follower, profile.late_follower),
            (self._reset, profile.reset),
            (self._no_space, profile.no_space),
            (self._reload, profile.reload),
            (self._strand, profile.strand),
            (operator.change_setting, profile.setting),
            (operator.move_partition, profile.move),
            (operator.replace_topic, profile.replace),
            (self._hide, profile.hide),
        ]

    def begin(self) -> None:
        self._world.after(self._world.between(*self._profile.pause_s), self._strike)

    def stop(self) -> None:
        """All is well from now on; a follower that is still there leaves with its next step."""
        self._is_over = True
        self._host.step_seen = None
        self._host.heal()
        self._operator.restore()

    def _strike(self) -> None:
        if self._is_over:
            return
        kinds, weights = zip(*self._kinds, (self._ambush, self._profile.ambush), strict=True)
        (act,) = self._world.rng.choices(kinds, weights)
        self._host.history.add(FaultStruck(act()))
        self.begin()

    def _ambush(self) -> str:
        """Wait for a step of a job, and strike before anything else happens."""
        host, rng = self._host, self._world.rng
        kinds, weights = zip(*self._kinds, strict=True)
        (act,) = rng.choices(kinds, weights)
        steps: tuple[Step, ...] = ("ordered", "run", "told")
        wanted, queue, skip = rng.choice(steps), rng.choice(QUEUES), rng.choice((0, 0, 1, 3))

        def strike() -> None:
            if not self._is_over:
                host.history.add(FaultStruck(f"at {queue} {wanted}: {act()}"))

        def seen(step: Step, run: Run) -> None:
            nonlocal skip
            if step != wanted or run.queue != queue:
                return
            if skip:
                skip -= 1
                return
            host.step_seen = None
            self._world.after(0.0, strike)

        host.step_seen = seen
        return f"something waits for {queue} {wanted}"

    # --- the process and its host --------------------------------------------------------------

    def _kill(self) -> str:
        self._host.kill()
        return "killed"

    def _lose(self) -> str:
        if self._host.node is not None:
            self._host.crash("lost")
        return "host lost"

    def _crash_in_call(self) -> str:
        rng = self._world.rng
        calls, written = rng.randrange(12), rng.choice((0, 0, 1, 17, 60, 61, 70, 150))
        how: CrashKind = "lost" if rng.randrange(2) and self._profile.loses_in_call else "killed"
        if self._host.node is not None:
            self._host.crash_at_call(calls, how, written)
        return f"{how} in disk call {calls}, {written} bytes of it written"

    def _stop_cleanly(self) -> str:
        self._host.shut_down()
        return "told to stop"

    def _hide(self) -> str:
        """A disk is not there at the next start. Its partitions are offline, and begin nowhere else."""
        host, world = self._host, self._world
        name = host.directories[-1]
        if len(host.directories) < 2 or host.node is None:
            return "no directory to hide"
        host.hidden = name
        # where nothing is flushed before it is acknowledged, no host may be lost
        kinds: tuple[CrashKind, ...] = ("killed", "lost") if self._profile.loses_in_call else ("killed",)
        host.crash(world.rng.choice(kinds))

        def end() -> None:
            host.hidden = ""
            if host.node is not None and not self._is_over:
                host.crash(world.rng.choice(kinds))

        world.after(world.between(0.5, 2.0), end)
        return f"directory {name} cannot be read"

    # --- the disk ---------------------------------------------------------------------------------

    def _slow_jobs(self) -> str:
        self._host.delays.is_slow = True

        def end() -> None:
            self._host.delays.is_slow = False

        self._world.after(self._world.between(0.3, 2.0), end)
        return "jobs are slow"

    def _fill_disk(self) -> str:
        room = self._world.rng.choice((0, 40, 61, 100, 300, 1_000))
        for disk in self._host.disks.values():
            disk.space_bytes = room

        def end() -> None:
            for disk in self._host.disks.values():
                disk.space_bytes = None

        self._world.after(self._world.between(0.2, 1.0), end)
        return f"disk full after {room} bytes"

    def _io_error(self) -> str:
        rng = self._world.rng
        operations: tuple[Operation, ...] = ("append", "sync", "read", "rename", "truncate")
        operation = rng.choice(operations)
        written = rng.choice((0, 5, 61))
        if self._host.disks:
            name = rng.choice(sorted(self._host.disks))
            fault = Fault(Fail(errno.EIO, written), operation, skip=rng.randrange(5))
            self._host.disks[name].faults.append(fault)
            self._host.has_broken_disk = True
        return f"I/O error on {operation}"

    def _no_space(self) -> str:
        """Some calls fail for a while, and succeed afterwards: a quota, a full disk, a process without
        descriptors. A name may find no place where bytes do, and the reverse.
        """
        rng = self._world.rng
        code = rng.choice((errno.ENOSPC, errno.ENOSPC, errno.EDQUOT, errno.EMFILE))
        operation: Operation = rng.choice(NEEDING_DESCRIPTORS if code == errno.EMFILE else NEEDING_SPACE)
        path = rng.choice(self._paths())
        skip, times = rng.choice((0, 0, 1, 4)), rng.choice((1, 1, 2, 10, 1_000))
        self._refuse(operation, path, code, skip=skip, times=times)
        if operation in ("sync", "sync_dir"):  # nobody knows what it has written: as bad as an I/O error
            self._host.has_broken_disk = True
        of = f"{path!r}: " if path else ""
        return f"{errno.errorcode[code]} on {operation} of {of}{times} times after {skip}"

    def _reload(self) -> str:
        """A coordinator cannot write its next record; in half of the cases while another partition, which may
        wait for a transaction's end, has no space either.
        """
        rng, node = self._world.rng, self._host.node
        topic = rng.choice(COORDINATORS_TOPICS)
        others = (
            [one for one in node.broker.partitions.all() if not one.topic.startswith("__")] if node else []
        )
        if not others or rng.randrange(2):
            self._refuse("append", topic, errno.ENOSPC, skip=rng.choice((0, 0, 1)), times=1)
            return f"no space for the next record of {topic}"
        starved = rng.choice(others)
        name = f"{starved.topic}-{starved.index}/"
        self._refuse("append", name, errno.ENOSPC, skip=0, times=1_000)

        def refuse_coordinator() -> None:
            if not self._is_over:
                self._refuse("append", topic, errno.ENOSPC, skip=0, times=1)

        self._world.after(self._world.between(0.0, 0.5), refuse_coordinator)
        return f"no space for {name} for a while, then none for a record of {topic}"

    def _strand(self) -> str:
        def refuse_appends(path: str, times: int) -> Callable[[], None]:
            times = 0 if self._is_over else times
            return self._refuse("append", path, errno.ENOSPC, skip=0, times=times, seconds=PATIENCE_S)

        strand_an_end(self._host, refuse_appends)
        return "somebody waits for the end of a transaction"

    def _refuse(
        self,
        operation: Operation,
        path: str,
        code: int,
        *,
        skip: int,
        times: int,
        seconds: float | None = None,
    ) -> Callable[[], None]:
        """For so many seconds, or for a while; what is returned ends it earlier."""
        faults = []
        for disk in self._host.disks.values():
            fault = Fault(Fail(code), operation, path, skip=skip, times=times)
            disk.faults.append(fault)
            faults.append(fault)

        def end() -> None:
            for fault in faults:
                fault.times = 0

        self._world.after(self._world.between(0.2, 2.5) if seconds is None else seconds, end)
        return end

    def _paths(self) -> list[str]:
        """Parts of paths that tell files of one kind, or those of one partition."""
        node = self._host.node
        names = (
            [f"{one.topic}-{one.index}/" for one in node.broker.partitions.all()] if node is not None else []
        )
        return [*KINDS_OF_FILES, *names]

    # --- the rest ---------------------------------------------------------------------------------

    def _jump_clock(self) -> str:
        jump_ms = self._world.rng.choice((-HOUR_MS, -60_000, -1_000, 1_000, 60_000, HOUR_MS))
        self._world.clock.wall_ms += jump_ms
        return f"wall clock jumps by {jump_ms} ms"

    def _reset(self) -> str:
        client = self._world.rng.choice(self._clients)
        client.hang_up()
        return f"{client.name} is cut off"

    def _late_follower(self) -> str:
        """In sync by name: nothing is committed before it has fetched, and it takes its time."""
        host, node = self._host, self._host.node
        if node is None:
            return "no follower joins"
        partitions = [partition for partition in node.broker.partitions.all() if partition.log is not None]
        if not partitions:
            return "no follower joins"
        partition = self._world.rng.choice(partitions)
        fetches = self._world.rng.randint(1, 4)

        def join(node: Node, now: Now) -> None:
            _change_isr(node, now, partition, BrokerId(node.id), FOLLOWER)
            _follower_fetches(node, now, partition)

        def go_on(left: int) -> None:
            if host.node is not node:
                return
            if left and not self._is_over:
                host.touch(lambda node, now: _follower_fetches(node, now, partition))
                self._world.after(self._world.between(0.05, 0.8), lambda: go_on(left - 1))
            else:
                host.touch(lambda node, now: _follower_leaves(node, now, partition))

        host.touch(join)
        self._world.after(self._world.between(0.05, 0.8), lambda: go_on(fetches))
        return f"a late follower of {partition.topic}-{partition.index}"


def _follower_fetches(node: Node, now: Now, partition: Partition) -> None:
    log, leader = partition.log, partition.leader
    if log is not None and leader is not None and not partition.is_offline:
        fetched = ReplicaFetched(FOLLOWER, NO_BROKER_EPOCH, leader.epoch, log.log_end_offset)
        partition.carry_out(now, leader.step(now.mono, fetched))
        node.wake(now)


def _follower_leaves(node: Node, now: Now, partition: Partition) -> None:
    _change_isr(node, now, partition, BrokerId(node.id))


def _change_isr(node: Node, now: Now, partition: Partition, *isr: BrokerId) -> None:
    leader = partition.leader
    if partition.log is not None and leader is not None and not partition.is_offline:
        change = PartitionChanged(leader.partition_epoch + 1, isr, isr)
        partition.carry_out(now, leader.step(now.mono, change))
        node.wake(now)
