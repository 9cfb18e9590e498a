"""The gate in front of a partition's log: where batches wait that cannot be appended at once.

Most never see it. A batch that has to be looked at elsewhere first (opened by a job, or awaited by the
coordinator of its transaction) closes the gate, and every later one queues behind it, whatever it needs
itself and whichever connection it came by: batches reach the log in the order in which they came. A request
whose batch waits here is parked, or has no answer to wait for (acks=0). What happens to the request does
not concern its batch: a client that hangs up has sent it. The one exception is the client's timeout, which
withdraws a batch that is not in the log yet.

A held batch counts its open checks: whoever starts one raises `open_checks` and reports back with `checked`.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.limits import HELD_BYTES_MAX, HELD_OVERHEAD_BYTES
from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.faults import FAULTS, Refused, refusal_of
from headrace.node.log_directories import LogDirectories
from headrace.node.metrics import Metrics
from headrace.node.ports import Ports
from headrace.node.waiting import Waitable
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import BatchHeader
from headrace.storage.admission import AdmitJob, Admitted
from headrace.storage.appending import Appended
from headrace.storage.errors import MustBeOpenedFirst, is_transient

if TYPE_CHECKING:
    from headrace.node.partition import Partition

LANE = "admission"

# What is let through in one go once the way is free: about a millisecond's worth. The rest follows when
# others had their turn.
BATCHES_AT_ONCE = 16
BYTES_AT_ONCE = 2 * 1024 * 1024
PAUSE_MS = 1


class Permit(Protocol):
    """Asked before a batch is appended, and again whenever it had to wait."""

    def ask(self, now: Now, /) -> "Commit | None":
        """None: append it now. A commit: ask again after it. Refused: never."""
        ...


class Commit(Protocol):
    def await_commit(self, now: Now, ticket: Any, /) -> None: ...


class CommitAwaited:
    """Brings a held batch back to the front of its queue, where it asks again."""

    __slots__ = ("_gate", "_held")

    def __init__(self, gate: "PartitionGate", held: "HeldBatch") -> None:
        self._gate = gate
        self._held = held

    def settle(self, now: Now, reply: Any) -> None:
        self._gate.checked(now, self._held)

    def refuse(self, now: Now, code: ErrorCode) -> None:
        """Whoever was to commit it is gone: the producer tries again."""
        self._gate.checked(now, self._held, Refused(ErrorCode.NOT_ENOUGH_REPLICAS))


class HeldBatch(Waitable):
    """A batch in front of its log. Who waits for it is woken once its outcome is known."""

    __slots__ = (
        "admitted",
        "closes_if_refused",
        "connection",
        "is_counted",
        "open_checks",
        "outcome",
        "permit",
        "records",
        "weight",
    )

    def __init__(
        self,
        connection: Connection,
        records: memoryview,
        *,
        closes_if_refused: bool,
        permit: Permit | None = None,
    ) -> None:
        super().__init__()
        self.connection = connection
        self.records = bytearray(records)  # our own: the view is of the connection's buffer
        self.weight = len(records) + HELD_OVERHEAD_BYTES
        self.closes_if_refused = closes_if_refused  # acks=0: there is no other way to tell
        self.permit = permit  # of a transactional batch
        self.open_checks = 0
        self.admitted: BatchHeader | None = None  # what a job found; None: the log looks itself
        self.outcome: Appended | Refused | None = None
        self.is_counted = False


class HeldBatches:
    """How many batches wait in front of all logs of the node, and how much memory they may take."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0

    def has_room(self, size: int) -> bool:
        return self.bytes + size <= HELD_BYTES_MAX

    def add(self, weight: int) -> None:
        self.count += 1
        self.bytes += weight

    def remove(self, weight: int) -> None:
        self.count -= 1
        self.bytes -= weight


class Gates:
    """Makes the gates of all partitions of a broker. `held` counts what waits at all of them."""

    __slots__ = ("_directories", "_metrics", "_ports", "held")

    def __init__(self, directories: LogDirectories, ports: Ports, metrics: Metrics) -> None:
        self._directories = directories
        self._ports = ports
        self._metrics = metrics
        self.held = HeldBatches()

    def make(self, partition: "Partition") -> "PartitionGate":
        return PartitionGate(partition, self.held, self._directories, self._ports, self._metrics)


class PartitionGate:
    __slots__ = (
        "_deadlines",
        "_directories",
        "_held",
        "_is_pausing",
        "_jobs",
        "_lifecycle",
        "_metrics",
        "_partition",
        "_queue",
        "_reports",
        "_waiting",
        "is_done",
    )

    def __init__(
        self,
        partition: "Partition",
        held: HeldBatches,
        directories: LogDirectories,
        ports: Ports,
        metrics: Metrics,
    ) -> None:
        self._partition = partition
        self._held = held
        self._directories = directories
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._waiting = ports.waiting
        self._metrics = metrics
        self._queue: deque[HeldBatch] = deque()
        self._is_pausing = False
        self.is_done = False  # as an entry of the deadlines: it may always have to pause again

    def has_room(self, records: memoryview) -> bool:
        return self._held.has_room(len(records) + HELD_OVERHEAD_BYTES)

    def hold(self, now: Now, held: HeldBatch, *, must_be_opened: bool = False) -> None:
        """Close the gate, or queue behind those for whom it is closed. What must be opened is opened at once,
        not when its turn comes.
        """
        self._held.add(held.weight)
        held.connection.held_bytes += held.weight
        held.is_counted = True
        self._queue.append(held)
        self._partition.gate_moved(is_closed=True)
        if must_be_opened:
            self._open(now, held)
        self._let_through(now)

    def checked(self, now: Now, held: HeldBatch, refusal: Refused | None = None) -> None:
        """One of the batch's checks came back."""
        held.open_checks -= 1
        if refusal is not None and held.outcome is None:
            self._queue.remove(held)
            self._conclude(held, refusal)
        self._discount(now, held)
        self._let_through(now)

    def withdraw(self, now: Now, held: HeldBatch) -> None:
        """Its client has waited long enough and is told so: it will not be appended."""
        if held.outcome is None:
            self._queue.remove(held)
            self._conclude(held, Refused(ErrorCode.REQUEST_TIMED_OUT))
            self._discount(now, held)
            self._let_through(now)

    def refuse_all(self, now: Now, code: ErrorCode) -> None:
        """The log is gone."""
        queue, self._queue = self._queue, deque()
        for held in queue:
            self._conclude(held, Refused(code))
            self._discount(now, held)
        self._partition.gate_moved(is_closed=False)

    def expired(self, now: Now) -> None:
        """Others had their turn."""
        self._is_pausing = False
        self._let_through(now)

    # --- inside ------------------------------------------------------------------------------------------

    def _let_through(self, now: Now) -> None:
        """Append what is ready at the front, unless that is to go on after a pause."""
        if self._is_pausing:
            return
        batches = size = 0
        while self._queue and not self._queue[0].open_checks:
            if batches >= BATCHES_AT_ONCE or size >= BYTES_AT_ONCE:
                self._is_pausing = True
                self._deadlines.add(now.after_ms(PAUSE_MS), self)
                return
            held = self._queue[0]
            batches += 1
            size += len(held.records)
            self._append(now, held)
        if not self._queue:
            self._partition.gate_moved(is_closed=False)

    def _append(self, now: Now, held: HeldBatch) -> None:
        """The front of the queue; it stays there if it turns out that it has to be opened."""
        partition = self._partition
        outcome: Appended | Refused
        failure: Exception | None = None
        if not partition.is_led_here:
            outcome = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            try:
                awaited = held.permit.ask(now) if held.permit is not None else None
                if held.outcome is not None:
                    return  # asking took the directory offline, and the whole queue was refused
                if awaited is not None:
                    held.open_checks += 1
                    awaited.await_commit(now, CommitAwaited(self, held))
                    return
                outcome = partition.append(memoryview(held.records), now, admitted=held.admitted)
            except Refused as refusal:
                outcome = refusal
            except MustBeOpenedFirst:
                self._open(now, held)
                return
            except FAULTS as fault:
                outcome = refusal_of(fault)
                failure = fault
            else:
                self._metrics.produced_batches += 1
                self._metrics.produced_bytes += len(held.records)
        if held.outcome is not None:
            return  # the same: the refusal that asking ended with was told already
        self._queue.popleft()
        self._conclude(held, outcome)
        self._discount(now, held)
        if failure is not None:
            self._directories.storage_failed(now, partition, failure)

    def _open(self, now: Now, held: HeldBatch) -> None:
        """Have it opened and checked where that holds up nobody."""
        held.open_checks += 1
        partition = self._partition

        def finished(now: Now, result: Any) -> None:
            if self._lifecycle.is_halted:
                return
            refusal = None
            if isinstance(result, Admitted):
                held.records = held.records if result.batch is None else result.batch
                held.admitted = result.header
            elif isinstance(result, FAULTS):
                refusal = refusal_of(result)
            else:  # the job itself failed: no process could be started, or it was killed
                self._reports.report("error", "admission_failed", error=repr(result))
                is_passing = isinstance(result, OSError) and is_transient(result)
                code = ErrorCode.KAFKA_STORAGE_ERROR if is_passing else ErrorCode.UNKNOWN_SERVER_ERROR
                refusal = Refused(code, f"the broker could not decompress and check the batch: {result}")
            self.checked(now, held, refusal)

        name = f"{partition.topic}-{partition.index}"
        job = AdmitJob(held.records, partition.config, now.wall_ms, name)
        self._jobs.run(partition.directory, LANE, job, finished)

    def _conclude(self, held: HeldBatch, outcome: Appended | Refused) -> None:
        held.outcome = outcome
        if isinstance(outcome, Refused) and held.closes_if_refused and not held.connection.is_closed:
            self._reports.close(held.connection, f"produce with acks=0 failed: {outcome.code.name}")
        self._waiting.wake(held)

    def _discount(self, now: Now, held: HeldBatch) -> None:
        """Its memory is free once nobody looks at it any more."""
        if held.outcome is None or held.open_checks or not held.is_counted:
            return
        held.is_counted = False
        connection = held.connection
        was_full = connection.is_full
        connection.held_bytes -= held.weight
        self._held.remove(held.weight)
        if was_full and not connection.is_full and not connection.is_closed:
            self._reports.let_proceed(connection)
