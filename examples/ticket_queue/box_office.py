"""The box office: answers the requests for a show in the order of their offsets, each exactly once.

    python examples/ticket_queue/box_office.py --worker 1 --seats 15000

Start as many workers as there are shows; each gets the partitions of some of them. The answers, the topic
`tickets`, are also the memory: whoever gets a partition replays its answers first, and then knows which seats
are gone and which fans have asked. Answers and progress are one transaction, so a worker that is killed
leaves either both or nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

from headrace import (
    JSON,
    Admin,
    Consumer,
    Message,
    OffsetAt,
    Producer,
    RebalanceListener,
    TopicPartition,
    TransactionMustAbort,
)

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
REQUESTS, TICKETS, GROUP = "requests", "tickets", "box-office"
SEAT, SOLD_OUT, IN_LINE = "seat", "sold out", "already in line"
TRANSACTION_TIMEOUT_MS = 30_000  # a dead worker's open transaction delays its successor for no longer


class Show:
    """What was answered so far for one show. Only `apply` changes it, for new and for replayed answers."""

    def __init__(self, seats: int) -> None:
        self.seats = seats
        self.taken = 0
        self.fans: set[str] = set()  # all who got an answer

    def decide(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["fan"] in self.fans:
            return request | {"answer": IN_LINE, "seat": None}
        if self.taken == self.seats:
            return request | {"answer": SOLD_OUT, "seat": None}
        return request | {"answer": SEAT, "seat": self.taken + 1}

    def apply(self, answer: dict[str, Any]) -> None:
        self.fans.add(answer["fan"])
        if answer["answer"] == SEAT:
            self.taken = answer["seat"]


class BoxOffice(RebalanceListener):
    """The shows whose partitions this worker has. It forgets them when it loses them."""

    def __init__(self, servers: str, seats: int) -> None:
        self.servers, self.seats = servers, seats
        self._shows: dict[int, Show] = {}

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._shows.clear()

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._shows.clear()

    def forget(self) -> None:
        self._shows.clear()

    def answer(self, message: Message) -> dict[str, Any]:
        if message.partition not in self._shows:
            self._shows[message.partition] = self._replay(message.partition)
        show = self._shows[message.partition]
        answer = show.decide(message.value)
        show.apply(answer)
        return answer

    def _replay(self, partition: int) -> Show:
        """Reads the answers up to the real end. It waits for transactions that are not decided yet: one of
        the worker before us may have been committed a moment ago.
        """
        show, at = Show(self.seats), TopicPartition(TICKETS, partition)
        with (
            Admin(self.servers) as admin,
            Consumer(self.servers, isolation_level="read_committed", value_deserializer=JSON) as reader,
        ):
            end = admin.list_offsets({at: OffsetAt.LATEST})[at].offset
            reader.assign({at: 0})
            while reader.position(at) < end:
                for message in reader.poll(0.5):
                    show.apply(message.value)
        return show


def work(servers: str, worker: str, seats: int, batch: int) -> None:
    office = BoxOffice(servers, seats)
    with (
        Consumer(
            servers,
            group_id=GROUP,
            group_instance_id=f"worker-{worker}",  # after a restart it gets its partitions back at once
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            value_deserializer=JSON,
        ) as consumer,
        Producer(
            servers,
            transactional_id=f"box-office-{worker}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            value_serializer=JSON,
        ) as producer,
    ):
        producer.init_transactions()  # aborts what this worker left open when it was killed
        consumer.subscribe([REQUESTS], listener=office)
        while True:
            messages = consumer.poll(0.5, max_records=batch)
            if not messages:
                continue
            try:
                with producer.transaction():
                    for message in messages:
                        now_ms = time.time_ns() // 1_000_000
                        times = {"answered_at_ms": now_ms, "waited_ms": now_ms - message.timestamp_ms}
                        answer = office.answer(message) | times
                        producer.send(TICKETS, answer, message.key, partition=message.partition)
                    following = {(m.topic, m.partition): m.offset + 1 for m in messages}
                    producer.send_offsets(following, consumer)
            except TransactionMustAbort:  # it is aborted by now: the same requests once more
                office.forget()
                for place, committed in consumer.committed(consumer.assignment).items():
                    consumer.seek(place, 0 if committed is None else committed.offset)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sells seats in the order of the requests.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--worker", required=True, help="a name of its own, the same after a restart")
    parser.add_argument("--seats", type=int, default=15_000, help="of each show (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=500, help="requests of a transaction at most")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    work(chosen.servers, chosen.worker, chosen.seats, chosen.batch)


if __name__ == "__main__":
    main()
