"""The topic of a lake table: its offsets, its records, and the group whose progress the table is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from headrace.base.secret import Secret
from headrace.client.admin.configs import Resource
from headrace.client.admin.offsets import OffsetAt
from headrace.client.cluster import OffsetRange, TopicPartition
from headrace.client.threads.admin import Admin
from headrace.client.threads.range_reader import (
    Advice,
    ReadTask,
    TopicRecreated,
    read_range,
    recreated_text,
    task_settings,
)
from headrace.lake.errors import WrongTable
from headrace.lake.rows import TIMESTAMP, raw_rows
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.plan import Log

# How long a read waits for a broker that answers nothing, such as one that is restarted.
READ_TIMEOUT_S = 60.0

# Where the first record of a range is looked for: some offsets have none.
NEAR_OFFSETS = 1_000

ADVICE = Advice(
    lost="Copy again: the next run says which records are lost.",
    recreated="Make a new table for the new topic; the old table keeps the records of the old one.",
)


class LakeTopic:
    """Reads committed records only: those of open and aborted transactions are not copied."""

    def __init__(self, admin: Admin, settings: Mapping[str, str | Secret], name: str) -> None:
        """`settings` are those of a consumer."""
        self._admin = admin
        self._settings = dict(settings)
        self.name = name

    def topic_id(self) -> str:
        return self._admin.describe_topic(self.name).topic_id

    def logs(self, topic_id: str) -> dict[int, Log]:
        """Return the readable offsets of each partition; raise if the topic is not the one with this id."""
        topic = self._admin.describe_topic(self.name)
        if topic.topic_id != topic_id:
            raise WrongTable(recreated_text(self.name, topic_id, topic.topic_id, ADVICE))
        partitions = topic.all_partitions()
        first = self._admin.list_offsets(dict.fromkeys(partitions, OffsetAt.EARLIEST))
        last = self._admin.list_offsets(
            dict.fromkeys(partitions, OffsetAt.LATEST), isolation_level="read_committed"
        )
        return {
            at.partition: Log(first[at].offset or 0, max(first[at].offset or 0, last[at].offset or 0))
            for at in partitions
        }

    def read(
        self, topic_id: str, span: Span, *, isolation_level: str = "read_committed"
    ) -> Iterator[pa.Table]:
        """Yield the rows of the range in the order of their offsets."""
        at = TopicPartition(self.name, span.partition)
        task = ReadTask(
            OffsetRange(at, span.start, span.end),
            topic_id,
            task_settings(self._settings, isolation_level),
            READ_TIMEOUT_S,
            True,
            ADVICE,
        )
        if span.size <= 0:
            return
        try:
            with closing(read_range(task)) as found:  # type: ignore[type-var]
                for columns in found:
                    yield raw_rows(columns, span.end)
        except TopicRecreated as error:
            raise WrongTable(str(error)) from error

    def config(self, key: str) -> str:
        """Return a setting of the topic, or the broker's where the topic has none."""
        found = self._admin.describe_config(Resource.topic(self.name)).get(key)
        return "" if found is None else found.value or ""

    def is_compacted(self) -> bool:
        return "compact" in self.config("cleanup.policy")

    def first_time_ms(self, topic_id: str, span: Span) -> int | None:
        """Return the timestamp of the first record of a range; None if there is none, or it has none."""
        near = Span(span.partition, span.start, min(span.end, span.start + NEAR_OFFSETS))
        with closing(self.read(topic_id, near)) as tables:  # type: ignore[type-var]
            for table in tables:
                if table.num_rows:
                    micros = table[TIMESTAMP].cast(pa.int64())[0].as_py()
                    return None if micros is None else micros // 1000
        return None

    def commit(self, group: str, offsets: Mapping[int, int]) -> None:
        """Commit the table's progress as that of a group without members, which every tool can see."""
        by_partition = {TopicPartition(self.name, number): offset for number, offset in offsets.items()}
        if by_partition:
            self._admin.alter_group_offsets(group, by_partition)
