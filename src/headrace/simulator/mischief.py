"""What goes wrong in a run: each kind of fault, and the choice between them by their odds."""

import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.base.ids import BrokerId, Offset
from headrace.base.time import Now
from headrace.node.effects import Run
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.simulator.history import FaultStruck
from headrace.simulator.machine import Machine, Step
from headrace.simulator.odds import Odds
from headrace.simulator.operator import Operator
from headrace.simulator.stranded_end import PATIENCE_S, strand_an_end
from headrace.storage.faulty_disk import Fail, Fault, Operation
from headrace.storage.memory_disk import CrashKind

# Kinds of jobs, by the lanes that they run in.
LANES = (
    "flush",
    "flush",
    "checkpoint",
    "removal",
    "rewriting",
    "move",
    "loading",
    "metadata",
    "snapshot",
    "admission",
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


class Mischief:
    def __init__(
        self, machine: Machine, clients: Sequence[Connected], odds: Odds, operator: Operator
    ) -> None:
        self._machine = machine
        self._world = machine.world
        self._clients = clients
        self._odds = odds
        self._operator = operator
        machine.lingers, machine.hears_after_stop = odds.lingers, odds.hears_after_stop
        self._is_over = False
        self._kinds: list[tuple[Callable[[], str], int]] = [
            (self._kill, odds.kill),
            (self._lose, odds.lose),
            (self._crash_in_call, odds.crash_in_call),
            (self._stop_cleanly, odds.stop_cleanly),
            (self._slow_jobs, odds.slow_jobs),
            (self._fill_disk, odds.disk_full),
            (self._io_error, odds.io_error),
            (self._jump_clock, odds.clock_jump),
            (self._late_follower, odds.late_follower),
            (self._reset, odds.reset),
            (self._no_space, odds.no_space),
            (self._reload, odds.reload),
            (self._strand, odds.strand),
            (operator.change_setting, odds.setting),
            (operator.move_partition, odds.move),
            (operator.replace_topic, odds.replace),
        ]

    def begin(self) -> None:
        self._world.after(self._world.between(*self._odds.pause_s), self._strike)

    def stop(self) -> None:
        """All is well from now on; a follower that is still there leaves with its next step."""
        self._is_over = True
        self._machine.step_seen = None
        self._machine.heal()
        self._operator.restore()

    def _strike(self) -> None:
        if self._is_over:
            return
        kinds, weights = zip(*self._kinds, (self._ambush, self._odds.ambush), strict=True)
        (act,) = self._world.dice.choices(kinds, weights)
        self._machine.history.add(FaultStruck(act()))
        self.begin()

    def _ambush(self) -> str:
        """Wait for a step of a job, and strike before anything else happens."""
        machine, dice = self._machine, self._world.dice
        kinds, weights = zip(*self._kinds, strict=True)
        (act,) = dice.choices(kinds, weights)
        steps: tuple[Step, ...] = ("ordered", "run", "told")
        wanted, lane, skip = dice.choice(steps), dice.choice(LANES), dice.choice((0, 0, 1, 3))

        def strike() -> None:
            if not self._is_over:
                machine.history.add(FaultStruck(f"at {lane} {wanted}: {act()}"))

        def seen(step: Step, run: Run) -> None:
            nonlocal skip
            if step != wanted or run.lane != lane:
                return
            if skip:
                skip -= 1
                return
            machine.step_seen = None
            self._world.after(0.0, strike)

        machine.step_seen = seen
        return f"something waits for {lane} {wanted}"

    # --- the process and its machine --------------------------------------------------------------

    def _kill(self) -> str:
        self._machine.kill()
        return "killed"

    def _lose(self) -> str:
        if self._machine.node is not None:
            self._machine.crash("lost")
        return "machine lost"

    def _crash_in_call(self) -> str:
        dice = self._world.dice
        calls, written = dice.randrange(12), dice.choice((0, 0, 1, 17, 60, 61, 70, 150))
        how: CrashKind = "lost" if dice.randrange(2) and self._odds.loses_in_call else "killed"
        if self._machine.node is not None:
            self._machine.crash_at_call(calls, how, written)
        return f"{how} in disk call {calls}, {written} bytes of it written"

    def _stop_cleanly(self) -> str:
        self._machine.shut_down()
        return "told to stop"

    # --- the disk ---------------------------------------------------------------------------------

    def _slow_jobs(self) -> str:
        self._machine.is_slow = True

        def end() -> None:
            self._machine.is_slow = False

        self._world.after(self._world.between(0.3, 2.0), end)
        return "jobs are slow"

    def _fill_disk(self) -> str:
        room = self._world.dice.choice((0, 40, 61, 100, 300, 1_000))
        for disk in self._machine.disks.values():
            disk.space_bytes = room

        def end() -> None:
            for disk in self._machine.disks.values():
                disk.space_bytes = None

        self._world.after(self._world.between(0.2, 1.0), end)
        return f"disk full after {room} bytes"

    def _io_error(self) -> str:
        dice = self._world.dice
        operations: tuple[Operation, ...] = ("append", "sync", "read", "rename", "truncate")
        operation = dice.choice(operations)
        written = dice.choice((0, 5, 61))
        if self._machine.disks:
            name = dice.choice(sorted(self._machine.disks))
            fault = Fault(Fail(errno.EIO, written), operation, skip=dice.randrange(5))
            self._machine.disks[name].faults.append(fault)
            self._machine.has_broken_disk = True
        return f"I/O error on {operation}"

    def _no_space(self) -> str:
        """Some calls fail for a while, and succeed afterwards: a quota, a full disk, a process without
        descriptors. A name may find no place where bytes do, and the reverse.
        """
        dice = self._world.dice
        code = dice.choice((errno.ENOSPC, errno.ENOSPC, errno.EDQUOT, errno.EMFILE))
        operation: Operation = dice.choice(NEEDING_DESCRIPTORS if code == errno.EMFILE else NEEDING_SPACE)
        path = dice.choice(self._paths())
        skip, times = dice.choice((0, 0, 1, 4)), dice.choice((1, 1, 2, 10, 1_000))
        self._refuse(operation, path, code, skip=skip, times=times)
        if operation in ("sync", "sync_dir"):  # nobody knows what it has written: as bad as an I/O error
            self._machine.has_broken_disk = True
        of = f"{path!r}: " if path else ""
        return f"{errno.errorcode[code]} on {operation} of {of}{times} times after {skip}"

    def _reload(self) -> str:
        """A coordinator cannot write its next record; in half of the cases while another partition, which may
        wait for a transaction's end, has no space either.
        """
        dice, node = self._world.dice, self._machine.node
        topic = dice.choice(COORDINATORS_TOPICS)
        others = (
            [one for one in node.broker.partitions.all() if not one.topic.startswith("__")] if node else []
        )
        if not others or dice.randrange(2):
            self._refuse("append", topic, errno.ENOSPC, skip=dice.choice((0, 0, 1)), times=1)
            return f"no space for the next record of {topic}"
        starved = dice.choice(others)
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

        strand_an_end(self._machine, refuse_appends)
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
        for disk in self._machine.disks.values():
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
        node = self._machine.node
        names = (
            [f"{one.topic}-{one.index}/" for one in node.broker.partitions.all()] if node is not None else []
        )
        return [*KINDS_OF_FILES, *names]

    # --- the rest ---------------------------------------------------------------------------------

    def _jump_clock(self) -> str:
        jump_ms = self._world.dice.choice((-HOUR_MS, -60_000, -1_000, 1_000, 60_000, HOUR_MS))
        self._world.clock.wall_ms += jump_ms
        return f"wall clock jumps by {jump_ms} ms"

    def _reset(self) -> str:
        client = self._world.dice.choice(self._clients)
        client.hang_up()
        return f"{client.name} is cut off"

    def _late_follower(self) -> str:
        """In sync by name: nothing is committed before it has fetched, and it takes its time."""
        machine, node = self._machine, self._machine.node
        if node is None:
            return "no follower joins"
        partitions = [partition for partition in node.broker.partitions.all() if partition.log is not None]
        if not partitions:
            return "no follower joins"
        partition = self._world.dice.choice(partitions)
        fetches = self._world.dice.randint(1, 4)

        def join(node: Node, now: Now) -> None:
            _follower_fetches(node, now, partition)
            partition.leader.isr_changed((node.id, FOLLOWER), _end(partition))  # type: ignore[arg-type]

        def go_on(left: int) -> None:
            if machine.node is not node:
                return
            if left and not self._is_over:
                machine.touch(lambda node, now: _follower_fetches(node, now, partition))
                self._world.after(self._world.between(0.05, 0.8), lambda: go_on(left - 1))
            else:
                machine.touch(lambda node, now: _follower_leaves(node, now, partition))

        machine.touch(join)
        self._world.after(self._world.between(0.05, 0.8), lambda: go_on(fetches))
        return f"a late follower of {partition.topic}-{partition.index}"


def _end(partition: Partition) -> int:
    return partition.promised_end(partition.log) if partition.log is not None else 0


def _follower_fetches(node: Node, now: Now, partition: Partition) -> None:
    if partition.log is not None and not partition.is_offline:
        partition.leader.replica_fetched(FOLLOWER, Offset(partition.log.log_end_offset), _end(partition))
        node.waiting.wake(partition)
        node.wake(now)


def _follower_leaves(node: Node, now: Now, partition: Partition) -> None:
    if partition.log is not None and not partition.is_offline:
        partition.leader.isr_changed((BrokerId(node.id),), _end(partition))
        node.waiting.wake(partition)
        node.wake(now)
