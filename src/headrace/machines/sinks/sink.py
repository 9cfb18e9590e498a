"""State of one sink, and its transitions.

    an attempt:  OPEN ──commit names it──► COMMITTING ──markers──► gone, its producer is a spare one
                 OPEN ──commit leaves it out, abort, another run, timeout──► ABORTING ──markers──► gone

`committed_batch_id` changes in the same record as the attempts that make up the batch, so that a batch is
written completely and once. Every transition returns a new value; its record has the whole state, so the
newest record is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby

from headrace.machines.transactions.transaction import TopicPartition, is_exhausted
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.sinks import (
    SinkAttempt,
    SinkKey,
    SinkPartitions,
    SinkValue,
    SpareProducer,
)

NO_BATCH = -1

# Producers that wait for the next attempt. A batch's tasks come again with the next batch; what is beyond
# would only lie in every record.
SPARES_MAX = 256
# Runs that cannot come back. Each start of the query is one, and their tasks do not live for long.
PAST_RUNS_MAX = 16

ProducerId = int
FreshId = Callable[[], ProducerId]


class Status(IntEnum):
    """The numbers are those of the log."""

    OPEN = 0
    COMMITTING = 1
    ABORTING = 2


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to write one task's part of a batch, with a producer of its own."""

    producer_id: int
    producer_epoch: int
    task: int
    number: int
    status: Status = Status.OPEN
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def is_open(self) -> bool:
        return self.status is Status.OPEN

    @property
    def name(self) -> tuple[int, int]:
        """By which its task knows it."""
        return self.task, self.number

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch


@dataclass(frozen=True, slots=True)
class Sink:
    app_id: str
    query_id: str = ""  # empty: it was reset, whoever comes next may have it
    run_id: str = ""  # empty: nobody has it now
    past_run_ids: tuple[str, ...] = ()
    committed_batch_id: int = NO_BATCH
    batch_id: int = NO_BATCH  # that of the open attempts
    attempts: tuple[Attempt, ...] = ()
    spares: tuple[tuple[int, int], ...] = ()  # producers without an attempt, with the epoch to use next
    timeout_ms: int = 0
    updated_ms: int = 0
    is_passing: bool = False  # nobody will write another batch: the ledger is kept for a while only

    @property
    def open_attempts(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.is_open]

    @property
    def ending_attempts(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if not attempt.is_open]

    def attempt_of(self, producer_id: int) -> Attempt | None:
        return next((each for each in self.attempts if each.producer_id == producer_id), None)

    # --- moves ------------------------------------------------------------------------------------------

    def taken_over(self, now_ms: int, query_id: str, run_id: str) -> Sink:
        """A new run of the query takes over: open attempts of the run before are aborted, and that run is
        refused.
        """
        free = self.given_up(now_ms) if self.run_id else self.aborted(now_ms)
        return replace(free, query_id=query_id, run_id=run_id)

    def given_up(self, now_ms: int) -> Sink:
        """The run has ended: later tasks of it are refused, because nobody would end their attempts."""
        past = (*self.past_run_ids, self.run_id)
        return replace(self.aborted(now_ms), run_id="", past_run_ids=past[-PAST_RUNS_MAX:])

    def begun(self, now_ms: int, batch_id: int) -> Sink:
        """Another batch: nothing of the one before that was not committed can count any more."""
        return replace(self.aborted(now_ms), batch_id=batch_id)

    def joined(
        self, now_ms: int, task: int, number: int, timeout_ms: int, fresh_id: FreshId, *, is_passing: bool
    ) -> Sink:
        if self.spares:
            (producer_id, epoch), *rest = self.spares
        else:
            producer_id, epoch, rest = fresh_id(), 0, []
        attempt = Attempt(producer_id, epoch, task, number)
        return replace(
            self,
            attempts=(*self.attempts, attempt),
            spares=tuple(rest),
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
            is_passing=is_passing,
        )

    def added(self, now_ms: int, producer_id: int, partitions: Iterable[TopicPartition]) -> Sink:
        return replace(
            self,
            attempts=tuple(
                replace(each, partitions=each.partitions | frozenset(partitions))
                if each.producer_id == producer_id
                else each
                for each in self.attempts
            ),
            updated_ms=now_ms,
        )

    def committed(self, now_ms: int, batch_id: int, producers: set[tuple[int, int]]) -> Sink:
        """The one moment at which the batch counts."""

        def ended(attempt: Attempt) -> Attempt:
            if not attempt.is_open:
                return attempt
            is_named = attempt.producer in producers
            return replace(attempt, status=Status.COMMITTING if is_named else Status.ABORTING)

        return replace(
            self,
            committed_batch_id=batch_id,
            batch_id=NO_BATCH,
            attempts=tuple(map(ended, self.attempts)),
            updated_ms=now_ms,
        )

    def aborted(self, now_ms: int) -> Sink:
        return replace(
            self,
            batch_id=NO_BATCH,
            attempts=tuple(
                replace(each, status=Status.ABORTING) if each.is_open else each for each in self.attempts
            ),
            updated_ms=now_ms,
        )

    def reset(self, now_ms: int) -> Sink:
        forgotten = self.aborted(now_ms)
        return replace(forgotten, query_id="", run_id="", past_run_ids=(), committed_batch_id=NO_BATCH)

    def ended(self, now_ms: int, producer_id: int) -> Sink:
        """The markers of an attempt are written, with the epoch that its producer has from now on."""
        attempt = self.attempt_of(producer_id)
        assert attempt is not None
        spares = self.spares
        if len(spares) < SPARES_MAX and not is_exhausted(attempt.producer_epoch + 1):
            spares = (*spares, (producer_id, attempt.producer_epoch + 1))
        return replace(
            self,
            attempts=tuple(each for each in self.attempts if each is not attempt),
            spares=spares,
            updated_ms=now_ms,
        )

    # --- the log ----------------------------------------------------------------------------------------

    def record(self) -> Record:
        if not self.query_id and not self.attempts:
            return Record(SinkKey(app_id=self.app_id), None)  # it was reset, and all of it has ended
        return Record(
            SinkKey(app_id=self.app_id),
            SinkValue(
                query_id=self.query_id,
                run_id=self.run_id,
                past_run_ids=list(self.past_run_ids),
                committed_batch_id=self.committed_batch_id,
                batch_id=self.batch_id,
                attempts=[_written(attempt) for attempt in self.attempts],
                spare_producers=[
                    SpareProducer(producer_id=producer_id, producer_epoch=epoch)
                    for producer_id, epoch in self.spares
                ],
                timeout_ms=self.timeout_ms,
                updated_ms=self.updated_ms,
                is_passing=self.is_passing,
            ),
        )


def _written(attempt: Attempt) -> SinkAttempt:
    return SinkAttempt(
        producer_id=attempt.producer_id,
        producer_epoch=attempt.producer_epoch,
        task=attempt.task,
        attempt=attempt.number,
        status=attempt.status,
        topics=[
            SinkPartitions(topic=topic, partitions=[index for _, index in places])
            for topic, places in groupby(sorted(attempt.partitions), key=lambda place: place[0])
        ],
    )


def recorded(app_id: str, value: SinkValue) -> Sink:
    """What a record says."""
    return Sink(
        app_id=app_id,
        query_id=value.query_id,
        run_id=value.run_id,
        past_run_ids=tuple(value.past_run_ids),
        committed_batch_id=value.committed_batch_id,
        batch_id=value.batch_id,
        attempts=tuple(
            Attempt(
                each.producer_id,
                each.producer_epoch,
                each.task,
                each.attempt,
                Status(each.status),
                frozenset((topic.topic, index) for topic in each.topics for index in topic.partitions),
            )
            for each in value.attempts
        ),
        spares=tuple((spare.producer_id, spare.producer_epoch) for spare in value.spare_producers),
        timeout_ms=value.timeout_ms,
        updated_ms=value.updated_ms,
        is_passing=value.is_passing,
    )
