"""What the calls of a producer do, without waiting: the blocking and the asyncio producer share it.

A call that may have to wait is a generator of steps (`client/steps.py`), which each form of the producer
takes in its own way. The quick part of `send` is not here: a producer appends to the accumulator, and only a
record that was rejected comes to `send`.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Duration, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import (
    ClientError,
    InvalidInput,
    KafkaError,
    RecordLost,
    TimedOut,
    TransactionMustAbort,
)
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer._batch import Batch, Delivery, Waiter
from headrace.client.producer.arguments import Options
from headrace.client.producer.arrow import Slice, slices
from headrace.client.producer.deliveries import TableDelivery
from headrace.client.producer.partitioner import StickyPartitioner, Strategy
from headrace.client.producer.rejections import (
    BufferFull,
    MetadataMissing,
    NotOpen,
    RecordRejected,
    TopicUnknown,
    UnknownPartition,
    error_of,
    unanswered,
)
from headrace.client.producer.sender import Sender
from headrace.client.producer.transaction import MAY_ABORT, State, TransactionFactory
from headrace.client.producer.transaction_session import TransactionSession
from headrace.client.settings.producer import sending_settings, strategy
from headrace.client.steps import Call, Pending, Steps, Wait
from headrace.records._codec import Headers

if TYPE_CHECKING:
    import pyarrow


# Unused capacity may be used later, but at most this much of it: a pause must not end in a burst.
BURST_S = 0.1
# Rows of a table that are appended at once: that takes a few milliseconds, in which no other call runs.
RECORDS_AT_ONCE_MAX = 16_384


class Rate:
    """A fixed rate of one quantity.

    Invariant: over any time span at most rate × (its length + BURST_S) and one share may start.
    """

    __slots__ = ("_next_at", "_per_s")

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._next_at = Instant(float("-inf"))

    @property
    def burst(self) -> float:
        """How much may be sent at once."""
        return self._per_s * BURST_S

    def reserve(self, now: Instant, amount: int) -> Duration:
        """How long to wait before `amount` may be sent; it counts as sent from now on."""
        begins_at = max(self._next_at, now - BURST_S)
        self._next_at = Instant(begins_at + amount / self._per_s)
        return Duration(max(0.0, begins_at - now))


class RateLimit:
    """Records and bytes per second (headrace.rate.records, headrace.rate.bytes); 0 means no limit.

    It is for bulk loads that must not use all of the brokers' capacity. Nothing waits here. `reserve` returns
    how long the caller has to wait before it sends, and reserves its share, so that several senders share the
    rate fairly.
    """

    __slots__ = ("_bytes", "_records")

    def __init__(self, records_per_s: int, bytes_per_s: int) -> None:
        self._records = Rate(records_per_s) if records_per_s else None
        self._bytes = Rate(bytes_per_s) if bytes_per_s else None

    @property
    def is_limited(self) -> bool:
        return self._records is not None or self._bytes is not None

    def records_at_once(self, record_bytes: float) -> int:
        """How many records of this size may be sent at once within the rate; at least one."""
        shares = [float("inf")]
        if self._records is not None:
            shares.append(self._records.burst)
        if self._bytes is not None and record_bytes > 0:
            shares.append(self._bytes.burst / record_bytes)
        return max(1, int(min(RECORDS_AT_ONCE_MAX, *shares)))

    def reserve(self, now: Instant, records: int, size: int) -> Duration:
        """How long to wait before these records may be sent."""
        wait_s = Duration(0.0)
        if self._records is not None:
            wait_s = self._records.reserve(now, records)
        if self._bytes is not None:
            wait_s = max(wait_s, self._bytes.reserve(now, size))
        return wait_s


T = TypeVar("T")

# A call that waits for buffer memory goes on when this share of it is free: 1/8, so that it does not wake for
# each batch that is delivered.
FREE_SHARE = 8

# How often a waiting call checks whether brokers are unreachable, if headrace.unreachable.timeout.ms is set.
CHECK_S = 1.0

_log = logging.getLogger("headrace.producer")


class ProducerCore:
    def __init__(
        self,
        options: Options,
        waiter: Waiter,
        rng: Randomness,
        *,
        clock: Callable[[], Instant],
        wall_ms: Callable[[], int],
        new_transaction: TransactionFactory = TransactionSession,
    ) -> None:
        configuration = options.configuration
        settings = sending_settings(configuration)
        self.max_block_s = configuration.seconds("max.block.ms")
        self.rate_limit = RateLimit(
            configuration.number("headrace.rate.records"), configuration.number("headrace.rate.bytes")
        )
        self.accumulator = Accumulator(
            waiter,
            StickyPartitioner(
                rng, is_adaptive=configuration.flag("partitioner.adaptive.partitioning.enable")
            ),
            strategy=strategy(configuration) if options.partitioner is None else Strategy.CUSTOM,
            partitioner=options.partitioner,
            batch_bytes=configuration.number("batch.size"),
            batch_bytes_max=min(configuration.number("headrace.batch.size.max"), settings.request_bytes_max),
            linger_s=settings.linger_s,
            buffer_bytes=configuration.number("buffer.memory"),
            request_bytes_max=settings.request_bytes_max,
        )
        self.sender = Sender(settings, self.accumulator, Cluster(), rng, new_transaction=new_transaction)
        self.wake: Callable[[], object] = lambda: None  # the driver's, once there is one
        self._waiter = waiter
        self._clock = clock
        self._wall_ms = wall_ms
        for name in configuration.without_effect():
            _log.warning("the setting %s has no effect here", name)

    def metrics(self) -> dict[str, float]:
        return self.sender.metrics.snapshot() | {
            "buffer_bytes": self.accumulator.buffered_bytes,
            "buffer_bytes_max": self.accumulator.buffer_bytes,
        }

    def call_listeners(self) -> None:
        """Calls the callbacks of deliveries that are done; logs what they raise. Called after every turn."""
        for batch in self.sender.take_settled():
            for error in batch.call_listeners():
                _log.error("a delivery callback raised an error", exc_info=error)
        for grown in self.sender.take_events():
            _log.warning(
                "topic %s has %d partitions instead of %d: a key's records may go to another partition now",
                grown.topic,
                grown.after,
                grown.before,
            )

    def _until(self, timeout_s: float | None) -> Instant:
        return NEVER if timeout_s is None else Instant(self._clock() + timeout_s)

    # Records

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Steps[Delivery]:
        """Appends a record as soon as it is accepted; raises why it cannot be."""
        _check_partition(partition)
        at = -1 if partition is None else partition
        stamp = self._wall_ms() if timestamp_ms is None else timestamp_ms

        def append() -> Delivery:
            return self.accumulator.append(self._clock(), topic, key, value, headers, at, stamp)

        return (yield from self._retry_rejected(topic, append))

    def wait_for_rate(self, records: int, size: int) -> Steps[None]:
        """Waits as headrace.rate.records and headrace.rate.bytes demand."""
        now = self._clock()
        wait_s = self.rate_limit.reserve(now, records, size)
        if wait_s:
            yield Wait(lambda: self.sender.is_closed, Instant(now + wait_s))

    def _retry_rejected(self, topic: str, append: Callable[[], T]) -> Steps[T]:
        """Appends as soon as what is appended is accepted; raises why it cannot be."""
        give_up_at = self._until(self.max_block_s)
        is_late = False
        has_refreshed = False
        while True:
            try:
                accepted = append()
            except RecordRejected as rejected:
                reason = rejected
            else:
                break
            if isinstance(reason, UnknownPartition) and not has_refreshed:
                has_refreshed = True  # once: partitions may have been added since
                yield from self._refresh_metadata(topic, give_up_at)
                continue
            error = self._error_of_rejection(reason, topic, is_late)
            if error is not None:
                raise error
            may_go_on = partial(self._may_be_accepted, reason, topic)
            is_late = not (yield from self._wait(may_go_on, give_up_at))
        if self.accumulator.should_wake:
            self.accumulator.should_wake = False
            self.wake()
        return accepted

    def _next_check(self, now: Instant, until: Instant) -> Instant:
        """When a waiting call checks again whether no broker can be reached."""
        reachability = self.sender.reachability
        if reachability.limit_s is None:
            return until
        return min(until, Instant(now + CHECK_S), reachability.give_up_at())

    def _wait(self, is_over: Callable[[], bool], until: Instant) -> Steps[bool]:
        """Whether it was over in time; raises if no broker could be reached for too long."""
        while True:
            now = self._clock()
            if not is_over():
                self.sender.reachability.check(now)
            check_at = self._next_check(now, until)
            if (yield Wait(is_over, check_at)):
                return True
            if check_at >= until:
                return False

    def _outage(self) -> ClientError | None:
        reachability = self.sender.reachability
        return None if reachability.outage is None else reachability.as_error(self._clock())

    def _refresh_metadata(self, topic: str, give_up_at: Instant) -> Steps[None]:
        topics = self.sender.topics
        before = topics.answers
        topics.look_anew(topic)
        yield from self._wait(lambda: topics.answers > before or not self.accumulator.is_open, give_up_at)

    def _error_of_rejection(self, reason: RecordRejected, topic: str, is_late: bool) -> ClientError | None:
        if isinstance(reason, NotOpen):
            self.sender.check_open()
            return None  # it is open again by now
        outage = self._outage() if is_late else None
        return error_of(reason, topic, self.sender.topics, is_late=is_late, outage=outage)

    def _may_be_accepted(self, reason: RecordRejected, topic: str) -> bool:
        """Whether appending the record again may succeed, or give the final error."""
        accumulator = self.accumulator
        if not accumulator.is_open:
            return True
        match reason:
            case MetadataMissing():
                return topic in accumulator.topics or self.sender.topics.refusal(topic) is not None
            case BufferFull():
                needed = max(reason.size, accumulator.buffer_bytes // FREE_SHARE)
                return accumulator.buffered_bytes + needed <= accumulator.buffer_bytes
            case _:
                return True

    def send_table(
        self,
        topic: str,
        table: "pyarrow.Table",
        *,
        value: str,
        key: str | None,
        timestamp: str | None,
        headers: str | None,
        partition: int | str | None,
    ) -> Steps[TableDelivery]:
        """Appends all rows of a table, and waits for buffer memory as often as it must."""
        _check_partition(partition)
        delivery = TableDelivery(topic, self._waiter)
        wish = partition if isinstance(partition, int) else -1
        pieces = slices(
            table,
            value=value,
            key=key,
            timestamp=timestamp,
            headers=headers,
            partition=partition if isinstance(partition, str) else None,
            rows_max=self.rate_limit.records_at_once(table.nbytes / max(1, table.num_rows)),
        )
        while True:
            piece: Slice | None = yield Call(next, (pieces, None))
            if piece is None:
                return delivery
            if self.rate_limit.is_limited:
                yield from self.wait_for_rate(piece.row_count, piece.size)
            first = 0
            while first < piece.row_count:
                try:
                    taken, touched = yield from self._retry_rejected(
                        topic, self._append_rows(topic, piece, first, wish)
                    )
                except Exception as error:  # the partitioner's own, too
                    error.add_note(
                        f"{delivery.records} of {table.num_rows} rows were accepted before this error"
                    )
                    raise
                delivery.add(taken, touched)
                first += taken

    def _append_rows(
        self, topic: str, piece: Slice, first: int, partition: int
    ) -> Callable[[], tuple[int, dict[Batch, int]]]:
        def append() -> tuple[int, dict[Batch, int]]:
            return self.accumulator.append_columns(
                self._clock(),
                topic,
                first,
                piece.row_count,
                piece.keys,
                piece.values,
                piece.timestamps,
                self._wall_ms(),
                partition,
                piece.tails,
                piece.partitions,
            )

        return append

    def partitions_for(self, topic: str, timeout_s: float | None) -> Steps[list[int]]:
        """The partitions of a topic, once its metadata is known."""
        topics, known = self.sender.topics, self.sender.cluster.topics
        topics.want(topic)
        until = self._until(self.max_block_s if timeout_s is None else timeout_s)
        is_known = yield from self._wait(lambda: topic in known or topics.refusal(topic) is not None, until)
        if topic in known:
            return [partition.index for partition in known[topic].partitions]
        cause = topics.error_of(topic)
        if is_known and cause is not None:
            raise cause
        if (outage := self._outage()) is not None:
            raise outage
        if cause is not None and not isinstance(cause, KafkaError):
            raise unanswered(topic, cause)
        raise TopicUnknown(f"topic {topic!r} is not known" + (f": {cause}" if cause else "")) from cause

    # The end

    def flush(self, timeout_s: float | None) -> Steps[None]:
        flush = self.sender.flush()
        is_done = yield Wait(lambda: flush.is_done, self._until(timeout_s))
        if not is_done:
            raise self.timed_out(f"{flush.records_left} records were not delivered within {timeout_s:g} s")

    def timed_out(self, said: str) -> TimedOut:
        """The error of a call whose time is over; its cause is that no broker can be reached, if so."""
        outage = self.sender.reachability.outage
        error = TimedOut(said if outage is None else f"{said}: {outage}")
        error.__cause__ = None if outage is None else outage.error
        return error

    def finish(self, timeout_s: float | None) -> Steps[bool]:
        """Rejects new records, ends an open transaction, and waits; returns whether all was delivered."""
        sender = self.sender
        sender.close()
        until = self._until(timeout_s)
        if isinstance(sender.transaction, TransactionSession):
            # without a timeout, too, this must end: brokers that cannot be reached are asked for ever
            yield from self._end_transaction(sender.transaction, min(until, self._until(self.max_block_s)))
        flush = sender.flush()
        is_done: bool = yield Wait(lambda: flush.is_done, until)
        return is_done

    def _end_transaction(self, transaction: TransactionSession, until: Instant) -> Steps[None]:
        """Waits for a commit that is under way; aborts all else that is open."""
        is_over = True
        while is_over and (transaction.is_ending or transaction.state in MAY_ABORT):
            if transaction.state in MAY_ABORT:
                transaction.abort()
            is_over = yield Wait(lambda: not transaction.is_ending, until)

    def give_up(self) -> None:
        """After the driver has ended: fails all records that are not delivered."""
        self.sender.close()
        self.sender.give_up(RecordLost("the producer was closed before the record was delivered"))

    # Transactions

    @property
    def transaction(self) -> TransactionSession:
        session = self.sender.transaction
        if not isinstance(session, TransactionSession):
            error = InvalidInput("this producer has no transactional.id: it cannot use transactions")
            error.advice = "Set transactional.id to a value that no other producer uses at the same time."
            raise error
        return session

    def init_transactions(self, timeout_s: float | None) -> Steps[None]:
        yield from self._wait_for(self.transaction.init(), timeout_s, "init_transactions")

    def begin_transaction(self, timeout_s: float | None) -> Steps[None]:
        session = self.transaction
        if session.state in (State.UNINITIALIZED, State.INITIALIZING):
            yield from self.init_transactions(timeout_s)
        session.begin()

    def commit_transaction(self, timeout_s: float | None) -> Steps[None]:
        yield from self._wait_for(self.transaction.commit(), timeout_s, "commit_transaction")

    def abort_transaction(self, timeout_s: float | None) -> Steps[None]:
        yield from self._wait_for(self.transaction.abort(), timeout_s, "abort_transaction")

    def end_transaction(self, error: BaseException | None) -> Steps[None]:
        """At the end of a `with` block: commits, or aborts if the block or the commit failed."""
        if error is not None:
            yield from self._roll_back()
            return
        try:
            yield from self.commit_transaction(None)
        except TransactionMustAbort:
            yield from self._roll_back()
            raise

    def _roll_back(self) -> Steps[None]:
        """After an error, which is raised: aborts the transaction, and only logs if that fails."""
        try:
            if self.transaction.state in MAY_ABORT:
                yield from self.abort_transaction(None)
        except ClientError as error:
            _log.warning("the transaction could not be aborted: %s", error)

    def send_offsets(
        self,
        offsets: dict[TopicPartition, CommittedOffset],
        member: GroupMembership,
        timeout_s: float | None,
    ) -> Steps[None]:
        yield from self._wait_for(self.transaction.send_offsets(offsets, member), timeout_s, "send_offsets")

    def _wait_for(self, pending: Pending[None], timeout_s: float | None, call: str) -> Steps[None]:
        until = self._until(self.max_block_s if timeout_s is None else timeout_s)
        if not (yield from self._wait(lambda: pending.is_done, until)):
            late = self.timed_out(f"timed out while {pending.what}")
            late.advice = (
                f"Call {call}() with the same arguments again: it continues to wait for the same operation,"
                " and does not start another one."
            )
            raise late
        self.transaction.taken(pending)
        pending.result()


def _check_partition(partition: object) -> None:
    if isinstance(partition, int) and partition < 0:
        raise InvalidInput(f"partition {partition}: must be at least 0")
