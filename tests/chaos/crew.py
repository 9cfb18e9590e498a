"""Several members of one group in a process that may be killed at any moment.

Orders come on stdin, one a line: `join 3`, `leave 3`; the end of stdin means that all leave. What happens
goes to stdout, one JSON object a line, flushed before the offsets of the records it tells of are committed: a
record that nobody told of is read again by somebody else.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

POLL_S = 0.1
HEADER = b"CGMDv2:"  # librdkafka's own form of the group metadata; the generation follows
# the group moved on while the commit was under way: the records will come again
EXPECTED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
)

_printing = threading.Lock()


def tell(**event: Any) -> None:
    line = json.dumps(event | {"at": time.monotonic()})
    with _printing:
        print(line, flush=True)


def generation(client: Consumer) -> int:
    metadata = client.consumer_group_metadata()
    assert metadata.startswith(HEADER), metadata[:16]
    return int(struct.unpack_from("=i", metadata, len(HEADER))[0])


class Hand:
    """One member: reads, tells, commits."""

    def __init__(self, number: int, settings: dict[str, Any], topic: str) -> None:
        self.number, self.settings, self.topic = number, settings, topic
        self.leaving = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        client = Consumer(self.settings)
        client.subscribe(
            [self.topic],
            on_assign=lambda _, gained: self.moved(client, "gained", gained),
            on_revoke=lambda _, given: self.moved(client, "gave up", given),
            on_lost=lambda _, lost: self.moved(client, "lost", lost),
        )
        while not self.leaving.is_set():
            messages = [message for message in client.consume(500, POLL_S) if message.error() is None]
            if messages:
                tell(member=self.number, processed=[int(message.value()) for message in messages])
                self.commit(client)
        client.close()
        tell(member=self.number, how="left")

    def moved(self, client: Consumer, how: str, partitions: list[TopicPartition]) -> None:
        places = [partition.partition for partition in partitions]
        tell(member=self.number, how=how, places=places, generation=generation(client))

    def commit(self, client: Consumer) -> None:
        try:
            client.commit(asynchronous=False)
        except KafkaException as failure:
            if failure.args[0].code() not in EXPECTED and not failure.args[0].retriable():
                tell(member=self.number, how="failed", error=str(failure))


def main() -> None:
    settings, topic = json.loads(sys.argv[1]), sys.argv[2]
    hands: dict[int, Hand] = {}
    for line in sys.stdin:
        order, number = line.split()
        if order == "join":
            hands[int(number)] = Hand(int(number), settings, topic)
        else:
            hands[int(number)].leaving.set()
    for hand in hands.values():
        hand.leaving.set()
    for hand in hands.values():
        hand.thread.join()


if __name__ == "__main__":
    main()
