"""Records of sinks: which records a change writes, and how a record changes a sink.

A sink has a record of its own, and one for each of its producers: those with an attempt, and spare ones. A
change writes the records that differ, together in one batch. So a batch of a thousand tasks writes a few
records for each task. Compaction keeps the newest record of each key; after it, a producer's record may stand
before the record of its sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from headrace.machines.sinks.sink import Attempt, ProducerId, Sink, Status
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.sinks import (
    SinkKey,
    SinkPartitions,
    SinkProducerKey,
    SinkProducerValue,
    SinkValue,
)

NO_TASK = -1


def written(before: Sink, after: Sink) -> list[Record]:
    """The records of a change. A change of its time alone counts, too."""
    app_id = after.app_id
    if not after.query_id and not after.attempts:
        # it was reset, and all of it has ended
        producers = sorted(before.attempts.keys() | before.spares.keys())
        tombstones = [_gone(app_id, producer_id) for producer_id in producers]
        return [*tombstones, Record(SinkKey(app_id=app_id), None)]
    if before.is_of_one_record:
        return [_sink(after), *_producers(after, after.attempts, after.spares)]
    attempts = [
        producer_id
        for producer_id, attempt in after.attempts.items()
        if before.attempts.get(producer_id) is not attempt
    ]
    spares = [
        producer_id for producer_id, epoch in after.spares.items() if before.spares.get(producer_id) != epoch
    ]
    known = after.attempts.keys() | after.spares.keys()
    gone = sorted((before.attempts.keys() | before.spares.keys()) - known)
    records = _producers(after, attempts, spares)
    records += [_gone(app_id, producer_id) for producer_id in gone]
    if not (attempts or spares) or _own(before) != _own(after):
        records.insert(0, _sink(after))
    return records


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


def _producers(sink: Sink, attempts: Iterable[ProducerId], spares: Iterable[ProducerId]) -> list[Record]:
    records = []
    for producer_id in attempts:
        attempt = sink.attempts[producer_id]
        value = SinkProducerValue(
            producer_epoch=attempt.producer_epoch,
            status=attempt.status,
            task=attempt.task,
            attempt=attempt.number,
            topics=[
                SinkPartitions(topic=topic, partitions=[index for _, index in places])
                for topic, places in groupby(sorted(attempt.partitions), key=lambda place: place[0])
            ],
            updated_ms=sink.updated_ms,
        )
        records.append(Record(SinkProducerKey(app_id=sink.app_id, producer_id=producer_id), value))
    for producer_id in spares:
        value = SinkProducerValue(
            producer_epoch=sink.spares[producer_id],
            status=Status.SPARE,
            task=NO_TASK,
            attempt=NO_TASK,
            updated_ms=sink.updated_ms,
        )
        records.append(Record(SinkProducerKey(app_id=sink.app_id, producer_id=producer_id), value))
    return records


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
