"""An attempt to write a part of a sink's batch, for the thread that writes it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from headrace.client.clock import clock, wall_ms
from headrace.client.errors import InvalidInput, TimedOut
from headrace.client.producer._batch import Awaited
from headrace.client.producer.options import producer_options
from headrace.client.producer.outbox import Outbox
from headrace.client.producer.sink_attempt import Attempt, Place, State, attempt_at
from headrace.client.settings.network import network_settings
from headrace.client.steps import Steps
from headrace.client.threads.driver import Driver
from headrace.client.threads.steps import take
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX

if TYPE_CHECKING:
    import pyarrow

    from headrace.client.producer.table_delivery import TableDelivery


class _NobodyWaits:
    """Single deliveries are not looked at: one that fails is the end of the attempt."""

    def wait(self, delivery: Awaited, timeout_s: float | None) -> NoReturn:
        raise InvalidInput("wait for the whole attempt with finish()")

    def awaiting(self, delivery: Awaited) -> NoReturn:
        raise InvalidInput("wait for the whole attempt with finish()")


class SinkAttempt:
    """Joins a sink, sends rows, and gives the producer by which a commit names it.

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
        self._outbox = Outbox(
            options,
            _NobodyWaits(),
            random.SystemRandom(),
            clock=clock,
            wall_ms=wall_ms,
            transact=attempt_at(place),
        )
        transaction = self._outbox.sending.transaction
        assert isinstance(transaction, Attempt)
        self._attempt = transaction
        self._driver = Driver(
            self._outbox.sending,
            network_settings(options.configuration),
            name="headrace-sink",
            after_turn=self._outbox.tell,
        )
        self._outbox.wake = self._driver.wake
        self._driver.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def join(self, timeout: float | None = None) -> State:
        """WRITING, COMMITTED if the batch was committed before, or UNSUPPORTED by the brokers; raises why it
        is refused, and TimedOut after `timeout` seconds, or `max.block.ms`.
        """
        patience = self._outbox.max_block_s if timeout is None else timeout
        with self._driver.lock:
            self._driver.wake()
            is_known = self._driver.wait_until(lambda: self._attempt.has_joined, patience)
        if not is_known:
            outage = self._outbox.sending.reachability.outage
            why = "" if outage is None else f": {outage}"
            raise TimedOut(
                f"the sink {self._attempt.place.app_id!r} could not be joined in {patience:g} s{why}"
            )
        if self._attempt.state is State.FAILED:
            self._attempt.check_may_send()
        return self._attempt.state

    def send_arrow(self, topic: str, table: pyarrow.Table, **columns: Any) -> TableDelivery:
        """As `Producer.send_arrow`."""
        columns = {
            "value": "value",
            "key": None,
            "timestamp": None,
            "headers": None,
            "partition": None,
        } | columns
        sent: TableDelivery = self._take(self._outbox.table_sent(topic, table, **columns))
        return sent

    def finish(self, timeout: float | None = None) -> tuple[int, int]:
        """Waits until all rows are written; the attempt's producer id and epoch, or why it failed."""
        self._take(self._outbox.flushed(timeout))
        with self._driver.lock:
            self._attempt.check_may_send()
            return self._attempt.producer

    def close(self) -> None:
        """What was not finished is left to whoever commits or aborts the batch."""
        self._driver.close()
        with self._driver.lock:
            self._outbox.given_up()

    def _take(self, steps: Steps[Any]) -> Any:
        return take(steps, self._driver, self, self._driver.wake)
