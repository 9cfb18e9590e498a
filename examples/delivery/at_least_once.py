"""At least once: a record is never lost, but may be handled twice.

The offset is committed *after* the work is done. If the process dies in between, the next one does that work
again; so it should be work that may be done twice, such as writing a row under the record's own key.

    python examples/delivery/at_least_once.py localhost:9092 orders handled.txt
"""

import sys

from confluent_kafka import Consumer


def main(bootstrap: str, topic: str, ledger: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "at-least-once",
            "group.instance.id": "worker-1",  # a restarted worker takes its place back at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    with open(ledger, "ab", buffering=0) as handled:
        while True:
            message = consumer.poll(1.0)
            if message is None or message.error():
                continue
            handled.write(message.value() + b"\n")  # first do the work …
            consumer.commit(message, asynchronous=False)  # … then say that it is done


if __name__ == "__main__":
    main(*sys.argv[1:])
