"""A producer without its waiting: what the shells for threads and for asyncio have in common.

Calls that may have to wait are steps (see `client.steps`), which each shell takes in its own way. `send`
itself is not here: a shell appends to the accumulator, and only what is not taken at once comes to `sent`.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import ClientError, InvalidInput, KafkaError, RecordLost, TimedOut
from headrace.client.membership.events import CommittedOffset
from headrace.client.pending import Pending
from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer._batch import Batch, Delivery, Waiter
from headrace.client.producer.arrow import Slice, slices
from headrace.client.producer.options import Options
from headrace.client.producer.pace import Pace
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
from headrace.client.producer.sending import Sending
from headrace.client.producer.table_delivery import TableDelivery
from headrace.client.producer.transaction import Transact
from headrace.client.producer.transaction_requests import GroupMembership
from headrace.client.producer.transaction_session import TransactionSession
from headrace.client.producer.transaction_states import State
from headrace.client.settings.producer import sending_settings, strategy
from headrace.client.steps import Call, Steps, Wait
from headrace.records._codec import Headers

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

# Whoever waited for room goes on when this part of the buffer is free, so that it does not wake for each
# batch that leaves.
ROOM_SHARE = 8

# How often a call that waits sees whether brokers are out of reach, if it is to end because of that.
LOOK_S = 1.0

_log = logging.getLogger("headrace.producer")


class Outbox:
    def __init__(
        self,
        options: Options,
        waiter: Waiter,
        dice: Dice,
        *,
        clock: Callable[[], Instant],
        wall_ms: Callable[[], int],
        transact: Transact = TransactionSession,
    ) -> None:
        configuration = options.configuration
        settings = sending_settings(configuration)
        self.max_block_s = configuration.seconds("max.block.ms")
        self.pace = Pace(
            configuration.number("headrace.rate.records"), configuration.number("headrace.rate.bytes")
        )
        self.accumulator = Accumulator(
            waiter,
            StickyPartitioner(
                dice, is_adaptive=configuration.flag("partitioner.adaptive.partitioning.enable")
            ),
            strategy=strategy(configuration) if options.partitioner is None else Strategy.CUSTOM,
            partitioner=options.partitioner,
            batch_bytes=configuration.number("batch.size"),
            batch_bytes_max=min(configuration.number("headrace.batch.size.max"), settings.request_bytes_max),
            linger_s=settings.linger_s,
            buffer_bytes=configuration.number("buffer.memory"),
            request_bytes_max=settings.request_bytes_max,
        )
        self.sending = Sending(settings, self.accumulator, Cluster(), dice, transact=transact)
        self.wake: Callable[[], object] = lambda: None  # the driver's, once there is one
        self._waiter = waiter
        self._clock = clock
        self._wall_ms = wall_ms
        for name in configuration.without_effect():
            _log.warning("the setting %s has no effect here", name)

    def metrics(self) -> dict[str, float]:
        return self.sending.meter.snapshot() | {
            "buffer_bytes": self.accumulator.buffered_bytes,
            "buffer_bytes_max": self.accumulator.buffer_bytes,
        }

    def tell(self) -> None:
        """Calls those who listen for deliveries; what they raise must not end the thread of all others."""
        for batch in self.sending.take_settled():
            for error in batch.call_listeners():
                _log.error("a callback of a delivery raised", exc_info=error)
        for grown in self.sending.take_events():
            _log.warning(
                "topic %s has %d partitions instead of %d: records of a key may go to another one now",
                grown.topic,
                grown.after,
                grown.before,
            )

    def _until(self, timeout_s: float | None) -> Instant:
        return NEVER if timeout_s is None else Instant(self._clock() + timeout_s)

    # Records

    def sent(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int,
        timestamp_ms: int,
    ) -> Steps[Delivery]:
        """Takes a record that was not taken at once, or raises why it cannot be."""

        def take() -> Delivery:
            return self.accumulator.append(self._clock(), topic, key, value, headers, partition, timestamp_ms)

        return (yield from self._taken(topic, take))

    def paced(self, records: int, size: int) -> Steps[None]:
        """Waits for its turn at the rate that the user set."""
        now = self._clock()
        wait_s = self.pace.reserve(now, records, size)
        if wait_s:
            yield Wait(lambda: self.sending.is_closed, Instant(now + wait_s))

    def _taken(self, topic: str, take: Callable[[], T]) -> Steps[T]:
        give_up_at = self._until(self.max_block_s)
        is_late = False
        has_looked = False
        while True:
            try:
                taken = take()
            except RecordRejected as error:
                reason = error
            else:
                break
            if isinstance(reason, UnknownPartition) and not has_looked:
                has_looked = True  # once: the topic may have grown since we were told of it
                yield from self._looked_anew(topic, give_up_at)
                continue
            refusal = self._refusal(reason, topic, is_late)
            if refusal is not None:
                raise refusal
            may_go_on = partial(self._may_be_taken, reason, topic)
            is_late = not (yield from self._waited(may_go_on, give_up_at))
        if self.accumulator.should_wake:
            self.accumulator.should_wake = False
            self.wake()
        return taken

    def _next_look(self, now: Instant, until: Instant) -> Instant:
        """When a call that waits has to see whether brokers are out of reach for too long."""
        reachability = self.sending.reachability
        if reachability.limit_s is None:
            return until
        return min(until, Instant(now + LOOK_S), reachability.give_up_at())

    def _waited(self, is_over: Callable[[], bool], until: Instant) -> Steps[bool]:
        """Whether it was over in time; raises if no broker can be reached for too long."""
        while True:
            now = self._clock()
            if not is_over():
                self.sending.reachability.check(now)
            look_at = self._next_look(now, until)
            if (yield Wait(is_over, look_at)):
                return True
            if look_at >= until:
                return False

    def _outage(self) -> ClientError | None:
        reachability = self.sending.reachability
        return None if reachability.outage is None else reachability.as_error(self._clock())

    def _looked_anew(self, topic: str, give_up_at: Instant) -> Steps[None]:
        topics = self.sending.topics
        before = topics.answers
        topics.look_anew(topic)
        yield from self._waited(lambda: topics.answers > before or not self.accumulator.is_open, give_up_at)

    def _refusal(self, reason: RecordRejected, topic: str, is_late: bool) -> ClientError | None:
        if isinstance(reason, NotOpen):
            self.sending.check_open()
            return None  # it was opened meanwhile
        outage = self._outage() if is_late else None
        return error_of(reason, topic, self.sending.topics, is_late=is_late, outage=outage)

    def _may_be_taken(self, reason: RecordRejected, topic: str) -> bool:
        """Whether it is worth to try again, if only to be told why it is not."""
        accumulator = self.accumulator
        if not accumulator.is_open:
            return True
        match reason:
            case MetadataMissing():
                return topic in accumulator.topics or self.sending.topics.refusal(topic) is not None
            case BufferFull():
                needed = max(reason.size, accumulator.buffer_bytes // ROOM_SHARE)
                return accumulator.buffered_bytes + needed <= accumulator.buffer_bytes
            case _:
                return True

    def table_sent(
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
        """Takes all rows of a table, waiting for room as often as it must."""
        delivery = TableDelivery(topic, self._waiter)
        wish = partition if isinstance(partition, int) else -1
        pieces = slices(
            table,
            value=value,
            key=key,
            timestamp=timestamp,
            headers=headers,
            partition=partition if isinstance(partition, str) else None,
            rows_max=self.pace.records_at_once(table.nbytes / max(1, table.num_rows)),
        )
        while True:
            piece: Slice | None = yield Call(next, (pieces, None))
            if piece is None:
                return delivery
            if self.pace.is_limited:
                yield from self.paced(piece.row_count, piece.size)
            first = 0
            while first < piece.row_count:
                try:
                    taken, touched = yield from self._taken(topic, self._rows(topic, piece, first, wish))
                except ClientError as error:
                    error.add_note(f"{delivery.records} of {table.num_rows} rows were taken before")
                    raise
                delivery.add(taken, touched)
                first += taken

    def _rows(
        self, topic: str, piece: Slice, first: int, partition: int
    ) -> Callable[[], tuple[int, dict[Batch, int]]]:
        def take() -> tuple[int, dict[Batch, int]]:
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

        return take

    def partitions_for(self, topic: str, timeout_s: float | None) -> Steps[list[int]]:
        """The topic's partitions, as brokers know them."""
        topics, known = self.sending.topics, self.sending.cluster.topics
        topics.want(topic)
        until = self._until(self.max_block_s if timeout_s is None else timeout_s)
        is_known = yield from self._waited(lambda: topic in known or topics.refusal(topic) is not None, until)
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

    def flushed(self, timeout_s: float | None) -> Steps[None]:
        flush = self.sending.flush()
        is_done = yield Wait(lambda: flush.is_done, self._until(timeout_s))
        if not is_done:
            outage = self.sending.reachability.outage
            why = "" if outage is None else f": {outage}"
            late = TimedOut(f"{flush.records_left} records were not delivered in {timeout_s:g} s{why}")
            late.__cause__ = None if outage is None else outage.error
            raise late

    def ended(self, timeout_s: float | None) -> Steps[bool]:
        """Takes nothing more, aborts a transaction that is open, and waits; whether all was delivered."""
        sending = self.sending
        sending.close()
        until = self._until(timeout_s)
        transaction = sending.transaction
        if isinstance(transaction, TransactionSession) and transaction.state in (
            State.IN_TRANSACTION,
            State.ABORTABLE,
        ):
            aborting = transaction.abort()
            yield Wait(lambda: aborting.is_done, until)
        flush = sending.flush()
        is_done: bool = yield Wait(lambda: flush.is_done, until)
        return is_done

    def given_up(self) -> None:
        """After the driver has ended: what is not delivered is settled as lost."""
        self.sending.close()
        self.sending.give_up(RecordLost("the producer was closed before the record was delivered"))

    # Transactions

    @property
    def transaction(self) -> TransactionSession:
        session = self.sending.transaction
        if not isinstance(session, TransactionSession):
            error = InvalidInput("this producer has no transactional.id, and so no transactions")
            error.advice = "Give the producer a transactional_id that no other one uses at the same time."
            raise error
        return session

    def initialized(self, timeout_s: float | None) -> Steps[None]:
        yield from self._done(self.transaction.init(), timeout_s, "init_transactions")

    def begun(self, timeout_s: float | None) -> Steps[None]:
        session = self.transaction
        if session.state in (State.UNINITIALIZED, State.INITIALIZING):
            yield from self.initialized(timeout_s)
        session.begin()

    def committed(self, timeout_s: float | None) -> Steps[None]:
        yield from self._done(self.transaction.commit(), timeout_s, "commit_transaction")

    def aborted(self, timeout_s: float | None) -> Steps[None]:
        yield from self._done(self.transaction.abort(), timeout_s, "abort_transaction")

    def rolled_back(self) -> Steps[None]:
        """After something raised inside a transaction: that is told, an abort that fails is only logged."""
        try:
            if self.transaction.state in (State.IN_TRANSACTION, State.ABORTABLE):
                yield from self.aborted(None)
        except ClientError as error:
            _log.warning("the transaction could not be aborted: %s", error)

    def offsets_sent(
        self,
        offsets: dict[TopicPartition, CommittedOffset],
        member: GroupMembership,
        timeout_s: float | None,
    ) -> Steps[None]:
        yield from self._done(self.transaction.send_offsets(offsets, member), timeout_s, "send_offsets")

    def _done(self, pending: Pending[None], timeout_s: float | None, call: str) -> Steps[None]:
        until = self._until(self.max_block_s if timeout_s is None else timeout_s)
        if not (yield from self._waited(lambda: pending.is_done, until)):
            outage = self.sending.reachability.outage
            late = TimedOut(f"timed out while {pending.what}" + (f": {outage}" if outage else ""))
            late.__cause__ = None if outage is None else outage.error
            late.advice = (
                f"Call {call}() with the same arguments again: it goes on waiting for what was begun, and "
                "begins nothing twice."
            )
            raise late
        self.transaction.taken(pending)
        pending.result()
