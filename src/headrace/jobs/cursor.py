"""How far a copy is: a record of a compacted topic that is written in the transaction of each batch.

So records and cursor are there together, or neither is. Unlike the offsets of a group, a cursor does not
expire, and nobody moves it by accident. The same offsets are committed for a group, for people and for
retention that waits; they decide nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Final

from headrace.client.admin.offsets import OffsetAt
from headrace.client.cluster import TopicPartition
from headrace.client.errors import TimedOut
from headrace.client.threads.admin import Admin
from headrace.client.threads.consumer import Consumer
from headrace.client.threads.producer import Producer
from headrace.jobs.file import cursors_of
from headrace.jobs.state_topic import partition_of
from headrace.jobs.work import Work

# Longer than a transaction stays open whose job was killed: cursors behind it cannot be read before.
READ_S: Final = 120.0
POLL_S: Final = 0.5


@dataclass(slots=True)
class Cursor:
    source: str
    topic_id: str
    generation: int
    offsets: dict[int, int] = field(default_factory=dict)  # partition → the next offset to copy


class CursorTopic:
    def __init__(self, work: Work, admin: Admin) -> None:
        self._work = work
        self._admin = admin
        self._topic = cursors_of(work.topic)
        partitions = len(admin.describe_topic(self._topic).partitions)
        self._at = TopicPartition(self._topic, partition_of(work.job, partitions))

    def read(self) -> Cursor | None:
        """The cursor of this job; call it after `init_transactions`, which ends what an older run left open.

        Transactions of other jobs may be open in the partition: it is read up to its very end, because our
        own last cursor may be behind them.
        """
        end = self._admin.list_offsets({self._at: OffsetAt.LATEST})[self._at].offset or 0
        settings = self._work.settings(
            "consumer",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        found: bytes | None = None
        until = time.monotonic() + READ_S
        with Consumer(settings) as consumer:
            consumer.assign({self._at: 0})
            consumer.seek_to_beginning()
            while consumer.position(self._at) < end:
                for message in consumer.poll(POLL_S):
                    if message.key == self._work.job.encode():
                        found = message.value
                if time.monotonic() > until:
                    raise TimedOut(f"the cursor of job {self._work.job} was not read within {READ_S:g} s")
        if found is None:
            return None
        facts = json.loads(found)
        facts["offsets"] = {int(partition): offset for partition, offset in facts["offsets"].items()}
        return Cursor(**facts)

    def write(self, producer: Producer, cursor: Cursor) -> None:
        """Inside the transaction of a batch."""
        producer.send(
            self._topic,
            json.dumps(asdict(cursor)).encode(),
            self._work.job.encode(),
            partition=self._at.partition,
        )
