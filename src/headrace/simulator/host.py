"""A simulated host: its disks, and the node that runs on it, which may be killed in any call.

It drives the node as the server does (one call, then its effects, then one timer), but runs every job at a
random time, and the disk may stop the host inside any call. After a killed process the page cache
remains; after a crash of the host, everything that was fsynced and a random part of the rest.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from struct import Struct
from typing import Any, Protocol, assert_never

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.effects import (
    Answer,
    Close,
    Effect,
    Fetch,
    Halt,
    Hangup,
    LoseAudit,
    Mute,
    Parts,
    Proceed,
    Report,
    Run,
    Send,
    WriteAudit,
)
from headrace.node.node import Node
from headrace.node.peers import Unanswered
from headrace.simulator.frames import joined
from headrace.simulator.history import (
    CoordinatorCompared,
    DirectoryGivenUp,
    FaultStruck,
    HighWatermarkLags,
    History,
    InvariantBroken,
    NodeLife,
    NodeStarted,
    NodeStopped,
    PartitionKey,
)
from headrace.simulator.job_queues import JobDelays, JobQueues, Step
from headrace.simulator.late_answers import LateAnswers, rotten
from headrace.simulator.network import Network
from headrace.simulator.rebuilding import broken_invariants, differences
from headrace.simulator.world import World
from headrace.storage.disk import Disk
from headrace.storage.errors import StorageError
from headrace.storage.faulty_disk import CHANGES, OPENS, Crash, DiskCrashed, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import CrashKind, MemoryDisk

NODE = "node-"  # begins the address of another node

LEAVING_S_MAX = 0.3  # from the clean marker to the end of the process


class NodeEnd(Protocol):
    """A connection to the node: what the node's host tells it."""

    def answered(self, frame: bytes, /) -> None:
        """A frame left the node."""
        ...

    def broke(self) -> None:
        """The node or its host is gone, or it closed the connection."""
        ...

    def mute(self, until: float, /) -> None: ...


StartNode = Callable[[dict[str, Disk], Randomness, str, Now], Node]

_BATCH = Struct(">qi11xi")  # base offset, length, last offset delta
_BATCH_BYTES_MIN = 61

# A count that is wrong stays wrong: a look after every call would find it hardly earlier, and costs a third
# more time.
CALLS_PER_CHECK = 5


def is_passing(failure: Fail) -> bool:
    """Want of space or of descriptors says nothing about the bytes that the disk holds."""
    return failure.code in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE)


class Host:
    def __init__(
        self,
        world: World,
        history: History,
        directories: list[str],
        start_node: StartNode,
        *,
        id: int = 1,
        network: Network | None = None,
    ) -> None:
        self.id = id  # of its node
        self.network = network  # to other nodes; None: there are none
        self.world = world
        self.history = history
        self._start_node = start_node
        self.directories = directories  # the metadata lie in the first
        self._disks = {name: MemoryDisk() for name in directories}
        self.hidden = ""  # a directory that the next start cannot read
        self.disks: dict[str, FaultyDisk] = {}
        self.node: Node | None = None
        self.starts = 0
        self.reports: list[str] = []
        self.delays = JobDelays(world)  # of jobs
        self.is_exhausted = False  # its process has no file descriptor left
        self.restarts = True  # somebody starts it again when it is down
        self.reboots = False  # after its next clean stop: what was not fsynced is gone, and the boot id new
        self.ended: Callable[[Host], None] | None = None  # called once, when its process has stopped cleanly
        self.dies_by: CrashKind = "killed"  # what a scripted crash of a disk means
        self.has_broken_disk = False  # a disk was told to fail for another reason than want of space
        self.is_alone = True  # its node is the only one, and everything in its logs is its own
        self.seen: Callable[[Host], None] | None = None  # whoever looks at the node after each call
        self.wall_offset_ms = 0  # of its wall clock
        self._drift = (1.0, 0.0, 0.0)  # how fast its clocks run, since when, and what they showed then
        self.reads_late = False  # what is sent to other nodes is read from its files some time later
        self._holds_for: set[str] = set()  # addresses of nodes whose answers are not read for now
        self.rotten_reads = 0.0  # how often a bit flips in it
        self._late = LateAnswers(world, self._send_now)
        self.step_seen: Callable[[Step, Run], None] | None = None  # whoever waits for a step of a job
        self._paused_until = 0.0
        self._waiting: list[Callable[[Node, Now], Any]] = []  # what has reached a process that stands still
        self._is_starting = False
        self._is_leaving = False  # the node has stopped, its process has not ended yet
        self.lingers = 0.0  # how often jobs still run after the clean marker was written
        self.hears_after_stop = False  # whether requests are still received then
        self._boot = 0
        self._flushed: dict[PartitionKey, int] = {}
        self._wires: dict[int, NodeEnd] = {}  # by connection id
        self._jobs: JobQueues | None = None  # of the process that runs
        self._wakes_at: float | None = None
        self._connections = 0
        self._calls = 0
        # by partition and path of a log: the whole batches that it held, and the offset behind them
        self._durable_ends: dict[tuple[PartitionKey, str], tuple[bytes, int]] = {}

    # --- its life ---------------------------------------------------------------------------------

    def start(self) -> None:
        if self.node is not None:
            return
        self.starts += 1
        self.disks = {name: self._attached(name, disk) for name, disk in self._disks.items()}
        self._jobs, self._wakes_at = JobQueues(self.world, self.delays, self), None
        self._is_leaving = False
        self.has_broken_disk = bool(self.hidden) or any(
            one.times and one.operation in ("sync", "sync_dir")
            for disk in self.disks.values()
            for one in disk.faults
        )
        self._durable_ends.clear()
        boot_id = f"boot-{self._boot}"
        try:
            self.node = self._start_node(
                dict(self.disks), Random(self.world.rng.getrandbits(64)), boot_id, self._now()
            )
        except DiskCrashed:
            self.crash(self.dies_by)
            return
        except (OSError, StorageError) as error:  # a full or broken disk: somebody tries again later
            self.history.add(FaultStruck(f"start failed: {error}"))
            self.crash("killed")
            return
        if self.is_alone:
            self.history.add(NodeStarted(boot_id, _metadata_of(self.node)))
        else:
            self.history.add(NodeLife(self.id, f"started, {boot_id}"))
        self._is_starting = True
        self._after_call()
        self._is_starting = False

    def _attached(self, name: str, disk: MemoryDisk) -> FaultyDisk:
        """A disk that is full is still full for the next process."""
        if name == self.hidden:
            return FaultyDisk(disk, [Fault(Fail(errno.EIO), CHANGES | OPENS | {"read"}, times=-1)])
        before = self.disks.get(name)
        if before is None:
            return FaultyDisk(disk, keeps_calls=False)
        faults = [one for one in before.faults if isinstance(one.action, Fail) and is_passing(one.action)]
        after = FaultyDisk(disk, space_bytes=before.space_bytes, keeps_calls=False)
        after.faults = faults
        return after

    def kill(self) -> None:
        """The process is gone between two calls: what it knew and what it wrote must agree."""
        if self.node is not None and self.is_alone:
            for partition, difference in differences(self.node, self._disks):
                self.history.add(CoordinatorCompared(partition, difference))
        if self.node is not None:
            self.crash("killed")

    def crash(self, how: CrashKind) -> None:
        """The process is gone between two instructions; and with "lost", the host's memory too."""
        self._note_flushed()
        self._end(how)
        self.reboots, self.ended = False, None  # it did not come to its clean stop
        if how == "lost":
            self._boot += 1
        self._disks = {name: disk.crash(how, self.world.rng) for name, disk in self._disks.items()}

    @property
    def stored(self) -> dict[str, MemoryDisk]:
        """What is on its disks."""
        return self._disks

    @property
    def flushed(self) -> dict[PartitionKey, int]:
        """Where the flushed part of each log ended when its process did."""
        return self._flushed

    def replace_disks(self, disks: dict[str, MemoryDisk]) -> None:
        """While it is down; where there is no other disk, it gets an empty one."""
        self._disks = {name: disks[name] if name in disks else MemoryDisk() for name in self.directories}
        self._flushed.clear()
        self._durable_ends.clear()

    def lose_file(self, directory: str, path: str) -> None:
        """While it is down."""
        self._disks[directory].remove(path)
        self._flushed.clear()
        self._durable_ends.clear()

    def shut_down(self) -> None:
        if self.node is not None:
            self._call(lambda node, now: node.shutdown(now))

    def crash_at_call(self, calls: int, how: CrashKind, written: int) -> None:
        """Stop inside the n-th call from now that changes a disk."""
        self.dies_by = how
        name = self.world.rng.choice(sorted(self.disks))
        self.disks[name].faults.append(Fault(Crash(written=written), skip=calls))

    def exhaust(self, *, is_over: bool) -> None:
        """The process has no file descriptor left, or has some again: it opens no file and no connection, and
        accepts none. The next process has its own.
        """
        for disk in self.disks.values():
            disk.faults = [one for one in disk.faults if one.operation != OPENS]
            if not is_over:
                disk.faults.append(Fault(Fail(errno.EMFILE), OPENS, times=-1))
        self.is_exhausted = not is_over
        if self.network is not None:
            (self.network.exhausted.discard if is_over else self.network.exhausted.add)(self.id)

    @contextmanager
    def unhindered(self) -> Iterator[None]:
        """Judges may look at files, though the process cannot."""
        if not self.is_exhausted:
            yield
            return
        faults = {name: disk.faults for name, disk in self.disks.items()}
        for disk in self.disks.values():
            disk.faults = []
        yield
        for name, disk in self.disks.items():
            disk.faults = faults[name]

    def heal(self) -> None:
        """Disks are well again, who stood still goes on, and a node that gave up a disk is restarted."""
        if self._paused_until > self.world.mono:
            self._paused_until = self.world.mono
            self.world.after(0.0, self._go_on)
        self.delays.heal()
        self.reboots, self.ended = False, None
        self.reads_late = False
        self.release_answers()
        self.rotten_reads = 0.0
        self.drift(1.0)
        self.hidden = ""
        self.exhaust(is_over=True)
        for disk in self.disks.values():
            disk.faults.clear()
            disk.space_bytes = None
        if self.node is not None and self.node.directories.offline():
            self.crash("killed")

    def _note_flushed(self) -> None:
        if self.node is not None and "broker" in self.node.settings.process_roles:
            for partition in self.node.broker.partitions.all():
                if partition.log is not None:
                    key = PartitionKey(partition.topic, partition.topic_id, partition.index)
                    # an end that is not beyond the start says of no record and no file that it was flushed
                    log = partition.log
                    is_said = log.flushed_offset > log.log_start_offset
                    self._flushed[key] = log.flushed_offset if is_said else 0

    def _end(self, how: str) -> None:
        metadata = _metadata_of(self.node) if self.node is not None else ""
        if self.is_alone:
            self.history.add(NodeStopped(how, dict(self._flushed), metadata))
        else:
            self.history.add(NodeLife(self.id, f"stopped, {how}"))
        self.node = None
        self.exhaust(is_over=True)
        if self._jobs is not None:
            self._jobs.end()
        wires, self._wires = list(self._wires.values()), {}
        for wire in wires:
            wire.broke()
        if self.network is not None:
            self.network.went_down(self)
        self._paused_until = 0.0
        self._waiting = []
        if self.restarts:
            self.world.after(self.world.between(0.05, 0.5), self.start)

    # --- its network ------------------------------------------------------------------------------

    def accept(
        self, wire: NodeEnd, listener: str = "PLAINTEXT", address: str = "client"
    ) -> Connection | None:
        """None: connection refused. Controllers are served before the node is ready."""
        if self.node is None or not (self.node.is_ready or listener == "CONTROLLER") or self.is_exhausted:
            return None
        self._connections += 1
        connection = Connection(self._connections, listener=listener, address=address)
        connection.frames_stay = True  # each has memory of its own
        self._wires[connection.id] = wire
        self._call(lambda node, now: node.connected(now, connection))
        return connection

    def received(self, wire: NodeEnd, connection: Connection, frame: bytearray) -> None:
        if self._is_leaving and not self.hears_after_stop:
            return

        def handle(node: Node, now: Now) -> None:
            parts = node.handle(now, connection, memoryview(frame))
            # leaves before the effects of the same call are carried out; who stood still may find it closed
            if parts is not None and connection.id in self._wires:
                self._send(wire, connection, parts)

        self._call(handle)

    def hung_up(self, connection: Connection) -> None:
        if self._wires.pop(connection.id, None) is not None:
            self._call(lambda node, now: node.disconnected(now, connection))

    # --- driving the node -------------------------------------------------------------------------

    def touch(self, act: Callable[[Node, Now], Any]) -> None:
        """Let somebody else act on the node, as a follower would, with all that comes of it."""
        self._call(act)

    def pause(self, seconds: float) -> None:
        """The process stands still, as after SIGSTOP: all that reaches it waits."""
        self._paused_until = max(self._paused_until, self.world.mono + seconds)

    def hold_answers(self, node: int) -> None:
        """That node's connections take no more bytes: answers to it are read from their files later."""
        self._holds_for.add(f"{NODE}{node}")

    @property
    def can_read_held(self) -> bool:
        """Whether all bytes that held answers name are in their files."""
        return self._late.is_whole

    def release_answers(self) -> None:
        self._holds_for.clear()
        self._late.drain_held()

    size = 1  # of the cluster, if nobody says otherwise

    def reach(self, address: object) -> "Host":
        """For clients of a single node: whatever the address, it is this one."""
        return self

    def _now(self) -> Now:
        return Now(self._mono, int(self.world.clock.wall_ms) + self.wall_offset_ms)

    @property
    def _mono(self) -> float:
        """Its own clock, which does not go back."""
        rate, since, shown = self._drift
        return shown + (self.world.mono - since) * rate

    def drift(self, rate: float) -> None:
        if rate != self._drift[0]:
            self._drift = (rate, self.world.mono, self._mono)

    def peer_answered(self, ticket: int, answer: memoryview | Unanswered) -> None:
        self._call(lambda node, now: node.answered(now, ticket, answer))

    def _call(self, act: Callable[[Node, Now], Any]) -> None:
        node = self.node
        if node is None:
            return
        if self._waiting or self._paused_until > self.world.mono:
            self._waiting.append(act)
            if len(self._waiting) == 1:
                self.world.after(self._paused_until - self.world.mono, self._go_on)
            return
        self._do(node, act)

    def _go_on(self) -> None:
        """The process goes on, and finds what has reached it meanwhile, in order."""
        node = self.node
        if self._paused_until > self.world.mono:
            self.world.after(self._paused_until - self.world.mono + 1e-6, self._go_on)
            return
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            if node is not None and self.node is node:
                self._do(node, act)

    def _do(self, node: Node, act: Callable[[Node, Now], Any]) -> None:
        try:
            act(node, self._now())
        except DiskCrashed:
            self.crash(self.dies_by)
            return
        self._after_call()

    def _after_call(self) -> None:
        node = self.node
        assert node is not None
        self._calls += 1
        if self.seen is not None:
            self.seen(self)
        if self._calls % CALLS_PER_CHECK == 0:
            for partition, fault in broken_invariants(node):
                self.history.add(InvariantBroken(partition, fault))
        for effect in node.take_effects():
            if self.node is node:
                self._carry_out(effect)
        if self.node is not node:
            return
        if node.is_stopped and not self._is_leaving:
            self._is_leaving = True
            if not self.world.chance(self.lingers):
                self._leave(node)
                return
            self.world.after(self.world.between(0.0, LEAVING_S_MAX), lambda: self._leave(node))
        self._set_timer(node)

    def _leave(self, node: Node) -> None:
        """Until now jobs that had been ordered before may have run, and requests may have come."""
        if self.node is node:
            self._note_flushed()
            self._end("cleanly")
            if self.reboots:
                self.reboots = False
                self._boot += 1
                self._disks = {name: disk.crash("lost", self.world.rng) for name, disk in self._disks.items()}
            if self.ended is not None:
                ended, self.ended = self.ended, None
                ended(self)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Answer(connection, parts):
                wire = self._wires.get(connection.id)
                if wire is not None:
                    self._send(wire, connection, parts)
            case Close(connection, _):
                wire = self._wires.get(connection.id)
                if wire is not None:
                    wire.broke()
                    self.hung_up(connection)
            case WriteAudit() | LoseAudit():
                pass
            case Proceed():
                pass  # wires never stop reading from their clients
            case Run():
                assert self._jobs is not None
                self._jobs.add(effect)
            case Mute(connection, until):
                wire = self._wires.get(connection.id)
                if wire is not None:
                    wire.mute(self.world.mono + (until - self._mono) / self._drift[0])
            case Report(level, event, facts):
                self.reports.append(f"{level} {event}")
                if event == "log_directory_offline":
                    reason = str(facts.get("error", ""))
                    # a start that cannot write to a directory does without it, as Kafka's does
                    is_excused = self.has_broken_disk or self._is_starting
                    self.history.add(DirectoryGivenUp(reason, is_broken=is_excused))
            case Halt(reason):
                self.history.add(FaultStruck(f"the node halts: {reason}"))
                self.crash("killed")
            case Fetch():
                raise AssertionError("the simulator has no identity provider")
            case Send():
                assert self.network is not None, "a single node has no peers"
                self.network.send(self, effect)
            case Hangup():
                assert self.network is not None, "a single node has no peers"
                self.network.hang_up(self, effect)
            case _:
                assert_never(effect)

    def _send(self, wire: NodeEnd, connection: Connection, parts: Parts) -> None:
        is_held = connection.address in self._holds_for
        is_late = self.reads_late or self._late.has(connection)
        if is_held or (is_late and connection.address.startswith(NODE)):
            self._late.add(wire, connection, parts, is_held=is_held)
        else:
            self._send_now(wire, connection, parts)

    def _send_now(self, wire: NodeEnd, connection: Connection, parts: Parts) -> None:
        if connection.id not in self._wires:
            return  # it was closed meanwhile
        try:
            frame = joined(parts)
            if self.rotten_reads and connection.address.startswith(NODE):
                frame = rotten(parts, self.world, self.rotten_reads)
        except OSError:  # half an answer cannot be taken back
            wire.broke()
            self.hung_up(connection)
        else:
            wire.answered(frame)

    def _set_timer(self, node: Node) -> None:
        deadline = node.deadline()
        if deadline is None or (self._wakes_at is not None and self._wakes_at <= deadline):
            return
        self._wakes_at = deadline

        def wake() -> None:
            if self.node is node and self._wakes_at == deadline:
                self._wakes_at = None
                self._call(lambda node, now: node.wake(now))

        # timers are late, never early
        left = (deadline - self._mono) / self._drift[0]
        self.world.after(left + self.world.between(0.00001, 0.001), wake)

    # --- jobs -------------------------------------------------------------------------------------

    def run_job(self, run: Run) -> tuple[Any] | None:
        try:
            return (run.job.run(self.disks[run.directory]),)
        except DiskCrashed:
            self.crash(self.dies_by)
            return None
        except OSError as error:
            return (error,)

    def job_told(self, run: Run, result: Any) -> None:
        self._call(lambda node, now: node.completed(now, run.ticket, result))
        self._look_at_high_watermarks()
        self.job_passed("told", run)

    def job_passed(self, step: Step, run: Run) -> None:
        if self.step_seen is not None:
            self.step_seen(step, run)

    def _look_at_high_watermarks(self) -> None:
        """Nobody but a follower may hold one back, whatever became of the flush that it waited for."""
        if self.node is None or self._is_leaving or not self.is_alone:
            return
        for one in self.node.broker.partitions.all():
            log = one.log
            leader = one.leader
            if log is None or one.is_offline or log.is_offline or leader is None or len(leader.isr) > 1:
                continue
            end = one.promised_end(log)
            if leader.high_watermark < end:
                name = f"{one.topic}-{one.index}"
                self.history.add(HighWatermarkLags(name, leader.high_watermark, end))

    # --- what judges may look at ------------------------------------------------------------------

    def durable_end(self, partition: PartitionKey) -> int:
        """One past the last offset of the partition that a lost host would surely still have, or that was
        deleted before.
        """
        directory = str(partition)
        end = -1
        for disk in self._disks.values():
            if not disk.exists(directory):
                continue
            logs = [name for name in disk.list(directory) if name.endswith(".log")]
            if logs:
                end = max(end, int(logs[0][: -len(".log")]))
            for name in logs:
                end = max(end, self._durable_end_of(disk, partition, f"{directory}/{name}"))
        return end

    def _durable_end_of(self, disk: MemoryDisk, partition: PartitionKey, path: str) -> int:
        data = disk.durable(path)
        known, end = self._durable_ends.get((partition, path), (b"", -1))
        if not data.startswith(known):  # it was cut, or another file has taken its place
            known, end = b"", -1
        position = len(known)
        while len(data) - position >= _BATCH_BYTES_MIN:
            base, length, delta = _BATCH.unpack_from(data, position)
            if position + 12 + length > len(data):
                break
            position += 12 + length
            end = base + delta + 1
        self._durable_ends[partition, path] = (data[:position], end)
        return end


def _metadata_of(node: Node) -> str:
    """What a replay of the metadata log has to give again; epochs rise with each start, and are left out."""
    image = node.controller.metadata.image
    topics = [
        f"{name} {topic.id.hex()} {len(topic.partitions)} {sorted(image.topic_config(name).items())}"
        for name, topic in sorted(image.topics.items())
    ]
    return "; ".join([*topics, f"next producer id {image.next_producer_id}"])
