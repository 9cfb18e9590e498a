"""Copies a topic into another in transactions, with Headrace's own client, until told to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headrace

BATCH = 40  # unless told otherwise


class HeadraceCopier:
    def __init__(
        self,
        bootstrap: str,
        source: str,
        target: str,
        group: str,
        settings: dict[str, Any],
        batch: int = BATCH,
    ) -> None:
        self.copied = 0
        self.transactions = 0
        self.aborted = 0
        self._bootstrap, self._source, self._target, self._group = bootstrap, source, target, group
        self._settings = settings  # of both clients
        self._batch = batch  # records in a transaction

    def run(self, is_over: Callable[[], bool], member: dict[str, Any]) -> None:
        settings = (
            self._settings | member | {"isolation.level": "read_committed", "enable.auto.commit": False}
        )
        with headrace.Consumer(self._bootstrap, **settings, group_id=self._group) as consumer:
            consumer.subscribe([self._source])
            while not is_over():
                self._copy_with_a_producer(is_over, consumer)

    def _copy_with_a_producer(self, is_over: Callable[[], bool], consumer: headrace.Consumer) -> None:
        """Until it is of no more use: a late InitProducerId of its own may have fenced it."""
        settings = self._settings | {"transactional.id": self._group, "transaction.timeout.ms": 10_000}
        with headrace.Producer(self._bootstrap, **settings) as producer:
            while not is_over():
                messages = consumer.poll(0.2, max_records=self._batch)
                if not messages:
                    continue
                try:
                    with producer.transaction():
                        for message in messages:
                            producer.send(
                                self._target, message.value, message.key, partition=message.partition
                            )
                        producer.send_offsets(
                            {(each.topic, each.partition): each.offset + 1 for each in messages}, consumer
                        )
                    self.copied += len(messages)
                    self.transactions += 1
                except headrace.ProducerUnusable:
                    self._go_back(consumer)
                    return
                except headrace.ClientError:
                    self._go_back(consumer)

    def _go_back(self, consumer: headrace.Consumer) -> None:
        self.aborted += 1
        for at, committed in consumer.committed(consumer.assignment).items():
            consumer.seek(at, 0 if committed is None else committed.offset)
