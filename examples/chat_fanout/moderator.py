"""The moderator: hides rude words and muted people, keeps the order of each chat, and loses nothing.

    python examples/chat_fanout/moderator.py --worker 1

A moderated message goes to the partition that it came from. Messages and progress are one transaction.
"""

from __future__ import annotations

import argparse
import signal

import people

from headrace import JSON, Consumer, Producer, TransactionMustAbort


def work(servers: str, worker: str, batch: int) -> None:
    with (
        Consumer(
            servers,
            group_id="moderators",
            group_instance_id=f"moderator-{worker}",  # after a restart it gets its partitions back at once
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            value_deserializer=JSON,
        ) as consumer,
        Producer(
            servers,
            transactional_id=f"moderator-{worker}",
            transaction_timeout_ms=30_000,  # readers wait no longer for a moderator that died
            value_serializer=JSON,
        ) as producer,
    ):
        producer.init_transactions()  # aborts what this worker left open when it was killed
        consumer.subscribe([people.MESSAGES])
        while True:
            messages = consumer.poll(0.5, max_records=batch)
            if not messages:
                continue
            try:
                with producer.transaction():
                    for message in messages:
                        seen = people.moderate(message.value)
                        if seen is not None:
                            producer.send(people.MODERATED, seen, message.key, partition=message.partition)
                    following = {(m.topic, m.partition): m.offset + 1 for m in messages}
                    producer.send_offsets(following, consumer)
            except TransactionMustAbort:  # it is aborted by now: from the last committed offsets once more
                for place, committed in consumer.committed(consumer.assignment).items():
                    consumer.seek(place, 0 if committed is None else committed.offset)


def main() -> None:
    parser = argparse.ArgumentParser(description="Moderates messages.")
    parser.add_argument("--servers", default=people.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--worker", required=True, help="a name of its own, the same after a restart")
    parser.add_argument("--batch", type=int, default=500, help="messages of a transaction at most")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    work(chosen.servers, chosen.worker, chosen.batch)


if __name__ == "__main__":
    main()
