"""Several members of one group in a process that may be killed at any moment.

Orders come on stdin, one a line: `join 3`, `leave 3`, `state`; the end of stdin means that all leave. What
happens goes to stdout, one JSON object a line, flushed before the offsets of the records it tells of are
committed: a record that nobody told of is read again by somebody else. Whatever a member fails of is told
too; `state` asks what each member is doing. librdkafka's own log goes to stderr.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
import traceback
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

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
        self.polled_at = time.monotonic()
        self.doing = "starts"
        self.owned: set[int] = set()
        self.generation = -1
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        """A member whose thread ended would go on sending heartbeats, and nobody would take part for it."""
        try:
            self.live()
        except BaseException:
            tell(member=self.number, how="failed", error=traceback.format_exc())
            self.doing = "has failed"

    def live(self) -> None:
        client = Consumer(self.settings | {"client.id": f"hand-{self.number}"})
        client.subscribe(
            [self.topic],
            on_assign=lambda _, gained: self.moved(client, "gained", gained),
            on_revoke=lambda _, given: self.moved(client, "gave up", given),
            on_lost=lambda _, lost: self.moved(client, "lost", lost),
        )
        while not self.leaving.is_set():
            self.doing, self.polled_at = "polls", time.monotonic()
            messages = [message for message in client.consume(500, POLL_S) if self.is_record(message)]
            if messages:
                tell(member=self.number, processed=[int(message.value()) for message in messages])
                self.doing = "commits"
                self.commit(client)
        self.doing = "closes"
        client.close()
        self.doing = "has left"
        tell(member=self.number, how="left")

    def is_record(self, message: Message) -> bool:
        error = message.error()
        if error is not None:
            how = "failed" if error.fatal() else "noticed"
            tell(member=self.number, how=how, error=str(error))
        return error is None

    def moved(self, client: Consumer, how: str, partitions: list[TopicPartition]) -> None:
        """A callback of librdkafka's, which must not raise: the call that it interrupts, or `close`, would
        fail with it, and with an error that tells nothing.
        """
        try:
            places = [partition.partition for partition in partitions]
            if how == "gained":  # a client that closes may not know its group any more
                self.generation = generation(client)
            self.owned = self.owned | set(places) if how == "gained" else self.owned - set(places)
            tell(member=self.number, how=how, places=places, generation=self.generation)
        except BaseException:
            tell(member=self.number, how="failed", error=f"{how}: {traceback.format_exc()}")

    def commit(self, client: Consumer) -> None:
        try:
            client.commit(asynchronous=False)
        except KafkaException as failure:
            if failure.args[0].code() not in EXPECTED and not failure.args[0].retriable():
                tell(member=self.number, how="failed", error=str(failure))

    def tell_state(self) -> None:
        """What its thread is doing, also if it hangs."""
        is_alive = self.thread.is_alive()
        frame = sys._current_frames().get(self.thread.ident or 0) if is_alive else None
        tell(
            member=self.number,
            how="state",
            state={
                "doing": self.doing,
                "is_alive": is_alive,
                "is_leaving": self.leaving.is_set(),
                "seconds_since_poll": round(time.monotonic() - self.polled_at, 2),
                "owned": sorted(self.owned),
                "generation": self.generation,
                "stack": [] if frame is None else traceback.format_stack(frame)[-3:],
            },
        )


def main() -> None:
    settings, topic = json.loads(sys.argv[1]), sys.argv[2]
    hands: dict[int, Hand] = {}
    for line in sys.stdin:
        order, *number = line.split()
        if order == "join":
            hands[int(number[0])] = Hand(int(number[0]), settings, topic)
        elif order == "leave":
            hands[int(number[0])].leaving.set()
        else:
            for hand in hands.values():
                hand.tell_state()
    for hand in hands.values():
        hand.leaving.set()
    for hand in hands.values():
        hand.thread.join()


if __name__ == "__main__":
    main()
