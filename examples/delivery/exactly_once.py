"""Exactly once: what is read, what is written and how far we are belong to one transaction.

The work's result is a record in another topic, and the offset is committed in the same transaction. If the
process dies, the transaction is aborted: readers with `isolation.level=read_committed` never see its records,
and the next process begins where the last committed transaction ended. The transactional id must be the same
after a restart, for it fences the process that may still be alive somewhere.

    python examples/delivery/exactly_once.py localhost:9092 orders invoices
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


def main(bootstrap: str, source: str, target: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "exactly-once",
            "group.instance.id": "worker-1",  # a restarted worker takes its place back at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"exactly-once-{source}"})
    producer.init_transactions()  # aborts what a dead predecessor left open
    consumer.subscribe([source])
    while True:
        messages = [message for message in consumer.consume(50, 0.5) if not message.error()]
        if not messages:
            continue
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(target, message.value(), message.key())
            following = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
            producer.send_offsets_to_transaction(
                [TopicPartition(*place, offset) for place, offset in following.items()],
                consumer.consumer_group_metadata(),
            )
            producer.commit_transaction()
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise  # fenced: somebody else does this work now
            producer.abort_transaction()
            for place in consumer.committed(consumer.assignment()):
                consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


if __name__ == "__main__":
    main(*sys.argv[1:])
