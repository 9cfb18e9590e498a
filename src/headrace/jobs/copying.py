"""Copies of a topic into another one, exactly once: each batch is a transaction with records and cursor.

A run takes over the job's transactional id first. That aborts the open batch of a run that was killed, and
refuses every later write of a run that still lives. Then it reads the cursor and continues there. Records
keep the order of their source partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.base.moments import AtOffset, Edge, Moment, parse_moment
from headrace.client.admin.topics import TopicDescription
from headrace.client.cluster import TopicPartition
from headrace.client.errors import KafkaError
from headrace.client.threads.admin import Admin
from headrace.client.threads.consumer import Consumer
from headrace.client.threads.producer import Producer
from headrace.client.threads.ranges import resolve
from headrace.jobs.cursor import Cursor, CursorTopic
from headrace.jobs.errors import JobFailed
from headrace.jobs.options import Options
from headrace.jobs.progress import Batch
from headrace.jobs.work import Work, wall_ms
from headrace.protocol.errors import ErrorCode
from headrace.records._messages import Message

# Of one transaction: what a kill makes the next run do again, and what other readers wait for.
BATCH_RECORDS: Final = 10_000
BATCH_BYTES: Final = 16 * 2**20
POLL_S: Final = 0.5
NEW_PARTITIONS_S: Final = 30.0  # how often a continuous copy looks for them

log = logging.getLogger("headrace.jobs")


class Outgoing(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None  # None: by the key
    timestamp_ms: int | None  # None: the time of writing
    is_dead_letter: bool = False


Transform = Callable[[Message], Outgoing | None]  # None: the record is skipped


@dataclass(frozen=True, slots=True)
class CopyOptions:
    source: str
    target: str
    begin: str
    end: str | None
    records_per_s: int
    bytes_per_s: int
    allows_loss: bool

    @property
    def batch_records(self) -> int:
        """With a rate, a batch takes about a second: no transaction stays open for long."""
        return min(BATCH_RECORDS, self.records_per_s or BATCH_RECORDS)

    @property
    def batch_bytes(self) -> int:
        return min(BATCH_BYTES, self.bytes_per_s or BATCH_BYTES)


def parse_copy(options: Options) -> CopyOptions:
    found = CopyOptions(
        options.text("source"),
        options.text("target"),
        options.text("from", "earliest"),
        options.optional("to"),
        options.number("rate", 0, minimum=1) or 0,
        options.number("rate_bytes", 0, minimum=1) or 0,
        options.flag("allow_loss"),
    )
    if found.source == found.target:
        raise options.wrong("target", "must be another topic than the source: the copy would copy itself")
    for name, text in (("from", found.begin), ("to", found.end)):
        try:
            if text is not None:
                parse_moment(text, wall_ms=0)
        except ValueError as error:
            raise options.wrong(name, str(error)) from None
    return found


class Copy:
    def __init__(self, options: CopyOptions, transform: Transform, work: Work) -> None:
        self._options = options
        self._transform = transform
        self._work = work
        self._name = f"{work.topic}-{work.job}"  # transactional id, and the group for people
        self._last_ms: dict[TopicPartition, int] = {}  # timestamp of the last record

    def run(self) -> bool:
        """Copy until the end, or until asked to stop; return whether the end was reached."""
        settings = self._work.settings(
            "producer",
            transactional_id=self._name,
            headrace_rate_records=self._options.records_per_s,
            headrace_rate_bytes=self._options.bytes_per_s,
        )
        with self._work.admin() as admin, Producer(settings) as producer:
            source = admin.describe_topic(self._options.source)
            admin.describe_topic(self._options.target)  # an error now, not at the first record
            producer.init_transactions()
            cursors = CursorTopic(self._work, admin)
            cursor = self._cursor(cursors.read(), source)
            starts = self._starts(admin, source, cursor)
            ends = None if self._follows else self._ends(admin, list(starts))
            with Consumer(self._consumer_settings()) as consumer:
                consumer.assign(starts)
                return self._copy(admin, producer, consumer, cursors, cursor, ends)

    @property
    def _follows(self) -> bool:
        return self._work.is_continuous and self._options.end is None

    def _consumer_settings(self) -> dict[str, object]:
        return self._work.settings(
            "consumer",
            isolation_level="read_committed",
            auto_offset_reset="none",
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            max_poll_records=self._options.batch_records,
        )

    # --- where to begin and to end -------------------------------------------------------------------------

    def _cursor(self, found: Cursor | None, source: TopicDescription) -> Cursor:
        fresh = Cursor(source.name, source.topic_id, self._work.generation)
        if found is None or found.generation != self._work.generation:
            return fresh
        if found.source != source.name or found.topic_id != source.topic_id:
            what = (
                f"topic {source.name!r} was deleted and created again"
                if found.source == source.name
                else f"the job copied topic {found.source!r} before, and now {source.name!r}"
            )
            raise JobFailed(
                f"{what}: its cursor does not fit",
                f"`headrace jobs run {self._work.job} --again` begins at the start; or use another name.",
            )
        return found

    def _starts(self, admin: Admin, source: TopicDescription, cursor: Cursor) -> dict[TopicPartition, int]:
        """The next offset of each partition, after those that the cursor names."""
        partitions = source.all_partitions()
        first = resolve(admin, partitions, Edge.EARLIEST)
        last = resolve(admin, partitions, Edge.LATEST)
        asked = resolve(
            admin, partitions, self._moment(self._options.begin), isolation_level="read_committed"
        )
        starts = {}
        for at in partitions:
            if at.partition not in cursor.offsets:
                starts[at] = min(max(asked[at], first[at]), last[at])
                continue
            start = cursor.offsets[at.partition]
            if start > last[at]:
                raise JobFailed(
                    f"{at} ends at offset {last[at]}, and {start} offsets were copied: the log was cut",
                    f"`headrace jobs run {self._work.job} --again` begins at the start.",
                )
            if start < first[at]:
                self._lose(at, start, first[at])
            starts[at] = max(start, first[at])
        return starts

    def _lose(self, at: TopicPartition, start: int, end: int) -> None:
        text = f"offsets {start} to {end - 1} of {at} were deleted before they were copied"
        if not self._options.allows_loss:
            raise JobFailed(text, "Set `allow_loss: true` to go on without them.")
        log.error("%s", text)

    def _ends(self, admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        ends = resolve(admin, partitions, Edge.LATEST, isolation_level="read_committed")
        if self._options.end is None:
            return ends
        moment = self._moment(self._options.end)
        asked = resolve(admin, partitions, moment, isolation_level="read_committed")
        if isinstance(moment, AtOffset):
            return asked  # perhaps of records that are still to come
        return {at: min(asked[at], ends[at]) for at in partitions}

    @staticmethod
    def _moment(text: str) -> Moment:
        return parse_moment(text, wall_ms=wall_ms())

    # --- batches -------------------------------------------------------------------------------------------

    def _copy(
        self,
        admin: Admin,
        producer: Producer,
        consumer: Consumer,
        cursors: CursorTopic,
        cursor: Cursor,
        ends: dict[TopicPartition, int] | None,
    ) -> bool:
        looked_s = time.monotonic()
        while not self._work.is_stopping():
            if ends is not None:
                left = {at: consumer.position(at) for at in consumer.assignment}
                left = {at: position for at, position in left.items() if position < ends[at]}
                if not left:
                    self._tell_lag(consumer, ends)
                    return True
                if len(left) < len(consumer.assignment):
                    consumer.assign(left)
            elif time.monotonic() - looked_s > NEW_PARTITIONS_S:
                looked_s = time.monotonic()
                self._add_partitions(admin, consumer)
            for messages in self._batches(self._poll(consumer), ends):
                self._write(producer, messages, cursors, cursor)
                if self._work.is_stopping():
                    break
            self._tell_lag(consumer, ends)
        return False

    def _poll(self, consumer: Consumer) -> list[Message]:
        try:
            return consumer.poll(POLL_S)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise JobFailed(
                f"records were deleted before they were copied: {error}",
                "Set `allow_loss: true` to go on without them.",
                is_retriable=self._options.allows_loss,
            ) from error

    def _batches(
        self, messages: list[Message], ends: dict[TopicPartition, int] | None
    ) -> Iterator[list[Message]]:
        """What was read, in transactions of a limited size."""
        batch: list[Message] = []
        size = 0
        for message in messages:
            if ends is not None and message.offset >= ends[TopicPartition(message.topic, message.partition)]:
                continue
            batch.append(message)
            size += len(message.key or b"") + len(message.value or b"")
            if size >= self._options.batch_bytes:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _write(
        self, producer: Producer, messages: list[Message], cursors: CursorTopic, cursor: Cursor
    ) -> None:
        progress = self._work.progress
        began_s = time.monotonic()
        spans: dict[str, tuple[int, int]] = {}
        next_offsets: dict[TopicPartition, int] = {}
        written = dead = 0
        with producer.transaction():
            for message in messages:
                at = TopicPartition(message.topic, message.partition)
                spans[str(at)] = (spans.get(str(at), (message.offset, 0))[0], message.offset + 1)
                next_offsets[at] = message.offset + 1
                self._last_ms[at] = message.timestamp_ms
                record = self._transform(message)
                if record is None:
                    continue
                written += not record.is_dead_letter
                dead += record.is_dead_letter
                producer.send(
                    record.topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=record.headers,
                )
            for at, offset in next_offsets.items():
                cursor.offsets[at.partition] = offset
            cursors.write(producer, cursor)
            producer.send_offsets(next_offsets, self._name)
        progress.records_in += len(messages)
        progress.records_out += written
        progress.dead_letters += dead
        progress.skipped += len(messages) - written - dead
        took_ms = round((time.monotonic() - began_s) * 1000)
        progress.add(Batch(spans, self._options.target, len(messages), took_ms, wall_ms()))

    def _tell_lag(self, consumer: Consumer, ends: dict[TopicPartition, int] | None) -> None:
        """How far behind the copy is: behind the ends of the run, or of the topic."""
        records, late_ms = 0, 0
        for at in consumer.assignment:
            lag = consumer.lag(at) if ends is None else max(0, ends[at] - consumer.position(at))
            records += lag or 0
            if lag:
                last_ms = self._last_ms.get(at, -1)
                late_ms = max(late_ms, wall_ms() - last_ms if last_ms >= 0 else 0)
        self._work.progress.lag_records = records
        self._work.progress.lag_ms = late_ms
        self._work.report()

    def _add_partitions(self, admin: Admin, consumer: Consumer) -> None:
        known = consumer.assignment
        new = [at for at in admin.describe_topic(self._options.source).all_partitions() if at not in known]
        if new:
            log.info("new partitions: %s", ", ".join(map(str, new)))
            first = resolve(admin, new, Edge.EARLIEST)
            positions = {at: consumer.position(at) for at in known}
            consumer.assign(positions | first)
