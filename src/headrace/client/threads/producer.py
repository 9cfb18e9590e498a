"""The blocking producer, `headrace.Producer`, and an attempt to write one task's part of a sink's batch."""

from __future__ import annotations

import atexit
import logging
import random
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.client.clock import clock, wall_ms
from headrace.client.errors import InvalidInput
from headrace.client.producer._appender import Appender, BlockingSend
from headrace.client.producer._batch import Awaited, Delivery
from headrace.client.producer.arguments import producer_options
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.methods import BlockingTransaction, ProducerMethods
from headrace.client.producer.sink_attempt import Attempt, AttemptId, State, attempt_factory
from headrace.client.settings.network import network_settings
from headrace.client.threads.client import BlockingClient
from headrace.client.threads.driver import Driver
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX

if TYPE_CHECKING:
    import pyarrow

    from headrace.client.producer.deliveries import TableDelivery


_log = logging.getLogger("headrace.producer")


class Producer(ProducerMethods, BlockingClient, BlockingSend):
    """Writes records to topics of any Kafka cluster. All threads of a program can share one producer.

    The first argument is `bootstrap.servers`, or a mapping of settings; more settings follow as keywords,
    with Kafka's names or Python's spelling of them (`linger_ms=20`). `key_serializer` and `value_serializer`
    turn objects into bytes: a `Serializer`, a function, or a type such as `dict` or a dataclass.
    `partitioner` may be a function `(topic, key, value, partition_count) -> partition`; it must be quick and
    not use the producer.

    >>> import headrace
    >>> with headrace.Producer(servers, linger_ms=5, value_serializer=dict) as producer:
    ...     delivery = producer.send("orders", {"item": "tea", "count": 2}, key="customer-7")
    ...     delivery.get(timeout=30).offset
    0
    """

    _transaction_block = BlockingTransaction

    def _new_waiter(self) -> _Waiter:
        return _Waiter()

    def _prepare_to_send(self) -> None:
        driver = self._driver
        appender = Appender(
            self._core.accumulator, driver.lock, clock=time.monotonic, wall_ns=time.time_ns, wake=driver.wake
        )
        driver.relocked = appender.use_lock
        self._appender = appender
        driver.start()
        _open_cores.add(self._core)

    def _prepared(self, key: Any, value: Any) -> tuple[Any, Any]:
        key, value = self._serialized(key, value)
        if self._is_rate_limited:
            self._run(self._core.wait_for_rate(1, len(key or b"") + len(value or b"")))
        return key, value

    def _send_rejected(self, *record: Any) -> Delivery:
        return self._run(self._core.send(*record))

    def _check_may_close(self) -> None:
        if self._driver.is_on_thread:
            raise InvalidInput("a delivery callback cannot close its producer: it would wait for itself")

    def _shut_down(self) -> None:
        self._driver.close()
        with self._driver.lock:
            self._core.give_up()
        self._core.call_listeners()


class _Waiter:
    """`Delivery.get` blocks the calling thread."""

    driver: Driver
    core: ProducerCore

    def wait(self, delivery: Awaited, timeout_s: float | None) -> None:
        with self.driver.lock:
            is_done = self.driver.wait_until(lambda: delivery.is_done, timeout_s)
        if not is_done:
            raise self.core.timed_out(
                f"no response within {timeout_s:g} s; the record may still be delivered"
            )

    def awaiting(self, delivery: Awaited) -> NoReturn:
        raise InvalidInput("use get(): only deliveries of headrace.aio.Producer can be awaited")


_open_cores: weakref.WeakSet[ProducerCore] = weakref.WeakSet()


def _warn_of_undelivered() -> None:
    """At exit: records that are still in the buffer are lost, and nothing else would say so."""
    for core in list(_open_cores):
        left = core.accumulator.buffered_bytes
        if left and not core.sender.is_closed:
            _log.warning(
                "%d bytes of records were not delivered before the program ended; call flush() or close()",
                left,
            )


atexit.register(_warn_of_undelivered)


class _NobodyWaits:
    """Nobody waits for single deliveries: one that fails is the end of the attempt."""

    def wait(self, delivery: Awaited, timeout_s: float | None) -> NoReturn:
        raise InvalidInput("wait for the whole attempt with finish()")

    def awaiting(self, delivery: Awaited) -> NoReturn:
        raise InvalidInput("wait for the whole attempt with finish()")


class SinkAttempt(BlockingClient):
    """Joins a sink and sends rows; `finish` gives the producer id and epoch by which a commit names it.

    >>> attempt_id = AttemptId("copies", "query", "run-1", batch_id=0, task=0, attempt=0)
    >>> with SinkAttempt(bootstrap, attempt_id) as attempt:
    ...     if attempt.join() is State.WRITING:
    ...         _ = attempt.send_arrow("orders", table)
    ...         producer = attempt.finish()
    >>> admin.commit_sink("copies", "query", "run-1", 0, [producer])
    """

    def __init__(
        self, config: str | Mapping[str, object], attempt_id: AttemptId, /, **settings: object
    ) -> None:
        named = {"transactional.id": TRANSACTIONAL_ID_PREFIX + attempt_id.app_id}
        options = producer_options(config, settings | named, None, None)
        core = ProducerCore(
            options,
            _NobodyWaits(),
            random.Random(),  # nosec B311  # as in `ProducerMethods`
            clock=clock,
            wall_ms=wall_ms,
            new_transaction=attempt_factory(attempt_id),
        )
        assert isinstance(core.sender.transaction, Attempt)
        self._core = core
        self._attempt = core.sender.transaction
        self._open_driver(
            core.sender,
            network_settings(options.configuration),
            name="headrace-sink",
            after_turn=core.call_listeners,
        )
        core.wake = self._driver.wake
        self._driver.start()

    def join(self, timeout: float | None = None) -> State:
        """WRITING; COMMITTED if the batch was committed before; or UNSUPPORTED by the brokers.

        Raises why the coordinator refuses the attempt, and `TimedOut` after `timeout` seconds, by default
        `max.block.ms`.
        """
        attempt = self._attempt
        timeout_s = self._core.max_block_s if timeout is None else timeout
        with self._driver.lock:
            self._driver.wake()
            is_known = self._driver.wait_until(lambda: attempt.has_joined, timeout_s)
        if not is_known:
            raise self._core.timed_out(
                f"the sink {attempt.attempt_id.app_id!r} could not be joined within {timeout_s:g} s"
            )
        if attempt.state is State.FAILED:
            attempt.check_may_send()
        return attempt.state

    def send_arrow(self, topic: str, table: pyarrow.Table, **columns: Any) -> TableDelivery:
        """As `Producer.send_arrow`."""
        columns = {
            "value": "value",
            "key": None,
            "timestamp": None,
            "headers": None,
            "partition": None,
        } | columns
        return self._run(self._core.send_table(topic, table, **columns))

    def finish(self, timeout: float | None = None) -> tuple[int, int]:
        """Waits until all rows are written; returns the producer id and epoch, or raises why it failed."""
        self._run(self._core.flush(timeout))
        with self._driver.lock:
            self._attempt.check_may_send()
            return self._attempt.producer

    def close(self) -> None:
        """Ends the attempt; one that is not finished is left to the commit or abort of the batch."""
        self._driver.close()
        with self._driver.lock:
            self._core.give_up()
