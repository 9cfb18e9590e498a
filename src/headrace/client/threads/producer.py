"""The producer for threads: `send` puts a record into a batch and returns, a thread of its own delivers."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from headrace.client.clock import clock, wall_ms
from headrace.client.errors import InvalidInput, TimedOut, TransactionMustAbort
from headrace.client.network.reachability import Reachability
from headrace.client.producer._appender import Appender
from headrace.client.producer._batch import Awaited, Delivery
from headrace.client.producer.headers import HeadersGiven, headers_of
from headrace.client.producer.offsets import Group, Offsets, membership_of, offsets_to_commit
from headrace.client.producer.options import Encoding, producer_options
from headrace.client.producer.outbox import Outbox
from headrace.client.settings.network import network_settings
from headrace.client.steps import Steps
from headrace.client.threads.driver import Driver
from headrace.client.threads.steps import take
from headrace.client.threads.unfinished import watch

if TYPE_CHECKING:
    import pyarrow

    from headrace.client.producer.table_delivery import TableDelivery


class _Waiting:
    """How a thread waits for a delivery."""

    driver: Driver
    reachability: Reachability

    def wait(self, delivery: Awaited, timeout_s: float | None) -> None:
        with self.driver.lock:
            is_done = self.driver.wait_until(lambda: delivery.is_done, timeout_s)
        if not is_done:
            outage = self.reachability.outage
            why = "" if outage is None else f": {outage}"
            late = TimedOut(f"no answer in {timeout_s:g} s; the record may still be delivered{why}")
            late.__cause__ = None if outage is None else outage.error
            raise late

    def awaiting(self, delivery: Awaited) -> NoReturn:
        raise InvalidInput("a delivery of headrace.Producer has get(); await those of headrace.aio.Producer")


class Producer:
    """Writes records to topics of any Kafka cluster; one producer serves all threads of a program.

    The first argument is `bootstrap.servers`, or a mapping of settings; more settings follow by keyword, in
    Kafka's spelling or in Python's (`linger_ms=20`). `key_serializer` and `value_serializer` turn objects
    into bytes: a `Serializer`, a function, or a type such as `dict` or a dataclass. `partitioner` may be a
    function `(topic, key, value, partition_count) -> partition`; it must be quick and not use the producer.

    >>> import headrace
    >>> with headrace.Producer(servers, linger_ms=5, value_serializer=dict) as producer:
    ...     delivery = producer.send("orders", {"item": "tea", "count": 2}, key="customer-7")
    ...     delivery.get(timeout=30).offset
    0
    """

    def __init__(
        self,
        config: str | Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: Encoding | None = None,
        value_serializer: Encoding | None = None,
        **settings: object,
    ) -> None:
        options = producer_options(config, settings, key_serializer, value_serializer)
        waiting = _Waiting()
        outbox = Outbox(options, waiting, random.SystemRandom(), clock=clock, wall_ms=wall_ms)
        self._outbox = outbox
        waiting.reachability = outbox.sending.reachability
        self._driver = waiting.driver = Driver(
            outbox.sending,
            network_settings(options.configuration),
            name="headrace-producer",
            after_turn=outbox.tell,
        )
        outbox.wake = self._driver.wake
        self._encode_key = options.encode_key
        self._encode_value = options.encode_value
        self._is_special = not (
            self._encode_key is None and self._encode_value is None and not outbox.pace.is_limited
        )
        appender = Appender(
            outbox.accumulator,
            self._driver.lock,
            clock=time.monotonic,
            wall_ns=time.time_ns,
            wake=self._driver.wake,
        )
        self._driver.relocked = appender.use_lock
        self._append = appender.append
        self._driver.start()
        watch(outbox)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, steps: Steps[Any]) -> Any:
        return take(steps, self._driver, self, self._driver.wake)

    # Records

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersGiven | None = None,
    ) -> Delivery:
        """Takes a record to be sent soon; what becomes of it is told by the delivery.

        Returns at once, unless the topic is not known yet or `buffer.memory` is used up: then it waits for at
        most `max.block.ms` and raises `Unreachable`, `TopicUnknown` or `BufferExhausted`. Without a
        serializer keys and values are bytes or text. A value of None is a tombstone.

        >>> delivery = producer.send("orders", b"tea", key=b"customer-7", headers={"trace": b"1f"})
        >>> _ = delivery.add_callback(lambda metadata: print(metadata.topic, metadata.partition))
        >>> _ = delivery.add_errback(lambda error: print("not delivered:", error))
        >>> producer.flush()
        orders 0
        """
        if self._is_special:
            key, value = self._prepared(key, value)
        rows = headers_of(headers) if headers else ()
        taken = self._append(topic, key, value, rows, partition, timestamp_ms)
        if taken is not None:
            return taken
        # it has to wait, or cannot be sent at all
        if partition is None:
            partition = -1
        elif partition < 0:
            raise InvalidInput(f"partition {partition}: partitions are counted from 0")
        if timestamp_ms is None:
            timestamp_ms = wall_ms()
        sent: Delivery = self._take(self._outbox.sent(topic, key, value, rows, partition, timestamp_ms))
        return sent

    def _prepared(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Serialized, once it is the record's turn at the rate that the user set."""
        if self._encode_key is not None:
            key = self._encode_key(key)
        if self._encode_value is not None:
            value = self._encode_value(value)
        if self._outbox.pace.is_limited:
            self._take(self._outbox.paced(1, len(key or b"") + len(value or b"")))
        return key, value

    def send_arrow(
        self,
        topic: str,
        table: pyarrow.Table,
        *,
        value: str = "value",
        key: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        partition: int | str | None = None,
    ) -> TableDelivery:
        """Sends the rows of a table, column by column: no Python object is made per record.

        `value`, `key`, `timestamp`, `headers` and `partition` name columns; a number as `partition` is one
        for all rows. Values and keys are text or bytes, timestamps are timestamps or milliseconds, headers
        are a map or a list of (key, value). Waits whenever `buffer.memory` is used up.

        >>> import pyarrow
        >>> table = pyarrow.table({"value": ["tea", "salt"], "customer": ["7", "8"]})
        >>> producer.send_arrow("orders", table, key="customer").get(timeout=30).records
        2
        """
        if isinstance(partition, int) and partition < 0:
            raise InvalidInput(f"partition {partition}: partitions are counted from 0")
        steps = self._outbox.table_sent(
            topic, table, value=value, key=key, timestamp=timestamp, headers=headers, partition=partition
        )
        sent: TableDelivery = self._take(steps)
        return sent

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """The partitions of a topic; `TopicUnknown` after `timeout` seconds, else after `max.block.ms`.

        >>> producer.partitions_for("orders")
        [0]
        """
        partitions: list[int] = self._take(self._outbox.partitions_for(topic, timeout))
        return partitions

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was sent before is delivered, or known not to be; `TimedOut` if it takes
        longer than `timeout` seconds. What became of a record is told by its delivery.

        >>> _ = producer.send("orders", b"tea")
        >>> producer.flush(timeout=30)
        """
        self._take(self._outbox.flushed(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Delivers what was sent, for `timeout` seconds at most, and ends; an open transaction is aborted.

        What is not delivered by then is told so by its delivery. May be called again. Inside a callback,
        which runs on the producer's own thread, nothing can be waited for: close elsewhere.

        >>> delivery = producer.send("orders", b"tea")
        >>> producer.close(timeout=30)
        >>> delivery.get().offset
        0
        """
        if self._outbox.sending.is_closed:
            return
        if self._driver.is_on_thread:
            raise InvalidInput("a callback cannot close its producer: it would wait for itself")
        try:
            self._take(self._outbox.ended(timeout))
        finally:
            self._driver.close()
            with self._driver.lock:
                self._outbox.given_up()
            self._outbox.tell()

    def metrics(self) -> dict[str, float]:
        """Counts since the producer was made.

        >>> sorted(producer.metrics())[:4]
        ['batch_size_avg', 'batches', 'buffer_bytes', 'buffer_bytes_max']
        """
        return self._outbox.metrics()

    # Transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Takes over the `transactional.id`: whoever had it before is fenced, what it left open is aborted.

        The first transaction does so itself; call this to know before that all is well.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     biller.init_transactions(timeout=30)
        """
        self._take(self._outbox.initialized(timeout))

    def begin_transaction(self) -> None:
        """What is sent from now on counts when it is committed, or never.

        >>> biller = headrace.Producer(servers, transactional_id="biller-1")
        >>> biller.begin_transaction()
        >>> _ = biller.send("bills", b"3.20")
        >>> biller.commit_transaction()
        >>> biller.close()
        """
        self._take(self._outbox.begun(None))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """All records and offsets of the transaction count from now on. `TransactionMustAbort` if one of them
        failed; after `TimedOut` call it again.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     biller.begin_transaction()
        ...     _ = biller.send("bills", b"3.20")
        ...     biller.commit_transaction(timeout=30)
        """
        self._take(self._outbox.committed(timeout))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Nothing of the transaction counts.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     biller.begin_transaction()
        ...     _ = biller.send("bills", b"wrong")
        ...     biller.abort_transaction(timeout=30)
        """
        self._take(self._outbox.aborted(timeout))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A transaction around a block: committed at its end, aborted if it raises.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     with biller.transaction():
        ...         _ = biller.send("orders", b"tea")
        ...         _ = biller.send("bills", b"3.20")
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            self._take(self._outbox.rolled_back())
            raise
        try:
            self.commit_transaction()
        except TransactionMustAbort:
            self._take(self._outbox.rolled_back())
            raise

    def send_offsets(self, offsets: Offsets, group: Group, timeout: float | None = None) -> None:
        """Adds a group's offsets to the transaction: they are committed with it, for exactly-once copies.

        `offsets` are the next ones to read by (topic, partition); `group` is the consumer whose records were
        processed, its `group_metadata()`, or a bare group id, which fences nobody who lost its partitions.

        >>> order = producer.send("orders", b"tea").get(timeout=30)
        >>> with headrace.Producer(servers, transactional_id="copier-1") as copier:
        ...     with copier.transaction():
        ...         _ = copier.send("bills", b"3.20")
        ...         copier.send_offsets({("orders", 0): order.offset + 1}, "copiers")
        """
        member = membership_of(group)
        self._take(self._outbox.offsets_sent(offsets_to_commit(offsets), member, timeout))
