"""At most once, with Headrace's own client: a record may be lost, but is never handled twice.

The offset is committed *before* the work is done. If the process dies in between, nobody does that work
again. Good for readings that the next reading replaces; wrong for payments.

    python examples/delivery/headrace/at_most_once.py localhost:9092 orders handled.txt
"""

import sys

from headrace import Consumer


def main(bootstrap: str, topic: str, ledger: str) -> None:
    with (
        Consumer(
            bootstrap,
            group_id="at-most-once",
            group_instance_id="worker-1",  # a restarted worker takes its place back at once
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        open(ledger, "ab", buffering=0) as handled,
    ):
        consumer.subscribe([topic])
        for message in consumer:
            consumer.commit(message)  # first give the record away for good …
            handled.write(message.value + b"\n")  # … then do the work


if __name__ == "__main__":
    main(*sys.argv[1:])
