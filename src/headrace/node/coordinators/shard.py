"""Shard: one partition of a coordinator's topic, with its state machine.

The machine decides. The shard appends the machine's records as one batch, replays them at once, and releases
replies, answers and effects when the high watermark has passed everything that was replayed. A client waits
for that no longer than offsets.commit.timeout.ms, as in Kafka. If an append fails, the shard discards the
machine and builds it again from the log, because its memory may hold decisions that are not in the log.

While too few replicas are in sync (min.insync.replicas), nothing is appended. Decisions without records are
carried out as always, and so are questions. A decision with records is undone in the machine, and its client
is refused; what nobody waits for is tried again until it can be written.

A shard lives in one leader epoch of its partition, in which this broker leads it. The log is replayed once
the high watermark has reached the start of the epoch: before, an earlier leader may have committed what this
broker does not know to be committed. When the epoch ends, everything that waits here is refused, because the
same offsets may hold records of another leader by then.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from headrace.base.time import Instant, Now
from headrace.machines.coordination import Caller, CoordinatorMachine, Decision
from headrace.node.coordinators.loader import Loader
from headrace.node.coordinators.postponed import Postponed
from headrace.node.coordinators.uncommitted import Touched, Uncommitted
from headrace.node.error_codes import FAULTS
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.ports import Alarm, Once, Ports
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiter, Waiting
from headrace.protocol.coordinator_records import Kinds, changes, encode_batch
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import read_header
from headrace.storage.errors import StaleProducerEpoch, StorageError
from headrace.storage.log import PartitionLog

# A machine that was discarded is rebuilt after a pause: a full disk stays full for a while.
RELOAD_AFTER_MS = 1_000

# Clients that are refused come back many times a second.
WARN_EVERY_MS = 60_000

M = TypeVar("M", bound=CoordinatorMachine)
P = ParamSpec("P")


def caller(request: Request) -> Caller:
    """The client that asks a coordinator, with its address in Kafka's form."""
    return Caller(request.client_id or "", f"/{request.connection.address}")


class Ticket(Parked):
    """Waits until its coordinator answers, however long a rebalance takes: the machine has the timers."""

    __slots__ = ("_refused", "respond")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        respond: Callable[[Any], Any],
        refused: Callable[[ErrorCode], Any],
    ) -> None:
        super().__init__(waiting, request)
        request.body = None  # it views the connection's buffer, and may have more than was asked for
        self.respond = respond  # makes the response of what the machine answers
        self._refused = refused  # makes the response that carries an error

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        return None

    def settle(self, now: Now, reply: Any) -> None:
        try:
            self.waiting.answer(now, self, self.respond(reply))
        except Exception:
            self.failed()
            raise

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
        "_expiry",
        "_lifecycle",
        "_loader",
        "_make",
        "_make_loader",
        "_reports",
        "_waiting",
        "_warns_at",
        "_was_loaded",
        "commit_timeout_ms",
        "current",
        "epoch",
        "kinds",
        "loads",
        "partition",
        "postponed",
        "uncommitted",
    )

    def __init__(
        self,
        partition: Partition,
        kinds: Kinds,
        make: Callable[[Partition], M],
        act: "Callable[[Now, Shard[M], Any], None]",
        make_loader: "Callable[[Shard[M], PartitionLog, M], Loader]",
        was_loaded: "Callable[[Now, Shard[M]], None]",
        directories: LogDirectories,
        ports: Ports,
        commit_timeout_ms: int,
        touched: Touched | None = None,
    ) -> None:
        super().__init__()
        self.uncommitted = Uncommitted(touched)
        self._directories = directories
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._waiting = ports.waiting
        self.partition = partition
        self.epoch = partition.leader_epoch  # the leader epoch in which it lives
        self.kinds = kinds
        self._make = make
        self._act = act  # carries out the effects of a decision, once it is committed
        self.commit_timeout_ms = commit_timeout_ms
        # end offset, what waits for it, and until when clients do
        self._backlog: deque[tuple[int, Decision, Instant]] = deque()
        self._expiry: Alarm | None = None  # of clients in the backlog; it may ring too early
        # changes that nobody waits for; void with the machine
        self.postponed = Postponed(ports.deadlines, self)
        self._warns_at = Instant(0.0)  # not before
        self._alarm: Alarm | None = None
        self._make_loader = make_loader
        self._was_loaded = was_loaded  # told once there is a machine
        self._loader: Loader | None = None
        self.current: M | None = None  # None: not loaded
        self.loads = 0  # how often it was

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
        if self._lifecycle.is_stopping or self.is_done:
            return
        partition = self.partition
        if self._loader is None and self.current is None and not partition.is_offline:
            try:
                log = partition.opened(now)
            except StorageError as fault:
                self.disk_refused(now, fault)
                return
            leader = partition.leader
            if leader is None or not leader.has_reached_epoch_start:
                self.wait_for(partition)
                return
            self._loader = self._make_loader(self, log, self.fresh_machine())
            self._loader.go_on(now)

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads the partition in the shard's epoch."""
        partition = self.partition
        return partition.is_led_here and partition.leader_epoch == self.epoch and not partition.is_deleted

    def fresh_machine(self) -> M:
        """A machine without any state."""
        return self._make(self.partition)

    def loaded(self, now: Now, machine: M) -> None:
        self._loader = None
        self.current = machine
        self.uncommitted.everything(self.end_offset)
        self.loads += 1
        self.carry_out(now, machine.loaded(now))
        if self.current is machine:
            self._was_loaded(now, self)

    def disk_refused(self, now: Now, fault: Exception) -> None:
        """The log cannot be read now: where the disk is full, or its name still has files of a topic that was
        deleted, it is tried again after a while; where its directory is offline, so is this coordinator.
        """
        self._directories.storage_failed(now, self.partition, fault)
        self.load_failed(now)
        if not self.partition.is_offline and not self.is_done:
            self._reset(Alarm(self._deadlines, now.after_ms(RELOAD_AFTER_MS), self.load))

    def load_failed(self, now: Now) -> None:
        """The log cannot be replayed: this coordinator refuses all requests."""
        self._loader = None

    @property
    def refusal(self) -> ErrorCode:
        """Why requests are refused while there is no machine."""
        if self._loader is not None or self.waits_for:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    # --- decisions ---------------------------------------------------------------------------------------

    @property
    def can_write(self) -> bool:
        """Whether enough replicas are in sync for records to be appended (min.insync.replicas)."""
        leader = self.partition.leader
        return leader is None or leader.has_enough(self.partition.min_insync_replicas)

    def decide(
        self,
        now: Now,
        key: str,
        method: Callable[Concatenate[Now, P], Decision],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> Decision | ErrorCode:
        """What a method of the machine decides about the key; an error if that would have to be written, and
        cannot be. Then the machine is as it was before.
        """
        if self.can_write:
            return method(now, *arguments, **options)
        decision = self.machine.decide_or_undo(key, partial(method, now, *arguments, **options))
        return self._lack_replicas(now) if decision.records else decision

    def if_writable(self, now: Now, decision: Decision) -> Decision | ErrorCode:
        """The same for a decision that is made, if there is nothing to undo: making it has changed no memory
        but sessions. This is so for offsets, and spares large groups a copy for each commit.
        """
        return self._lack_replicas(now) if decision.records and not self.can_write else decision

    def answer(
        self,
        request: Request,
        decision: Decision | ErrorCode,
        respond: Callable[[Any], Any],
        refused: Callable[[ErrorCode], Any],
        ticket: Ticket | None = None,
    ) -> Any:
        """The response to the request, or the ticket with which it is parked. `respond` makes a response of
        the machine's reply, `refused` of an error, which may be what `decide` returned.
        """
        if isinstance(decision, ErrorCode):
            return refused(decision)
        now = request.now
        if decision.records and (code := self._append(now, decision)):
            return refused(code)
        self.arm(now)
        reply = decision.reply
        if decision.answers and ticket is not None and reply is None:
            reply = self._own_answer(decision, ticket)
        if self.is_committed:
            if decision.answers or decision.effects:
                self._release(now, decision)
            return ticket if reply is None else respond(reply)
        if reply is not None:
            ticket = ticket or Ticket(self._waiting, request, respond, refused)
            decision.answers.append((ticket, reply))
        self._hold(now, decision)
        return ticket

    def carry_out(self, now: Now, decision: Decision) -> bool:
        """Carries out a decision without a request; False if its records could not be written."""
        return self.write(now, decision) is ErrorCode.NONE

    def write(self, now: Now, decision: Decision) -> ErrorCode:
        """The same, and why its records could not be written."""
        if decision.records and (code := self._append(now, decision)):
            return code
        self.arm(now)
        if self.is_committed:
            self._release(now, decision)
        else:
            self._hold(now, decision)
        return ErrorCode.NONE

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
            self.uncommitted.everything(self.end_offset)
            self.current.replay_end(producer_id, is_committed)

    def _append(self, now: Now, decision: Decision) -> ErrorCode:
        """NONE: the records are in the log, and replayed."""
        if not self.can_write:  # this was so when it was decided: the machine's memory may hold the decision
            self._discard(now)
            return self._lack_replicas(now)
        writer = decision.writer
        if writer is None:
            batch = encode_batch(decision.records, now.wall_ms)
        else:
            batch = encode_batch(decision.records, now.wall_ms, writer.producer_id, writer.epoch)
        try:
            # its own work needs no checking
            header = read_header(batch)
            self.partition.append(memoryview(bytearray(batch)), now, from_client=False, validated=header)
        except StaleProducerEpoch:
            # the writer was fenced: nothing was written, and what the machine knows is not in doubt
            return ErrorCode.INVALID_PRODUCER_EPOCH
        except FAULTS as fault:
            self.fail(now, fault)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self.is_committed:
            end, high_watermark = self.end_offset, self.partition.high_watermark
            self.uncommitted.written(self.machine, changes(decision.records), end, high_watermark)
        replay = self.machine.replay
        for change in changes(decision.records):
            replay(change, writer)
        return ErrorCode.NONE

    # --- what waits for the high watermark -----------------------------------------------------------------

    @property
    def is_committed(self) -> bool:
        """Whether everything that was replayed is committed: a reply that is made now could leave now."""
        log, leader = self.partition.log, self.partition.leader
        return log is not None and leader is not None and leader.high_watermark >= log.log_end_offset

    @property
    def end_offset(self) -> int:
        log = self.partition.log
        assert log is not None, "a machine lives on an open log"
        return log.log_end_offset

    def _hold(self, now: Now, decision: Decision) -> None:
        if not self._backlog:
            self.wait_for(self.partition)
        until = now.after_ms(self.commit_timeout_ms)
        self._backlog.append((self.end_offset, decision, until))
        if decision.answers and self._expiry is None:
            self._expiry = Alarm(self._deadlines, until, self._refuse_late)

    def _refuse_late(self, now: Now) -> None:
        """Refuses requests that have waited for replicas long enough. Their records stay in the log, and
        effects still wait: both may still be committed.
        """
        self._expiry = None
        late: list[Any] = []
        kept: deque[tuple[int, Decision, Instant]] = deque()
        for held in self._backlog:
            _, decision, until = held
            if until <= now.mono:
                late += [ticket for ticket, _ in decision.answers]
                decision.answers = []
            if decision.answers or decision.effects:
                kept.append(held)
        self._backlog = kept
        next_at = next((until for _, decision, until in kept if decision.answers), None)
        if next_at is not None:
            self._expiry = Alarm(self._deadlines, next_at, self._refuse_late)
        if not kept and self.current is not None:
            self.leave()
        self._refuse_all(now, late, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def woken(self, now: Now) -> None:
        if not self.is_led or self.partition.is_offline:
            self._give_up(now, ErrorCode.NOT_COORDINATOR)
            return
        if self.current is None:
            self.leave()
            self.load(now)
            return
        high_watermark = self.partition.high_watermark
        while self._backlog and self._backlog[0][0] <= high_watermark:
            self._release(now, self._backlog.popleft()[1])
        if not self._backlog:
            self.leave()

    def await_commit(self, now: Now, ticket: Any) -> None:
        """Answers the ticket when everything that was replayed until now is committed."""
        self._hold(now, Decision(answers=[(ticket, None)]))

    def _release(self, now: Now, decision: Decision) -> None:
        for ticket, reply in decision.answers:
            try:
                ticket.settle(now, reply)
            except Exception as error:
                # a mistake of ours costs this one answer, and neither the others nor what follows from them
                Once(self._deadlines, now.mono, partial(raised, error))
        if decision.effects:
            self._act(now, self, decision.effects)

    # --- trouble -------------------------------------------------------------------------------------------

    def _lack_replicas(self, now: Now) -> ErrorCode:
        """The error instead of an append, and a warning: after an append, clients would wait for replicas
        that may never come back.
        """
        if now.mono >= self._warns_at:
            self._warns_at = now.after_ms(WARN_EVERY_MS)
            self._reports.report(
                "warning",
                "coordinator_lacks_replicas",
                partition=f"{self.partition.topic}-{self.partition.index}",
                advice="too few replicas are in sync (min.insync.replicas): start the other brokers",
            )
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def fail(self, now: Now, fault: Exception) -> None:
        """The log could not be written, or not be opened: the machine is made again after a pause."""
        self._reports.report(
            "error",
            "coordinator_append_failed",
            partition=f"{self.partition.topic}-{self.partition.index}",
            error=str(fault),
        )
        self._directories.storage_failed(now, self.partition, fault)
        self._discard(now)

    def _discard(self, now: Now) -> None:
        self._give_up(now, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._reset(Alarm(self._deadlines, now.after_ms(RELOAD_AFTER_MS), self.load))

    def _give_up(self, now: Now, code: ErrorCode) -> None:
        """Discards the machine; waiting clients get an error and look for the coordinator again."""
        self.leave()
        waiting = [ticket for _, decision, _ in self._backlog for ticket, _ in decision.answers]
        self._backlog.clear()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self.postponed.clear()
        if self.current is not None:
            waiting += self.current.abandon()
            self.current = None
        self._refuse_all(now, waiting, code)

    def _refuse_all(self, now: Now, tickets: list[Any], code: ErrorCode) -> None:
        for ticket in tickets:
            try:
                ticket.refuse(now, code)
            except Exception as error:  # the others are told all the same
                Once(self._deadlines, now.mono, partial(raised, error))

    def close(self, now: Now) -> None:
        """Ends the shard: the partition was deleted, or its leader epoch is over."""
        self._give_up(now, ErrorCode.NOT_COORDINATOR)
        self._loader = None
        self.is_done = True
        self._reset(None)

    # --- time -----------------------------------------------------------------------------------------------

    def arm(self, now: Now) -> None:
        """Sets the shard's one entry in the node's heap of deadlines. It may expire too early if the deadline
        was postponed.
        """
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
        for decision in machine.wake(now, can_write=self.can_write):
            # what follows from a decision may fail, too, and cost the machine that made them all
            if not self.carry_out(now, decision) or self.current is not machine:
                return
        self.arm(now)


def raised(error: Exception, now: Now) -> None:
    """Raises the error in a call of its own, so that it affects nothing else."""
    raise error
