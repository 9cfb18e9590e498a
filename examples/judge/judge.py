"""A worker of the judge: runs submitted programs with limits, and publishes one verdict for each.

    python examples/judge/judge.py --worker 1

Start as many as there are cores. Programs run before the transaction begins, which is short therefore: it has
the verdicts and the group's progress. A worker that is killed leaves both or nothing, and the next one runs
the same programs again.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import bounded
import contest

from headrace import JSON, Consumer, Producer, TransactionMustAbort

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
GROUP = "judge"


def verdict_of(submission: dict[str, Any]) -> dict[str, Any]:
    verdict = bounded.judge(submission.pop("program"), contest.TESTS[submission["problem"]])
    return submission | {"verdict": verdict}


def work(servers: str, worker: str, batch: int) -> None:
    with (
        Consumer(
            servers,
            group_id=GROUP,
            group_instance_id=f"worker-{worker}",  # after a restart it gets its partitions back at once
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            value_deserializer=JSON,
        ) as consumer,
        Producer(servers, transactional_id=f"judge-{worker}", value_serializer=JSON) as producer,
    ):
        producer.init_transactions()  # aborts what this worker left open when it was killed
        consumer.subscribe([contest.SUBMISSIONS])
        while True:
            messages = consumer.poll(0.5, max_records=batch)
            verdicts = [verdict_of(message.value) for message in messages]
            if not messages:
                continue
            try:
                with producer.transaction():
                    for verdict in verdicts:
                        producer.send(contest.VERDICTS, verdict, verdict["team"])
                    following = {(m.topic, m.partition): m.offset + 1 for m in messages}
                    producer.send_offsets(following, consumer)
            except TransactionMustAbort:  # it is aborted by now: from the last committed offsets once more
                for place, committed in consumer.committed(consumer.assignment).items():
                    consumer.seek(place, 0 if committed is None else committed.offset)


def main() -> None:
    parser = argparse.ArgumentParser(description="Judges submitted programs.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--worker", required=True, help="a name of its own, the same after a restart")
    parser.add_argument("--batch", type=int, default=4, help="programs of a transaction at most")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    work(chosen.servers, chosen.worker, chosen.batch)


if __name__ == "__main__":
    main()
