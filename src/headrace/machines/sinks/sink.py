"""State of one sink, and its transitions.

    an attempt:  OPEN ──commit names it──► COMMITTING ──markers──► gone, its producer is a spare one
                 OPEN ──commit leaves it out, abort, another run, timeout──► ABORTING ──markers──► gone

`committed_batch_id` changes in the same batch of records as the attempts that make up the batch, so that a
batch is written completely and once. Every transition returns a new value; `sink_records.py` says what of it
is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from headrace.machines.transactions.transaction import TopicPartition, is_exhausted

NO_BATCH = -1

# Producers that wait for the next attempt. A batch's tasks come again with the next batch. Each has a record
# of some 50 bytes; those beyond are forgotten, and the next batch gets new ones.
SPARES_MAX = 1_000
# Runs that cannot come back. Each start of the query is one, and their tasks do not live for long.
PAST_RUNS_MAX = 16

ProducerId = int
FreshId = Callable[[], ProducerId]

_new = tuple.__new__  # without the call in Python that a named tuple costs


class Status(IntEnum):
    """The numbers are those of the log."""

    OPEN = 0
    COMMITTING = 1
    ABORTING = 2
    SPARE = 3  # of a producer without an attempt


class Attempt(NamedTuple):
    """One try to write one task's part of a batch, with a producer of its own. A batch may have ten thousand:
    for a named tuple a change takes a quarter of the time of a frozen dataclass.
    """

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
        """How its task identifies it."""
        return self.task, self.number

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def ended(self, status: Status) -> Attempt:
        producer_id, epoch, task, number, _, partitions = self
        return _new(Attempt, (producer_id, epoch, task, number, status, partitions))


@dataclass(slots=True)
class Sink:
    """Changed in place by replay alone; attempts and spare producers by the id of their producer."""

    app_id: str
    query_id: str = ""  # empty: it was reset, whoever comes next may have it
    run_id: str = ""  # empty: nobody has it now
    past_run_ids: tuple[str, ...] = ()
    committed_batch_id: int = NO_BATCH
    batch_id: int = NO_BATCH  # that of the open attempts
    attempts: dict[ProducerId, Attempt] = field(default_factory=dict)
    spares: dict[ProducerId, int] = field(default_factory=dict)  # the epoch to use next
    timeout_ms: int = 0
    updated_ms: int = 0
    is_passing: bool = False  # nobody will write another batch: the ledger is kept for a while only
    # a record before version 1 says all of it: the next change writes a record for each producer
    is_of_one_record: bool = field(default=False, compare=False)

    @property
    def open_attempts(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.is_open]

    @property
    def ending_attempts(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts.values() if not attempt.is_open]

    @property
    def has_open_attempts(self) -> bool:
        return any(attempt.is_open for attempt in self.attempts.values())

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
        """Begins another batch: attempts of the batch before that were not committed can no longer count."""
        return replace(self.aborted(now_ms), batch_id=batch_id)

    def joined(
        self, now_ms: int, task: int, number: int, timeout_ms: int, fresh_id: FreshId, *, is_passing: bool
    ) -> Sink:
        spares = self.spares
        if spares:
            spares = spares.copy()
            producer_id = next(iter(spares))
            epoch = spares.pop(producer_id)
        else:
            producer_id, epoch = fresh_id(), 0
        attempt = Attempt(producer_id, epoch, task, number)
        return replace(
            self,
            attempts=self.attempts | {producer_id: attempt},
            spares=spares,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
            is_passing=is_passing,
        )

    def added(self, now_ms: int, producer_id: int, partitions: Iterable[TopicPartition]) -> Sink:
        attempt = self.attempts[producer_id]
        more = attempt._replace(partitions=attempt.partitions | frozenset(partitions))
        return replace(self, attempts=self.attempts | {producer_id: more}, updated_ms=now_ms)

    def committed(self, now_ms: int, batch_id: int, producers: set[tuple[int, int]]) -> Sink:
        """Commits the batch: from here on it counts."""
        attempts = self.attempts.copy()
        opened, committing, aborting = Status.OPEN, Status.COMMITTING, Status.ABORTING
        for producer_id, epoch, task, number, status, partitions in self.attempts.values():
            if status is opened:
                status = committing if (producer_id, epoch) in producers else aborting
                ended = (producer_id, epoch, task, number, status, partitions)
                attempts[producer_id] = _new(Attempt, ended)
        return replace(
            self, committed_batch_id=batch_id, batch_id=NO_BATCH, attempts=attempts, updated_ms=now_ms
        )

    def aborted(self, now_ms: int) -> Sink:
        attempts = {
            producer_id: each.ended(Status.ABORTING) if each.is_open else each
            for producer_id, each in self.attempts.items()
        }
        return replace(self, batch_id=NO_BATCH, attempts=attempts, updated_ms=now_ms)

    def reset(self, now_ms: int) -> Sink:
        forgotten = self.aborted(now_ms)
        return replace(forgotten, query_id="", run_id="", past_run_ids=(), committed_batch_id=NO_BATCH)

    def ended(self, now_ms: int, producer_ids: Iterable[ProducerId]) -> Sink:
        """The markers of attempts are written, with the epoch that each producer has from now on."""
        attempts, spares = self.attempts.copy(), self.spares.copy()
        for producer_id in producer_ids:
            epoch = attempts.pop(producer_id).producer_epoch + 1
            if len(spares) < SPARES_MAX and not is_exhausted(epoch):
                spares[producer_id] = epoch
        return replace(self, attempts=attempts, spares=spares, updated_ms=now_ms)
