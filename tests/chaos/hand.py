"""One member of a group in a process that may be killed at any moment.

Orders come on stdin, one a line: `leave`, `state`; the end of stdin means `leave` too. What happens goes to
stdout, one JSON object a line, flushed before the offsets of the records it names are committed: a record
that nobody named is read again by somebody else. An error of the member is printed too; `state` asks what the
member is doing. librdkafka's own log goes to stderr.

A client can freeze its whole process while it closes: after a rebalance callback confluent-kafka calls
`rd_kafka_rebalance_protocol` and `rd_kafka_assign` with the GIL held, and librdkafka never answers such a
call if the group terminates at that moment (https://github.com/confluentinc/librdkafka/issues/4041, 4884).
Therefore each member has its own process, and a process in which no Python thread can run writes the stacks
of its threads to a file.
"""

from __future__ import annotations

import faulthandler
import json
import os
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
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

    def __init__(
        self, number: int, settings: dict[str, Any], topic: str, consumer: type[Consumer] = Consumer
    ) -> None:
        self.number, self.settings, self.topic, self.consumer = number, settings, topic, consumer
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
        else:
            os._exit(0)  # the main thread still waits for orders

    def live(self) -> None:
        client = self.consumer(self.settings)
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
                tell(member=self.number, processed=[int(message.value() or b"") for message in messages])
                self.doing = "commits"
                self.commit(client)
        self.doing = "closes"
        tell(member=self.number, how="closes")
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


def watch(stacks: Path, frozen_after_s: float) -> None:
    """Writes all stacks to the file when this thread could not run for so long, and again each time after as
    long. The thread that writes them does not need the GIL.
    """
    with stacks.open("w") as file:
        while True:
            faulthandler.dump_traceback_later(frozen_after_s, repeat=True, file=file)
            time.sleep(frozen_after_s / 10)


def main(consumer: type[Consumer] = Consumer) -> None:
    number, settings, topic, stacks, frozen_after_s = sys.argv[1:]
    threading.Thread(target=watch, args=(Path(stacks), float(frozen_after_s)), daemon=True).start()
    hand = Hand(int(number), json.loads(settings), topic, consumer)
    for line in sys.stdin:
        if line.strip() == "leave":
            hand.leaving.set()
        else:
            hand.tell_state()
    hand.leaving.set()
    hand.thread.join()


if __name__ == "__main__":
    main()
