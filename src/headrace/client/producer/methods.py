"""The public methods of a producer, for both `headrace.Producer` and `headrace.aio.Producer`.

Signatures and docstrings are written here once; `core.py` has the implementation. Only `send` is written in
each form (threads/producer.py, aio/producer.py): it runs for every record, and its quick path differs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headrace.client.clock import clock, wall_ms
from headrace.client.producer.arguments import (
    Encoding,
    Group,
    Offsets,
    membership_of,
    offsets_to_commit,
    producer_options,
)
from headrace.client.producer.core import ProducerCore
from headrace.client.settings.network import network_settings
from headrace.client.steps import Call, Client, Steps, may_wait

if TYPE_CHECKING:
    import pyarrow

    from headrace.client.aio.client import AsyncClient
    from headrace.client.producer.deliveries import TableDelivery
    from headrace.client.threads.client import BlockingClient

C = TypeVar("C")
B = TypeVar("B", bound="BlockingClient")
A = TypeVar("A", bound="AsyncClient")


class ProducerMethods(Client):
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
        waiter = self._new_waiter()
        # Not the system's randomness: the sticky partitioner needs a number for every few records, and a
        # system call releases the GIL while the caller holds the lock that the sender's thread waits for.
        core = ProducerCore(options, waiter, random.Random(), clock=clock, wall_ms=wall_ms)  # nosec B311  # partitions and pauses
        self._core = core
        self._open_driver(
            core.sender,
            network_settings(options.configuration),
            name="headrace-producer",
            after_turn=core.call_listeners,
        )
        waiter.driver, waiter.core = self._driver, core
        core.wake = self._driver.wake
        self._driver.failed = core.sender.fail
        self._encode_key = options.encode_key
        self._encode_value = options.encode_value
        self._is_rate_limited = core.rate_limit.is_limited
        has_serializers = not (self._encode_key is None and self._encode_value is None)
        self._needs_preparation = has_serializers or self._is_rate_limited
        self._prepare_to_send()

    # What each form has of its own

    _transaction_block: Any

    def _new_waiter(self) -> Any:
        """How deliveries are waited for; it gets `driver` and `core` before it is used."""
        raise NotImplementedError

    def _prepare_to_send(self) -> None:
        raise NotImplementedError

    def _check_may_close(self) -> None:
        pass

    def _shut_down(self) -> Any:
        """Ends the driver, and fails what is not delivered."""
        raise NotImplementedError

    # Records

    def _serialized(self, key: Any, value: Any) -> tuple[Any, Any]:
        if self._encode_key is not None:
            key = self._encode_key(key)
        if self._encode_value is not None:
            value = self._encode_value(value)
        return key, value

    @may_wait
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
    ) -> Steps[TableDelivery]:
        """Sends the rows of a pyarrow table as records. No Python object is made per record.

        `value`, `key`, `timestamp`, `headers` and `partition` name columns; a number as `partition` is the
        partition of all rows. Values and keys are text or bytes, timestamps are timestamps or milliseconds,
        headers are a map or a list of (key, value). Waits whenever `buffer.memory` is full.

        >>> import pyarrow
        >>> table = pyarrow.table({"value": ["tea", "salt"], "customer": ["7", "8"]})
        >>> delivery = producer.send_arrow("orders", table, key="customer")
        >>> delivery.get(timeout=30).records
        2
        """
        return self._core.send_table(
            topic, table, value=value, key=key, timestamp=timestamp, headers=headers, partition=partition
        )

    @may_wait
    def partitions_for(self, topic: str, timeout: float | None = None) -> Steps[list[int]]:
        """The partitions of a topic. Raises `TopicUnknown` after `timeout` seconds, by default
        `max.block.ms`.

        >>> producer.partitions_for("orders")
        [0]
        """
        return self._core.partitions_for(topic, timeout)

    @may_wait
    def flush(self, timeout: float | None = None) -> Steps[None]:
        """Waits until every record that was sent before is delivered or has failed; its delivery says which.

        Raises `TimedOut` if that takes longer than `timeout` seconds.

        >>> delivery = producer.send("orders", b"tea")
        >>> producer.flush(timeout=30)
        >>> delivery.is_done
        True
        """
        return self._core.flush(timeout)

    @may_wait
    def close(self, timeout: float | None = None) -> Steps[None]:
        """Delivers what was sent, for at most `timeout` seconds, and closes; aborts an open transaction.

        Records that are not delivered by then fail. May be called again. A delivery callback cannot call it.

        >>> delivery = producer.send("orders", b"tea")
        >>> producer.close(timeout=30)
        >>> delivery.result().offset
        0
        """
        core = self._core
        if core.sender.is_closed:
            return
        self._check_may_close()
        try:
            yield from core.finish(timeout)
        finally:
            yield Call(self._shut_down)

    def metrics(self) -> dict[str, float]:
        """Counters since the producer was created.

        >>> sorted(producer.metrics())[:4]
        ['batch_size_avg', 'batches', 'buffer_bytes', 'buffer_bytes_max']
        """
        return self._core.metrics()

    # Transactions

    @may_wait
    def init_transactions(self, timeout: float | None = None) -> Steps[None]:
        """Takes over the `transactional.id`: fences a producer that used it before, and aborts its
        transaction.

        The first transaction does this itself; call it to find out earlier whether it succeeds.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     biller.init_transactions(timeout=30)
        """
        return self._core.init_transactions(timeout)

    @may_wait
    def begin_transaction(self) -> Steps[None]:
        """Starts a transaction. Readers with isolation.level=read_committed see its records once it is
        committed.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     biller.begin_transaction()
        ...     _ = biller.send("bills", b"3.20")
        ...     biller.commit_transaction()
        """
        return self._core.begin_transaction(None)

    @may_wait
    def commit_transaction(self, timeout: float | None = None) -> Steps[None]:
        """Delivers the records and offsets of the transaction, and commits it.

        Raises `TransactionMustAbort` if one of them failed. After `TimedOut` call it again.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     biller.begin_transaction()
        ...     _ = biller.send("bills", b"3.20")
        ...     biller.commit_transaction(timeout=30)
        """
        return self._core.commit_transaction(timeout)

    @may_wait
    def abort_transaction(self, timeout: float | None = None) -> Steps[None]:
        """Discards the records and offsets of the transaction.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     biller.begin_transaction()
        ...     _ = biller.send("bills", b"wrong")
        ...     biller.abort_transaction(timeout=30)
        """
        return self._core.abort_transaction(timeout)

    # mypy wants self to be this class, of which each form is a subclass
    @overload
    def transaction(self: B) -> BlockingTransaction[B]: ...  # type: ignore[misc]
    @overload
    def transaction(self: A) -> AsyncTransaction[A]: ...  # type: ignore[misc]
    def transaction(self) -> Any:
        """A transaction around a `with` block: committed at its end, aborted if the block raises.

        >>> with headrace.Producer(servers, transactional_id="biller-1") as biller:
        ...     with biller.transaction():
        ...         _ = biller.send("orders", b"tea")
        ...         _ = biller.send("bills", b"3.20")
        """
        return self._transaction_block(self)

    @may_wait
    def send_offsets(self, offsets: Offsets, group: Group, timeout: float | None = None) -> Steps[None]:
        """Adds the offsets of a consumer group to the transaction, which commits them: for exactly-once
        copies.

        `offsets` are the next ones to read, by (topic, partition). `group` is the consumer whose records were
        processed, its `group_metadata()`, or a group id. With a group id alone the broker cannot refuse a
        consumer that has lost its partitions.

        >>> delivery = producer.send("orders", b"tea")
        >>> order = delivery.get(timeout=30)
        >>> with headrace.Producer(servers, transactional_id="copier-1") as copier:
        ...     with copier.transaction():
        ...         _ = copier.send("bills", b"3.20")
        ...         copier.send_offsets({("orders", 0): order.offset + 1}, "copiers")
        """
        member = membership_of(group)
        return self._core.send_offsets(offsets_to_commit(offsets), member, timeout)


class BlockingTransaction(Generic[C]):
    """What `headrace.Producer.transaction()` gives, for `with`."""

    def __init__(self, producer: C) -> None:
        self._producer: Any = producer

    def __enter__(self) -> C:
        producer = self._producer
        producer._run(producer._core.begin_transaction(None))
        entered: C = producer
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer._run(self._producer._core.end_transaction(error))


class AsyncTransaction(Generic[C]):
    """What `headrace.aio.Producer.transaction()` gives, for `async with`."""

    def __init__(self, producer: C) -> None:
        self._producer: Any = producer

    async def __aenter__(self) -> C:
        producer = self._producer
        await producer._run(producer._core.begin_transaction(None))
        entered: C = producer
        return entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._producer._run(self._producer._core.end_transaction(error))
