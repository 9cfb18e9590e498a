"""Rows that a task could not decode, written to a topic of their own: at least once, since a task that is
tried again writes them again; their origin tells doubles apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.client.configuration import producer_keys
from headrace.client.threads.producer import Producer
from headrace.schemas.dead_letters import dead_letter

if TYPE_CHECKING:
    import pyarrow as pa


class DeadLetters:
    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self._topic = topic
        known = producer_keys()
        self._settings: dict[str, object] = {name: text for name, text in settings.items() if name in known}
        self._producer: Producer | None = None

    def send(self, table: pa.Table, reasons: Mapping[int, str]) -> None:
        """Those rows of Kafka's columns; returns when they are safe."""
        if self._producer is None:
            self._producer = Producer(self._settings)
        rows = sorted(reasons)
        deliveries = []
        for row, one in zip(rows, table.take(rows).to_pylist(), strict=True):
            letter = dead_letter(
                reasons[row],
                topic=one["topic"],
                partition=one["partition"],
                offset=one["offset"],
                timestamp_ms=-1 if one["timestamp"] is None else round(one["timestamp"].timestamp() * 1000),
                key=one["key"],
                value=one["value"],
                headers=[(header["key"], header["value"]) for header in one["headers"]],
            )
            deliveries.append(
                self._producer.send(self._topic, letter.value, letter.key, headers=letter.record_headers())
            )
        for delivery in deliveries:
            delivery.get()  # raises if it is not: the row would be nowhere then

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
