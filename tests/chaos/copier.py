"""A process that copies a topic in transactions, and may be killed at any moment.

Records keep their partition and their order; each transaction carries some of them together with the offsets
read. What can be done again is done again; when the client says that it is over, the process ends and
somebody starts it again. So it does when a call does not come back: librdkafka's send_offsets_to_transaction
may wait for ever, its timeout notwithstanding, for an answer that died with the broker.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

BATCH = 500
WAIT_S = 60
PATIENCE_S = 5  # for one round of reading and copying


class Copier:
    def __init__(self, order: dict[str, Any]) -> None:
        faulthandler.dump_traceback_later(4 * PATIENCE_S, exit=True)
        common = {"bootstrap.servers": order["bootstrap"], "log_level": 0, "reconnect.backoff.max.ms": 200}
        self.target = order["target"]
        self.reader = Consumer(
            common
            | {
                "group.id": order["group"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",  # offsets, too, are read only when they are stable
            }
            | order["membership"]
        )
        self.writer = Producer(
            common | {"transactional.id": order["id"], "transaction.timeout.ms": 10_000, "linger.ms": 0}
        )
        self.writer.init_transactions(WAIT_S)
        self.reader.subscribe([order["source"]])

    def run(self) -> None:
        while True:
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
            messages = [m for m in self.reader.consume(BATCH, 0.2) if m.error() is None]
            if messages and not self.copy(messages):
                self.go_back()

    def copy(self, messages: list[Any]) -> bool:
        """Whether the messages were copied; if not, nothing of it will ever be seen."""
        try:
            self.writer.begin_transaction()
            for message in messages:
                self.writer.produce(
                    self.target, message.value() + b" copied", message.key(), message.partition()
                )
                self.writer.poll(0)
            ends = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
            offsets = [TopicPartition(*place, offset) for place, offset in ends.items()]
            self.again(
                lambda: self.writer.send_offsets_to_transaction(
                    offsets, self.reader.consumer_group_metadata(), WAIT_S
                )
            )
            self.again(lambda: self.writer.commit_transaction(WAIT_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self.again(lambda: self.writer.abort_transaction(WAIT_S))
            return False
        return True

    def go_back(self) -> None:
        """The next poll begins again at what is committed."""
        assigned = self.reader.assignment()
        if assigned:
            for place in self.reader.committed(assigned, WAIT_S):
                offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                self.reader.seek(TopicPartition(place.topic, place.partition, offset))

    def again(self, work: Callable[[], object]) -> None:
        while True:
            try:
                work()
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
            else:
                return


def main() -> None:
    try:
        Copier(json.loads(sys.argv[1])).run()
    except KafkaException as failure:
        print(f"over: {failure}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
