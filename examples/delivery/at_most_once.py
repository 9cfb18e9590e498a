"""At most once: a record may be lost, but is never handled twice.

The offset is committed *before* the work is done. If the process dies in between, nobody does that work
again. Good for readings that the next reading replaces; wrong for payments.

    python examples/delivery/at_most_once.py localhost:9092 orders handled.txt
"""

import sys

from confluent_kafka import Consumer


def main(bootstrap: str, topic: str, ledger: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "at-most-once",
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
            consumer.commit(message, asynchronous=False)  # first give the record away for good …
            handled.write(message.value() + b"\n")  # … then do the work


if __name__ == "__main__":
    main(*sys.argv[1:])
