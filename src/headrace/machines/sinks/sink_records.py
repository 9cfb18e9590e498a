"""Records of sinks: which records a change writes, and how a record changes a sink.

A sink has a record of its own, and one for each of its producers: those with an attempt, and spare ones. A
change writes the records that differ, together in one batch. So a batch of a thousand tasks writes a few
records for each task. Compaction keeps the newest record of each key; after it, a producer's record may stand
before the record of its sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import cast

from headrace.machines.sinks.sink import Attempt, ProducerId, Sink, Status
from headrace.machines.transactions.transaction import TopicPartition
from headrace.protocol._sink_attempts import encode_attempts
from headrace.protocol.coordinator_records import Record, encode
from headrace.protocol.coordinator_records.record import CompactRecords
from headrace.protocol.coordinator_records.sinks import (
    SinkKey,
    SinkPartitions,
    SinkProducerKey,
    SinkProducerValue,
    SinkValue,
)
from headrace.protocol.varint import encode_varint
from headrace.records import _codec

NO_TASK = -1

_Row = tuple[int, int, bytes, bytes | None, tuple[()]]  # offset delta, timestamp, key, value, no headers

_ID = Struct(">q").pack
_SPARE = Struct(">hhbiq").pack  # version 0, epoch, status, task, number of the attempt
_TAIL = Struct(">qB").pack  # time, no tags


def written(before: Sink, after: Sink) -> list[Record]:
    """The records of a change. A change of its time alone counts, too."""
    app_id = after.app_id
    if not after.query_id and not after.attempts:
        # it was reset, and all of it has ended
        producers = sorted(before.attempts.keys() | before.spares.keys())
        tombstones = [_gone(app_id, producer_id) for producer_id in producers]
        return [*tombstones, Record(SinkKey(app_id=app_id), None)]
    if before.is_of_one_record:
        return [_sink(after), *_producers(after)]
    attempts = [
        attempt
        for producer_id, attempt in after.attempts.items()
        if before.attempts.get(producer_id) is not attempt
    ]
    spares = [spare for spare in after.spares.items() if before.spares.get(spare[0]) != spare[1]]
    gone = sorted(
        producer_id
        for known in (before.attempts, before.spares)
        for producer_id in known
        if producer_id not in after.attempts and producer_id not in after.spares
    )
    says_own = not (attempts or spares) or _own(before) != _own(after)
    return cast(list[Record], SinkRecords(after, attempts, spares, gone, says_own=says_own))


class SinkRecords(CompactRecords):
    """The records of one change: of the sink itself, of producers with attempts, of spare ones, and of those
    that are gone. A commit may have ten thousand, which are encoded and replayed without an object for each.
    """

    __slots__ = ("_gone", "_own", "app_id", "attempts", "spares", "updated_ms")

    def __init__(
        self,
        after: Sink,
        attempts: list[Attempt],
        spares: list[tuple[ProducerId, int]],
        gone: list[ProducerId],
        *,
        says_own: bool,
    ) -> None:
        self._own = _sink(after) if says_own else None
        self.app_id = after.app_id
        self.attempts = attempts
        self.spares = spares
        self._gone = gone
        self.updated_ms = after.updated_ms

    def __len__(self) -> int:
        return (self._own is not None) + len(self.attempts) + len(self.spares) + len(self._gone)

    def __iter__(self) -> Iterator[Record]:
        if self._own is not None:
            yield self._own
        for attempt in self.attempts:
            yield _attempt_record(self.app_id, attempt, self.updated_ms)
        for producer_id, epoch in self.spares:
            yield _spare_record(self.app_id, producer_id, epoch, self.updated_ms)
        for producer_id in self._gone:
            yield _gone(self.app_id, producer_id)

    def changes(self) -> tuple[SinkRecords]:
        return (self,)

    def encoded(self, timestamp: int) -> bytes:
        app_id = self.app_id.encode()
        key = b"\0\1" + len(app_id).to_bytes(2, "big") + app_id
        tail = _TAIL(self.updated_ms, 0)
        parts = []
        delta = 0
        if self._own is not None:
            parts.append(_codec.encode([(timestamp, *encode(self._own), ())], timestamp))
            delta = 1
        if self.attempts:
            topics_of = cache(_topics)  # most tasks of a batch have the same partitions
            topics = [topics_of(attempt.partitions) for attempt in self.attempts]
            parts.append(encode_attempts(key, self.attempts, topics, tail, delta))
            delta += len(self.attempts)
        if self.spares or self._gone:
            spare = b"\1" + tail
            rows: list[_Row] = [
                (
                    delta,
                    timestamp,
                    key + _ID(producer_id),
                    _SPARE(0, epoch, Status.SPARE, NO_TASK, NO_TASK) + spare,
                    (),
                )
                for delta, (producer_id, epoch) in enumerate(self.spares, delta)
            ]
            for number, producer_id in enumerate(self._gone, delta + len(rows)):
                rows.append((number, timestamp, key + _ID(producer_id), None, ()))
            parts.append(_codec.encode_at(rows, 0, timestamp))
        return b"".join(parts)

    def replay(self, sinks: dict[str, Sink]) -> None:
        """What `replay` of each record does."""
        if self._own is not None:
            replay(sinks, self._own)
        sink = sinks.get(self.app_id)
        if sink is None:
            sink = sinks[self.app_id] = Sink(self.app_id)
        if self.attempts or self.spares:
            sink.updated_ms = self.updated_ms
        for attempt in self.attempts:
            sink.spares.pop(attempt[0], None)
            sink.attempts[attempt[0]] = attempt
        for producer_id, epoch in self.spares:
            sink.attempts.pop(producer_id, None)
            sink.spares[producer_id] = epoch
        for producer_id in self._gone:
            sink.attempts.pop(producer_id, None)
            sink.spares.pop(producer_id, None)


def _topics(partitions: frozenset[TopicPartition]) -> bytes:
    """The field `topics` of a producer's record."""
    topics = []
    for topic, places in groupby(sorted(partitions), key=itemgetter(0)):
        name = topic.encode()
        indexes = [index.to_bytes(4, "big", signed=True) for _, index in places]
        head = encode_varint(len(name) + 1) + name + encode_varint(len(indexes) + 1)
        topics.append(b"".join((head, *indexes, b"\0")))
    return encode_varint(len(topics) + 1) + b"".join(topics)


def _own(sink: Sink) -> tuple[object, ...]:
    """The content of the sink's own record, except the time."""
    return (
        sink.query_id,
        sink.run_id,
        sink.past_run_ids,
        sink.committed_batch_id,
        sink.batch_id,
        sink.timeout_ms,
        sink.is_passing,
    )


def _sink(sink: Sink) -> Record:
    return Record(
        SinkKey(app_id=sink.app_id),
        SinkValue(
            query_id=sink.query_id,
            run_id=sink.run_id,
            past_run_ids=list(sink.past_run_ids),
            committed_batch_id=sink.committed_batch_id,
            batch_id=sink.batch_id,
            timeout_ms=sink.timeout_ms,
            updated_ms=sink.updated_ms,
            is_passing=sink.is_passing,
        ),
    )


def _producers(sink: Sink) -> list[Record]:
    app_id, updated_ms = sink.app_id, sink.updated_ms
    records = [_attempt_record(app_id, attempt, updated_ms) for attempt in sink.attempts.values()]
    return records + [_spare_record(app_id, *spare, updated_ms) for spare in sink.spares.items()]


def _attempt_record(app_id: str, attempt: Attempt, updated_ms: int) -> Record:
    value = SinkProducerValue(
        producer_epoch=attempt.producer_epoch,
        status=attempt.status,
        task=attempt.task,
        attempt=attempt.number,
        topics=[
            SinkPartitions(topic=topic, partitions=[index for _, index in places])
            for topic, places in groupby(sorted(attempt.partitions), key=itemgetter(0))
        ],
        updated_ms=updated_ms,
    )
    return Record(SinkProducerKey(app_id=app_id, producer_id=attempt.producer_id), value)


def _spare_record(app_id: str, producer_id: ProducerId, epoch: int, updated_ms: int) -> Record:
    value = SinkProducerValue(
        producer_epoch=epoch, status=Status.SPARE, task=NO_TASK, attempt=NO_TASK, updated_ms=updated_ms
    )
    return Record(SinkProducerKey(app_id=app_id, producer_id=producer_id), value)


def _gone(app_id: str, producer_id: ProducerId) -> Record:
    return Record(SinkProducerKey(app_id=app_id, producer_id=producer_id), None)


# --- replay -------------------------------------------------------------------------------------------------


def replay(sinks: dict[str, Sink], record: Record) -> None:
    """Changes the sinks as the record says."""
    key, value = record
    if isinstance(key, SinkKey):
        if value is None:
            sinks.pop(key.app_id, None)
        else:
            assert isinstance(value, SinkValue)
            _replay_sink(sinks, key.app_id, value)
        return
    assert isinstance(key, SinkProducerKey)
    if value is None:
        sink = sinks.get(key.app_id)
        if sink is not None:
            sink.attempts.pop(key.producer_id, None)
            sink.spares.pop(key.producer_id, None)
        return
    assert isinstance(value, SinkProducerValue)
    _replay_producer(sinks.setdefault(key.app_id, Sink(key.app_id)), key.producer_id, value)


def _replay_sink(sinks: dict[str, Sink], app_id: str, value: SinkValue) -> None:
    before = sinks.get(app_id)
    is_of_one_record = value.attempts is not None
    sink = sinks[app_id] = Sink(
        app_id=app_id,
        query_id=value.query_id,
        run_id=value.run_id,
        past_run_ids=tuple(value.past_run_ids),
        committed_batch_id=value.committed_batch_id,
        batch_id=value.batch_id,
        timeout_ms=value.timeout_ms,
        updated_ms=value.updated_ms,
        is_passing=value.is_passing,
        is_of_one_record=is_of_one_record,
    )
    if is_of_one_record:
        for each in value.attempts or ():
            sink.attempts[each.producer_id] = _attempt(
                each.producer_id, each.producer_epoch, each.task, each.attempt, each.status, each.topics
            )
        for spare in value.spare_producers or ():
            sink.spares[spare.producer_id] = spare.producer_epoch
    elif before is not None and not before.is_of_one_record:
        sink.attempts, sink.spares = before.attempts, before.spares


def _replay_producer(sink: Sink, producer_id: ProducerId, value: SinkProducerValue) -> None:
    sink.updated_ms = value.updated_ms
    if value.status == Status.SPARE:
        sink.attempts.pop(producer_id, None)
        sink.spares[producer_id] = value.producer_epoch
    else:
        sink.spares.pop(producer_id, None)
        sink.attempts[producer_id] = _attempt(
            producer_id, value.producer_epoch, value.task, value.attempt, value.status, value.topics
        )


def _attempt(
    producer_id: ProducerId, epoch: int, task: int, number: int, status: int, topics: Iterable[SinkPartitions]
) -> Attempt:
    partitions = frozenset((each.topic, index) for each in topics for index in each.partitions)
    return Attempt(producer_id, epoch, task, number, Status(status), partitions)
