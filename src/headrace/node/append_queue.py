"""The append queue of a partition: batches that have to wait before they are appended.

Most batches do not use it. A batch waits while another part of the node checks it (a job decompresses it, or
the coordinator of its transaction confirms the transaction), or while it is written in pieces because it is
large. Every later batch, from any connection, waits behind it, so that batches reach the log in the order in
which they arrived. The request of a waiting batch is parked, or gets no answer (acks=0). The batch is
appended even if its client disconnects. There is one exception: if the client's timeout is over before the
batch is in the log, the batch is withdrawn.

A held batch counts its open checks: the code that starts a check raises `open_checks`, and ends it with
`checked`.
"""

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.limits import HELD_BYTES_MAX, HELD_OVERHEAD_BYTES
from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.error_codes import FAULTS, Refused, refusal_of
from headrace.node.log_directories import LogDirectories
from headrace.node.metrics import Metrics
from headrace.node.ports import Ports
from headrace.node.waiting import Waitable
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import BatchHeader
from headrace.storage.appending import Appended
from headrace.storage.batch_validation import ValidateBatchJob, ValidatedBatch
from headrace.storage.errors import MustBeOpenedFirst, is_transient
from headrace.storage.writing_ahead import LARGE_BYTES

if TYPE_CHECKING:
    from headrace.node.partition import Partition

QUEUE = "validation"

# What is let through in one go once the way is free: about a millisecond's worth. The rest follows when
# others had their turn.
BATCHES_AT_ONCE = 16
BYTES_AT_ONCE = 2 * 1024 * 1024
PAUSE_MS = 1
TURN_MS = 0.01  # no pause but for one turn of the loop: what is due now is done in this turn


class Permit(Protocol):
    """A check before a batch is appended, which is repeated whenever the batch had to wait."""

    def ask(self, now: Now, /) -> "Commit | None":
        """None: append the batch now. A commit: ask again after it. Raises Refused: do not append it."""
        ...

    def drop(self) -> None:
        """The batch was appended or refused: nobody will ask again."""
        ...


class Commit(Protocol):
    def await_commit(self, now: Now, ticket: Any, /) -> None: ...


class CommitAwaited:
    """Continues a held batch when a commit is done: the batch asks its permit again."""

    __slots__ = ("_append_queue", "_held")

    def __init__(self, queue: "AppendQueue", held: "HeldBatch") -> None:
        self._append_queue = queue
        self._held = held

    def settle(self, now: Now, reply: Any) -> None:
        self._append_queue.checked(now, self._held)

    def refuse(self, now: Now, code: ErrorCode) -> None:
        """The coordinator that was to commit was discarded: the producer has to retry."""
        self._append_queue.checked(now, self._held, Refused(ErrorCode.NOT_ENOUGH_REPLICAS))


class HeldBatch(Waitable):
    """A batch that waits for its append. Its waiters are woken when the outcome is known."""

    __slots__ = (
        "closes_if_refused",
        "connection",
        "is_counted",
        "keeps_frame",
        "open_checks",
        "outcome",
        "permit",
        "records",
        "validated",
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
        # A large one stays in the connection's buffer, if it may: to copy ten megabytes takes some 6 ms.
        self.keeps_frame = connection.frames_stay and len(records) >= LARGE_BYTES and not records.readonly
        self.records: bytearray | memoryview = records if self.keeps_frame else bytearray(records)
        self.weight = len(records) + HELD_OVERHEAD_BYTES
        self.closes_if_refused = closes_if_refused  # acks=0: there is no other way to tell
        self.permit = permit  # of a transactional batch
        self.open_checks = 0
        self.validated: BatchHeader | None = None  # what a job found; None: the log looks itself
        self.outcome: Appended | Refused | None = None
        self.is_counted = False


class HeldBatches:
    """How many batches wait in all append queues of the node, and how much memory they may use. A batch that
    was withdrawn or refused uses memory until its checks have ended.
    """

    __slots__ = ("bytes", "count", "undecided")

    def __init__(self) -> None:
        self.count = 0  # that take memory
        self.undecided = 0  # of these: that may still be appended
        self.bytes = 0

    def has_room(self, size: int) -> bool:
        return self.bytes + size <= HELD_BYTES_MAX

    def add(self, weight: int) -> None:
        self.count += 1
        self.undecided += 1
        self.bytes += weight

    def remove(self, weight: int) -> None:
        self.count -= 1
        self.bytes -= weight


class AppendQueues:
    """Makes the append queues of all partitions of a broker. `held` counts what waits at all of them."""

    __slots__ = ("_directories", "_metrics", "_ports", "held")

    def __init__(self, directories: LogDirectories, ports: Ports, metrics: Metrics) -> None:
        self._directories = directories
        self._ports = ports
        self._metrics = metrics
        self.held = HeldBatches()

    def make(self, partition: "Partition") -> "AppendQueue":
        return AppendQueue(partition, self.held, self._directories, self._ports, self._metrics)


class AppendQueue:
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
        """Put the batch at the end of the queue. What must be opened is opened at once,
        not when its turn comes.
        """
        self._held.add(held.weight)
        held.connection.held_bytes += held.weight
        held.connection.kept_frames += held.keeps_frame
        held.is_counted = True
        self._queue.append(held)
        self._partition.set_has_queue(True)
        if must_be_opened:
            self._open(now, held)
        self._let_through(now)

    def checked(self, now: Now, held: HeldBatch, refusal: Refused | None = None) -> None:
        """One of the batch's checks is done."""
        held.open_checks -= 1
        if refusal is not None and held.outcome is None:
            self._queue.remove(held)
            self._conclude(held, refusal)
        self._discount(now, held)
        self._let_through(now)

    def withdraw(self, now: Now, held: HeldBatch) -> None:
        """Removes a batch whose request has timed out: it is not appended."""
        if held.outcome is None:
            self._queue.remove(held)
            self._conclude(held, Refused(ErrorCode.REQUEST_TIMED_OUT))
            self._discount(now, held)
            self._let_through(now)

    def refuse_all(self, now: Now, code: ErrorCode) -> None:
        """Refuses all waiting batches: this log will not get them."""
        queue, self._queue = self._queue, deque()
        for held in queue:
            self._conclude(held, Refused(code))
            self._discount(now, held)
        self._partition.set_has_queue(False)

    def expired(self, now: Now) -> None:
        """The pause is over."""
        self._is_pausing = False
        self._let_through(now)

    # --- inside ------------------------------------------------------------------------------------------

    def _let_through(self, now: Now) -> None:
        """Appends the batches at the front that are ready, unless a pause is due."""
        if self._is_pausing:
            return
        batches = size = 0
        while self._queue and not self._queue[0].open_checks:
            if batches >= BATCHES_AT_ONCE or size >= BYTES_AT_ONCE:
                self._pause(now, PAUSE_MS)
                return
            held = self._queue[0]
            if len(held.records) >= LARGE_BYTES and not self._is_written(now, held):
                self._pause(now, TURN_MS)
                return
            batches += 1
            size += len(held.records)
            self._append(now, held)
        if not self._queue:
            self._partition.set_has_queue(False)

    def _pause(self, now: Now, pause_ms: float) -> None:
        self._is_pausing = True
        self._deadlines.add(now.after_ms(pause_ms), self)

    def _is_written(self, now: Now, held: HeldBatch) -> bool:
        """Writes the next piece of a large batch. True: only the last is left, or it will be refused."""
        partition = self._partition
        leader, log = partition.leader, partition.log
        if leader is None or log is None:
            return True
        try:
            return log.write_ahead(memoryview(held.records), wall_ms=now.wall_ms, leader_epoch=leader.epoch)
        except FAULTS:
            return True  # the append meets the same fault, or none any more

    def _append(self, now: Now, held: HeldBatch) -> None:
        """Appends the batch at the front of the queue. It stays there if it has to be opened first."""
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
                records = memoryview(held.records)
                validated = held.validated
                if validated is None and partition.log is not None:
                    validated = partition.log.checked_ahead(records)
                outcome = partition.append(records, now, validated=validated)
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
        """Starts a job that opens and checks the batch in another process."""
        held.open_checks += 1
        partition = self._partition

        def finished(now: Now, result: Any) -> None:
            if self._lifecycle.is_halted:
                return
            refusal = None
            if isinstance(result, ValidatedBatch):
                held.records = held.records if result.batch is None else result.batch
                held.validated = result.header
            elif isinstance(result, FAULTS):
                refusal = refusal_of(result)
            else:  # the job itself failed: no process could be started, or it was killed
                self._reports.report("error", "batch_validation_failed", error=repr(result))
                is_passing = isinstance(result, OSError) and is_transient(result)
                code = ErrorCode.KAFKA_STORAGE_ERROR if is_passing else ErrorCode.UNKNOWN_SERVER_ERROR
                refusal = Refused(code, f"the broker could not decompress and check the batch: {result}")
            self.checked(now, held, refusal)

        name = f"{partition.topic}-{partition.index}"
        if isinstance(held.records, memoryview):
            held.records = bytearray(held.records)  # what goes to another process is copied in any case
        job = ValidateBatchJob(held.records, partition.config, now.wall_ms, name)
        self._jobs.run(partition.directory, QUEUE, job, finished)

    def _conclude(self, held: HeldBatch, outcome: Appended | Refused) -> None:
        held.outcome = outcome
        if len(held.records) >= LARGE_BYTES:
            self._forget_pieces()
        self._held.undecided -= 1
        if held.permit is not None:
            held.permit.drop()
        if isinstance(outcome, Refused) and held.closes_if_refused and not held.connection.is_closed:
            self._reports.close(held.connection, f"produce with acks=0 failed: {outcome.code.name}")
        self._waiting.wake(held)

    def _forget_pieces(self) -> None:
        """Of a batch that is not appended: it was refused, or is in the log already."""
        log = self._partition.log
        if log is not None:
            with suppress(*FAULTS):  # the next write to the log meets the same fault
                log.stop_writing_ahead()

    def _discount(self, now: Now, held: HeldBatch) -> None:
        """Subtracts the batch's memory when the batch is no longer used."""
        if held.outcome is None or held.open_checks or not held.is_counted:
            return
        held.is_counted = False
        connection = held.connection
        was_full = connection.is_full
        connection.held_bytes -= held.weight
        connection.kept_frames -= held.keeps_frame
        self._held.remove(held.weight)
        if was_full and not connection.is_full and not connection.is_closed:
            self._reports.let_proceed(connection)
