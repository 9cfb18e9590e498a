"""One partition of a coordinator's topic, and the machine that lives on it.

The machine decides; the shard appends its records as one batch, has them replayed at once, and lets replies,
answers and effects out when the high watermark has passed all that was replayed. An append that fails costs
the machine: nobody can say what it had promised in its memory, so it is recreated from the log.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from headrace.base.time import Instant, Now
from headrace.machines.coordination import Caller, CoordinatorMachine, Decision
from headrace.node.coordinators.loader import Loader
from headrace.node.faults import FAULTS
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.ports import Deadlines, Ports
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiter, Waiting
from headrace.protocol.coordinator_records import Kinds, encode
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.storage.errors import DiskFull, StorageError
from headrace.storage.log import PartitionLog

# A machine that was thrown away is recreated after a pause: a disk that is full stays so for a while.
RELOAD_AFTER_MS = 1_000


M = TypeVar("M", bound=CoordinatorMachine)


def caller(request: Request) -> Caller:
    """Who asks a coordinator, in the form in which Kafka remembers and shows addresses."""
    return Caller(request.client_id or "", f"/{request.connection.address}")


class Ticket(Parked):
    """Waits until its coordinator answers, however long a rebalance takes: the machine has the timers."""

    __slots__ = ("_refused",)

    def __init__(self, waiting: Waiting, request: Request, refused: Callable[[ErrorCode], Any]) -> None:
        super().__init__(waiting, request)
        self._refused = refused  # makes the reply that carries an error

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        return None

    def settle(self, now: Now, reply: Any) -> None:
        self.waiting.answer(now, self, reply)

    def refuse(self, now: Now, code: ErrorCode) -> None:
        if self.pending is not None:  # else its request is being answered right now, by whoever refuses it
            self.waiting.answer(now, self, self._refused(code))


class Shard(Waiter, Generic[M]):
    __slots__ = (
        "_act",
        "_alarm",
        "_backlog",
        "_deadlines",
        "_directories",
        "_lifecycle",
        "_loader",
        "_make",
        "_make_loader",
        "_reports",
        "_waiting",
        "current",
        "kinds",
        "partition",
    )

    def __init__(
        self,
        partition: Partition,
        kinds: Kinds,
        make: Callable[[Partition], M],
        act: "Callable[[Now, Shard[M], Any], None]",
        make_loader: "Callable[[Shard[M], PartitionLog, M], Loader]",
        directories: LogDirectories,
        ports: Ports,
    ) -> None:
        super().__init__()
        self._directories = directories
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._waiting = ports.waiting
        self.partition = partition
        self.kinds = kinds
        self._make = make
        self._act = act  # carries out an effect, once what it follows from is committed
        self._backlog: deque[tuple[int, Decision]] = deque()  # end offset, what waits for it
        self._alarm: Alarm | None = None
        self._make_loader = make_loader
        self._loader: Loader | None = None
        self.current: M | None = None  # None: not loaded

    @property
    def machine(self) -> M:
        """The machine of a shard that is loaded."""
        machine = self.current
        assert machine is not None, "whoever asks has asked first whether the shard is loaded"
        return machine

    # --- loading -----------------------------------------------------------------------------------------

    def load(self, now: Now) -> None:
        """Make the machine from the log: at once when the log is empty, else a slice at a time."""
        self._reset(None)
        if self._lifecycle.is_stopping:
            return
        if self._loader is None and self.current is None and not self.partition.is_offline:
            try:
                log = self.partition.opened(now)
            except StorageError as fault:
                self.disk_refused(now, fault)
                return
            self._loader = self._make_loader(self, log, self.fresh_machine())
            self._loader.go_on(now)

    def fresh_machine(self) -> M:
        """One that knows nothing yet."""
        return self._make(self.partition)

    def loaded(self, now: Now, machine: M) -> None:
        self._loader = None
        self.current = machine
        self.carry_out(now, machine.loaded(now))

    def disk_refused(self, now: Now, fault: Exception) -> None:
        """The log cannot be read now: where the disk is full, it is tried again after a while; where its
        directory is offline, so is this coordinator.
        """
        self._directories.storage_failed(now, self.partition, fault)
        self.load_failed(now)
        if isinstance(fault, DiskFull):
            self._reset(Alarm(self._deadlines, now.after_ms(RELOAD_AFTER_MS), self.load))

    def load_failed(self, now: Now) -> None:
        """Nobody can say what the log decides: this coordinator serves nobody."""
        self._loader = None

    @property
    def refusal(self) -> ErrorCode:
        """Why requests are refused while there is no machine."""
        return (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if self._loader is not None
            else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )

    # --- decisions ---------------------------------------------------------------------------------------

    def answer(
        self,
        request: Request,
        decision: Decision,
        refused: Callable[[ErrorCode], Any],
        ticket: Ticket | None = None,
    ) -> Any:
        """The reply to the request, or the ticket with which it is parked."""
        now = request.now
        if decision.records and not self._append(now, decision):
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.arm(now)
        reply = decision.reply
        if decision.answers and ticket is not None and reply is None:
            reply = self._own_answer(decision, ticket)
        if self.is_committed:
            if decision.answers or decision.effects:
                self._release(now, decision)
            return ticket if reply is None else reply
        if reply is not None:
            ticket = ticket or Ticket(self._waiting, request, refused)
            decision.answers.append((ticket, reply))
        self._hold(decision)
        return ticket

    def carry_out(self, now: Now, decision: Decision) -> bool:
        """A decision that nobody asked for; False: its records could not be written."""
        if decision.records and not self._append(now, decision):
            return False
        self.arm(now)
        if self.is_committed:
            self._release(now, decision)
        else:
            self._hold(decision)
        return True

    @staticmethod
    def _own_answer(decision: Decision, ticket: Ticket) -> Any:
        """What the request itself is answered, when its own decision ended the wait."""
        for number, (holder, reply) in enumerate(decision.answers):
            if holder is ticket:
                del decision.answers[number]
                return reply
        return None

    def replay_end(self, producer_id: int, is_committed: bool) -> None:
        """An end marker was appended to this partition. A loader that is still at work will meet it."""
        if self.current is not None:
            self.current.replay_end(producer_id, is_committed)

    def _append(self, now: Now, decision: Decision) -> bool:
        writer = decision.writer
        wall_ms = now.wall_ms
        rows = [(wall_ms, *encode(record), ()) for record in decision.records]
        if writer is None:
            batch = build_batch(rows)
        else:
            batch = build_batch(
                rows, producer_id=writer.producer_id, producer_epoch=writer.epoch, transactional=True
            )
        try:
            # its own work needs no checking
            header = read_header(batch)
            self.partition.append(memoryview(bytearray(batch)), now, from_client=False, admitted=header)
        except FAULTS as fault:
            self.fail(now, fault)
            return False
        replay = self.machine.replay
        for record in decision.records:
            replay(record, writer)
        return True

    # --- what waits for the high watermark -----------------------------------------------------------------

    @property
    def is_committed(self) -> bool:
        """All that was replayed is; a reply made now could leave now."""
        partition = self.partition
        log = partition.log
        return log is not None and partition.leader.high_watermark >= log.log_end_offset

    @property
    def end_offset(self) -> int:
        log = self.partition.log
        assert log is not None, "a machine lives on an open log"
        return log.log_end_offset

    def _hold(self, decision: Decision) -> None:
        if not self._backlog:
            self.wait_for(self.partition)
        self._backlog.append((self.end_offset, decision))

    def woken(self, now: Now) -> None:
        high_watermark = self.partition.leader.high_watermark
        if self.partition.is_offline or self.partition.is_deleted:
            self._give_up(now, ErrorCode.NOT_COORDINATOR)
            return
        while self._backlog and self._backlog[0][0] <= high_watermark:
            self._release(now, self._backlog.popleft()[1])
        if not self._backlog:
            self.leave()

    def await_commit(self, now: Now, ticket: Any) -> None:
        """Settle the ticket once all that was replayed until now is committed."""
        self._hold(Decision(answers=[(ticket, None)]))

    def _release(self, now: Now, decision: Decision) -> None:
        for ticket, reply in decision.answers:
            ticket.settle(now, reply)
        for effect in decision.effects:
            self._act(now, self, effect)

    # --- trouble -------------------------------------------------------------------------------------------

    def fail(self, now: Now, fault: Exception) -> None:
        """The log could not be written, or not be opened: the machine is made again after a pause."""
        self._reports.report(
            "error",
            "coordinator_append_failed",
            partition=f"{self.partition.topic}-{self.partition.index}",
            error=str(fault),
        )
        self._directories.storage_failed(now, self.partition, fault)
        self._give_up(now, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._reset(Alarm(self._deadlines, now.after_ms(RELOAD_AFTER_MS), self.load))

    def _give_up(self, now: Now, code: ErrorCode) -> None:
        """Throw the machine away; whoever waits is sent to find the coordinator again."""
        self.leave()
        waiting = [ticket for _, decision in self._backlog for ticket, _ in decision.answers]
        self._backlog.clear()
        if self.current is not None:
            waiting += self.current.abandon()
            self.current = None
        for ticket in waiting:
            ticket.refuse(now, code)

    def close(self, now: Now) -> None:
        """The partition is gone, or led elsewhere."""
        self._give_up(now, ErrorCode.NOT_COORDINATOR)
        self._loader = None
        self.is_done = True
        self._reset(None)

    # --- time -----------------------------------------------------------------------------------------------

    def arm(self, now: Now) -> None:
        """One alarm on the node's heap. It may ring too early, when what it was set for was put off."""
        at = self.machine.deadline()
        if at is not None and (self._alarm is None or at < self._alarm.at):
            self._reset(Alarm(self._deadlines, at, self._ring))

    def _reset(self, alarm: "Alarm | None") -> None:
        if self._alarm is not None and not self._alarm.is_done:
            self._alarm.cancel()
        self._alarm = alarm

    def _ring(self, now: Now) -> None:
        self._alarm = None
        machine = self.current
        if machine is None or self._lifecycle.is_stopping:
            return
        for decision in machine.wake(now):
            # what follows from a decision may fail, too, and cost the machine that made them all
            if not self.carry_out(now, decision) or self.current is not machine:
                return
        self.arm(now)


class Alarm:
    """Something to be done at a moment, unless it is cancelled before."""

    __slots__ = ("_act", "_deadlines", "at", "is_done")

    def __init__(self, deadlines: Deadlines, at: Instant, act: Callable[[Now], None]) -> None:
        self._deadlines = deadlines
        self._act = act
        self.at = at
        self.is_done = False
        deadlines.add(at, self)

    def expired(self, now: Now) -> None:
        self.is_done = True
        self._act(now)

    def cancel(self) -> None:
        self.is_done = True
        self._deadlines.cancelled()


def when_all_committed(
    waiting: Waiting,
    request: Request,
    shards: Iterable[Shard[Any]],
    reply: Any,
    refused: Callable[[ErrorCode], Any],
) -> Any:
    """A reply that several shards had a part in: at once when each has committed what it had replayed, and
    otherwise when it has.
    """
    uncommitted = [(shard.partition, shard.end_offset) for shard in shards if not shard.is_committed]
    return Gathered(waiting, request, uncommitted, reply, refused) if uncommitted else reply


class Gathered(Parked):
    __slots__ = ("_refused", "_reply", "_uncommitted")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        uncommitted: list[tuple[Partition, int]],
        reply: Any,
        refused: Callable[[ErrorCode], Any],
    ) -> None:
        super().__init__(waiting, request)
        self._uncommitted = uncommitted
        self._reply = reply
        self._refused = refused
        for partition in {partition: None for partition, _ in uncommitted}:
            self.wait_for(partition)

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        for partition, end in self._uncommitted:
            if partition.is_offline or partition.is_deleted:
                return self._refused(ErrorCode.NOT_COORDINATOR)
            if partition.leader.high_watermark < end:
                return None
        return self._reply
