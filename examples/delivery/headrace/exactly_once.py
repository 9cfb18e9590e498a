"""Exactly once, with Headrace's own client: what is read, what is written and how far we are belong to one
transaction.

The work's result is a record in another topic, and the offset is committed in the same transaction. If the
process dies, the transaction is aborted: readers with `isolation.level=read_committed` never see its records,
and the next process begins where the last committed transaction ended. The transactional id must be the same
after a restart, for it fences the process that may still be alive somewhere.

    python examples/delivery/headrace/exactly_once.py localhost:9092 orders invoices
"""

import sys

from headrace import Consumer, Producer, TransactionMustAbort


def main(bootstrap: str, source: str, target: str) -> None:
    with (
        Consumer(
            bootstrap,
            group_id="exactly-once",
            group_instance_id="worker-1",  # a restarted worker takes its place back at once
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        Producer(bootstrap, transactional_id=f"exactly-once-{source}") as producer,
    ):
        producer.init_transactions()  # aborts what a dead predecessor left open
        consumer.subscribe([source])
        while True:
            messages = consumer.poll(0.5, max_records=50)
            if messages:
                try:
                    with producer.transaction():
                        for message in messages:
                            producer.send(target, message.value, message.key)
                        following = {(m.topic, m.partition): m.offset + 1 for m in messages}
                        producer.send_offsets(following, consumer)
                except TransactionMustAbort:  # it is aborted by now: the same records once more
                    for place, committed in consumer.committed(consumer.assignment).items():
                        consumer.seek(place, 0 if committed is None else committed.offset)


if __name__ == "__main__":
    main(*sys.argv[1:])
