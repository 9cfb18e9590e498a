"""One task's part of a write: its rows as an attempt of a sink, or as plain records where there are none."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from headrace.client.errors import UnsupportedByBroker
from headrace.client.producer.sink_attempt import Place, State
from headrace.client.threads.producer import Producer
from headrace.client.threads.sink_attempt import SinkAttempt
from headrace.spark.rows import RowPlan, Tables
from headrace.spark.sink_options import Guarantee, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client.producer.table_delivery import TableDelivery

log = logging.getLogger("headrace.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    place: Place
    producer: tuple[int, int] | None = None  # of the attempt
    was_committed: bool = False  # the batch, before this task began
    is_exactly_once: bool = True


def write_rows(
    options: SinkOptions, plan: RowPlan, place: Place, batches: Iterator[pa.RecordBatch]
) -> Written:
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return _write_plainly(options, plan, place, batches)
    with SinkAttempt(dict(options.settings), place) as attempt:
        state = attempt.join()
        if state is State.UNSUPPORTED and options.guarantee is Guarantee.EXACTLY_ONCE:
            error = UnsupportedByBroker("JOIN_SINK")
            error.advice = (
                "Exactly-once needs Headrace as the broker; or set deliveryGuarantee to at-least-once."
            )
            raise error
        if state is State.COMMITTED:
            # operators with state before us keep it only if all of their rows are taken
            deque(batches, maxlen=0)
            return Written(place, was_committed=True)
        if state is State.WRITING:
            tables = Tables(plan)
            for batch in batches:
                for topic, table in tables.of(batch, time.time_ns() // 1_000_000):
                    attempt.send_arrow(topic, table, **plan.roles)
            return Written(place, attempt.finish())
    return _write_plainly(options, plan, place, batches)


def _write_plainly(
    options: SinkOptions, plan: RowPlan, place: Place, batches: Iterator[pa.RecordBatch]
) -> Written:
    settings = {name: value for name, value in options.settings.items() if name != "transaction.timeout.ms"}
    under_way: deque[TableDelivery] = deque()
    tables = Tables(plan)
    with Producer(settings) as producer:
        for batch in batches:
            for topic, table in tables.of(batch, time.time_ns() // 1_000_000):
                under_way.append(producer.send_arrow(topic, table, **plan.roles))  # type: ignore[arg-type]
            while under_way and under_way[0].is_done:
                under_way.popleft().result()
        for delivery in under_way:
            delivery.get()
    return Written(place, is_exactly_once=False)
