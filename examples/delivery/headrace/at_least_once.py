"""At least once, with Headrace's own client: a record is never lost, but may be handled twice.

The offset is committed *after* the work is done. If the process dies in between, the next one does that work
again; so it should be work that may be done twice, such as writing a row under the record's own key.

    python examples/delivery/headrace/at_least_once.py localhost:9092 orders handled.txt
"""

import sys

from headrace import Consumer


def main(bootstrap: str, topic: str, ledger: str) -> None:
    with (
        Consumer(
            bootstrap,
            group_id="at-least-once",
            group_instance_id="worker-1",  # a restarted worker takes its place back at once
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        open(ledger, "ab", buffering=0) as handled,
    ):
        consumer.subscribe([topic])
        for message in consumer:
            handled.write(message.value + b"\n")  # first do the work …
            consumer.commit(message)  # … then say that it is done


if __name__ == "__main__":
    main(*sys.argv[1:])
