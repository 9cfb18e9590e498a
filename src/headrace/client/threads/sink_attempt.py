"""An attempt to write one task's part of a sink's batch, for the thread that writes it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.client.clock import clock, wall_ms
from headrace.client.errors import InvalidInput
from headrace.client.producer._batch import Awaited
from headrace.client.producer.arguments import producer_options
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.sink_attempt import Attempt, Place, State, attempt_at
from headrace.client.settings.network import network_settings
from headrace.client.threads.client import BlockingClient
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX

if TYPE_CHECKING:
    import pyarrow

    from headrace.client.producer.deliveries import TableDelivery


class _NobodyWaits:
    """Nobody waits for single deliveries: one that fails is the end of the attempt."""

    def wait(self, delivery: Awaited, timeout_s: float | None) -> NoReturn:
        raise InvalidInput("wait for the whole attempt with finish()")

    def awaiting(self, delivery: Awaited) -> NoReturn:
        raise InvalidInput("wait for the whole attempt with finish()")


class SinkAttempt(BlockingClient):
    """Joins a sink and sends rows; `finish` gives the producer id and epoch by which a commit names it.

    >>> place = Place("copies", "query", "run-1", batch_id=0, task=0, attempt=0)
    >>> with SinkAttempt(bootstrap, place) as attempt:
    ...     if attempt.join() is State.WRITING:
    ...         _ = attempt.send_arrow("orders", table)
    ...         producer = attempt.finish()
    >>> admin.commit_sink("copies", "query", "run-1", 0, [producer])
    """

    def __init__(self, config: str | Mapping[str, object], place: Place, /, **settings: object) -> None:
        named = {"transactional.id": TRANSACTIONAL_ID_PREFIX + place.app_id}
        options = producer_options(config, settings | named, None, None)
        core = ProducerCore(
            options,
            _NobodyWaits(),
            random.SystemRandom(),
            clock=clock,
            wall_ms=wall_ms,
            new_transaction=attempt_at(place),
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
                f"the sink {attempt.place.app_id!r} could not be joined within {timeout_s:g} s"
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
