"""The loop that all workers of this example share: read, work, then publish results and progress together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace import Consumer, Message, Producer, RebalanceListener, TransactionMustAbort

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def work(
    servers: str,
    source: str,
    group: str,
    worker: str,
    results: Callable[[list[Message]], list[Record]],
    *,
    batch: int,
    listener: RebalanceListener | None = None,
    forget: Callable[[], None] = lambda: None,
) -> None:
    """`results` may be called again for the same messages; its records count once. `forget` is called
    before that.
    """
    with (
        Consumer(
            servers,
            group_id=group,
            group_instance_id=worker,  # after a restart it gets its partitions back at once
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        Producer(servers, transactional_id=f"{group}-{worker}", transaction_timeout_ms=30_000) as producer,
    ):
        producer.init_transactions()  # aborts what this worker left open when it was killed
        consumer.subscribe([source], listener=listener)
        while True:
            messages = consumer.poll(0.5, max_records=batch)
            if not messages:
                continue
            records = results(messages)  # slow work is done before the transaction begins
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(record.topic, record.value, record.key, headers=record.headers)
                    following = {(m.topic, m.partition): m.offset + 1 for m in messages}
                    producer.send_offsets(following, consumer)
            except TransactionMustAbort:  # it is aborted by now: from the last committed offsets once more
                forget()
                for place, committed in consumer.committed(consumer.assignment).items():
                    consumer.seek(place, 0 if committed is None else committed.offset)
