"""Sinks: programs that write batch by batch, in many attempts, each batch whole and once. Headrace's own."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.client.admin.cluster import broker_ids
from headrace.client.admin.operation import (
    Ask,
    CoordinatorOf,
    OfBroker,
    Operation,
    Sent,
    ask_all,
    ask_one,
    check,
)
from headrace.client.coordinator import CoordinatorKind
from headrace.protocol.messages.abort_sink import AbortSinkRequest
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt
from headrace.protocol.messages.list_sinks import ListSinksRequest
from headrace.protocol.messages.reset_sink import ResetSinkRequest

NO_BATCH = -1


class Sink(NamedTuple):
    """A sink and how far it is.

    >>> [sink.app_id for sink in admin.list_sinks() if sink.batch_id is not None]
    []
    """

    app_id: str
    query_id: str
    run_id: str
    committed_batch_id: int | None  # None: nothing was committed yet
    batch_id: int | None  # the one that is being written
    open_attempts: int
    ending_attempts: int
    producer_ids: list[int]  # of these attempts
    updated_ms: int
    coordinator: int


def coordinator_of(app_id: str) -> CoordinatorOf:
    return CoordinatorOf(CoordinatorKind.SINK, app_id)


def list_sinks() -> Operation[list[Sink]]:
    """Of all coordinators, by name; `UnsupportedByBroker` of a cluster that has no sinks.

    >>> [sink.app_id for sink in admin.list_sinks() if sink.open_attempts]
    []
    """

    def read(answer: Any, sent: Sent[int]) -> dict[int, list[Sink]]:
        check(answer.error_code, subject=f"broker {sent.broker_id}")
        return {broker: [_sink(told, broker) for told in answer.sinks] for broker in sent.subjects}

    targets = {broker: OfBroker(broker) for broker in (yield from broker_ids())}
    found = yield from ask_all(Ask("listing sinks", targets, lambda *_: ListSinksRequest(), read))
    return sorted((sink for one in found.values() for sink in one), key=lambda sink: sink.app_id)


def _sink(told: Any, coordinator: int) -> Sink:
    return Sink(
        told.app_id,
        told.query_id,
        told.run_id,
        None if told.committed_batch_id == NO_BATCH else told.committed_batch_id,
        None if told.batch_id == NO_BATCH else told.batch_id,
        told.open_attempts,
        told.ending_attempts,
        told.producer_ids,
        told.updated_ms,
        coordinator,
    )


def commit_sink(
    app_id: str, query_id: str, run_id: str, batch_id: int, attempts: Iterable[tuple[int, int]]
) -> Operation[None]:
    """Exactly these attempts, by producer id and epoch, make up the batch; all others are aborted.

    May be asked again: a batch is committed once. If one of the attempts is not open any more, nothing is
    committed.

    >>> admin.commit_sink("copies", "query", "run-1", 0, [])
    """
    request = CommitSinkRequest(
        app_id=app_id,
        query_id=query_id,
        run_id=run_id,
        batch_id=batch_id,
        attempts=[
            CommittedAttempt(producer_id=producer_id, producer_epoch=epoch) for producer_id, epoch in attempts
        ],
    )
    yield from _order(f"committing batch {batch_id} of sink {app_id!r}", app_id, request)


def abort_sink(app_id: str, query_id: str, run_id: str) -> Operation[None]:
    """All that the run has written and not committed never counts.

    >>> admin.abort_sink("copies", "query", "run-1")
    """
    request = AbortSinkRequest(app_id=app_id, query_id=query_id, run_id=run_id)
    yield from _order(f"aborting what sink {app_id!r} has open", app_id, request)


def reset_sink(app_id: str) -> Operation[None]:
    """The sink forgets which batches it has; another query may take its name. What it wrote stays, and what
    is written again is there twice. TRANSACTIONAL_ID_NOT_FOUND if there is no such sink.

    >>> admin.commit_sink("yesterday", "query", "run-1", 0, [])
    >>> admin.reset_sink("yesterday")
    """
    yield from _order(f"resetting sink {app_id!r}", app_id, ResetSinkRequest(app_id=app_id))


def _order(what: str, app_id: str, request: Any) -> Operation[None]:
    def read(answer: Any) -> None:
        check(answer.error_code, answer.error_message, subject=f"sink {app_id!r}")

    yield from ask_one(what, coordinator_of(app_id), lambda _: request, read)
