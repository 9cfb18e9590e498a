"""Transactions and sinks: list and describe them, fence producers, abort what hangs, end a sink's batch.

A transaction hangs if a partition waits for its end and no coordinator knows about it: read_committed
consumers cannot read past it. A sink, which only Headrace has, is a transaction of many producers.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.admin.cluster import ask_every_broker
from headrace.client.admin.operation import (
    HEARSAY_S,
    Ask,
    CoordinatorOf,
    LeaderOf,
    Operation,
    Outcome,
    Sent,
    as_list,
    as_partition,
    ask_all,
    ask_one,
    by_partition,
    by_topic,
    check,
    failed,
    settled,
)
from headrace.client.admin.topics import list_topics
from headrace.client.cluster import TopicPartition
from headrace.client.coordinator import CoordinatorKind
from headrace.client.errors import UnsupportedByBroker
from headrace.protocol.messages.abort_sink import AbortSinkRequest
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_sinks import ListSinksRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.reset_sink import ResetSinkRequest
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NO_TRANSACTION = -1
ANY_DURATION = -1
STABLE_INIT_VERSION = 5  # later ones are for transactions in two phases, which nobody here prepares


class ListedTransaction(NamedTuple):
    """A transactional id in a list.

    >>> [one.state for one in admin.list_transactions() if one.transactional_id == "copier"]
    ['Empty']
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class Transaction(NamedTuple):
    """A transactional id and its current transaction.

    >>> admin.describe_transaction("copier").partitions
    []
    """

    transactional_id: str
    coordinator: int
    state: str
    timeout_ms: int
    started_ms: int | None  # None: none is under way
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]


class ProducerState(NamedTuple):
    """The state of a producer in a partition.

    >>> admin.describe_producers([("orders", 1)])
    {TopicPartition(topic='orders', partition=1): []}
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    open_since_offset: int | None  # where its open transaction begins; None: it has none


class OpenTransaction(NamedTuple):
    """A transaction that has not ended in a partition; `abort_transaction` ends it there.

    >>> admin.find_open_transactions([("orders", 0)])
    []
    """

    at: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class FencedProducer(NamedTuple):
    """The producer id and epoch of a transactional id after its producers were fenced.

    >>> admin.fence_producers(["copier"])["copier"].epoch >= 0
    True
    """

    producer_id: int
    epoch: int


# --- what coordinators know ------------------------------------------------------------------------------


def list_transactions(
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = ANY_DURATION,
    pattern: str | None = None,
) -> Operation[list[ListedTransaction]]:
    """All transactional ids.

    You can select those in some states (such as Ongoing), of some producers, with a transaction that is open
    for longer than a time, or with ids that match a regular expression.

    >>> [one.transactional_id for one in admin.list_transactions(states=["Empty"])]
    ['copier']
    """
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=sorted(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=pattern,
    )

    def read(answer: Any, sent: Sent[int]) -> dict[int, list[ListedTransaction]]:
        check(answer.error_code, subject=f"broker {sent.broker_id}")
        return {
            broker: [
                ListedTransaction(told.transactional_id, told.producer_id, told.transaction_state, broker)
                for told in answer.transaction_states
            ]
            for broker in sent.subjects
        }

    found = yield from ask_every_broker("listing transactions", request, read)
    return sorted(listed for one in found.values() for listed in one)


def describe_transaction(transactional_id: str) -> Operation[Transaction]:
    """The description of one transactional id; raises TRANSACTIONAL_ID_NOT_FOUND if it is unknown.

    >>> admin.describe_transaction("copier").state
    'Empty'
    """
    return (yield from describe_transactions([transactional_id]))[transactional_id]


def describe_transactions(transactional_ids: str | Iterable[str]) -> Operation[dict[str, Transaction]]:
    """The descriptions of transactional ids.

    >>> {name: one.started_ms for name, one in admin.describe_transactions(["copier"]).items()}
    {'copier': None}
    """

    def make(names: list[str], _: int) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=names)

    def read(answer: Any, sent: Sent[str]) -> Outcome[str, Transaction]:
        return {
            told.transactional_id: failed(
                told.error_code, subject=f"transactional id {told.transactional_id!r}"
            )
            or _transaction(told, sent.broker_id)
            for told in answer.transaction_states
        }

    targets = {name: CoordinatorOf(CoordinatorKind.TRANSACTION, name) for name in as_list(transactional_ids)}
    return (yield from ask_all(Ask("describing transactions", targets, make, read)))


def _transaction(told: Any, coordinator: int | None) -> Transaction:
    assert coordinator is not None
    return Transaction(
        told.transactional_id,
        coordinator,
        told.transaction_state,
        told.transaction_timeout_ms,
        told.transaction_start_time_ms if told.transaction_start_time_ms >= 0 else None,
        told.producer_id,
        told.producer_epoch,
        sorted(TopicPartition(topic.topic, index) for topic in told.topics for index in topic.partitions),
    )


def fence_producers(transactional_ids: str | Iterable[str]) -> Operation[dict[str, FencedProducer]]:
    """Fences the producers of these transactional ids, and aborts their open transactions.

    >>> list(admin.fence_producers(["copier"]))
    ['copier']
    """

    def make(names: list[str], timeout_ms: int) -> InitProducerIdRequest:
        (name,) = names
        return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)

    def read(answer: Any, sent: Sent[str]) -> dict[str, FencedProducer]:
        (name,) = sent.subjects
        check(answer.error_code, subject=f"transactional id {name!r}")
        return {name: FencedProducer(answer.producer_id, answer.producer_epoch)}

    targets = {name: CoordinatorOf(CoordinatorKind.TRANSACTION, name) for name in as_list(transactional_ids)}
    question = Ask("fencing producers", targets, make, read, version_max=STABLE_INIT_VERSION, is_alone=True)
    return (yield from ask_all(question))


# --- what partitions hold --------------------------------------------------------------------------------


def describe_producers(
    partitions: Iterable[tuple[str, int]],
) -> Operation[dict[TopicPartition, list[ProducerState]]]:
    """The idempotent and transactional producers of these partitions.

    >>> len(admin.describe_producers([("orders", 0)])["orders", 0])
    1
    """

    def make(asked: list[TopicPartition], _: int) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=[
                TopicRequest(name=topic, partition_indexes=[at.partition for at in some])
                for topic, some in by_topic(asked).items()
            ]
        )

    def states(told: Any) -> list[ProducerState]:
        return [
            ProducerState(
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                None if one.current_txn_start_offset == NO_TRANSACTION else one.current_txn_start_offset,
            )
            for one in told.active_producers
        ]

    def read(answer: Any, _: Sent[TopicPartition]) -> Outcome[TopicPartition, list[ProducerState]]:
        return by_partition(answer.topics, states)

    targets = {at: LeaderOf(at) for at in map(as_partition, partitions)}
    return (yield from ask_all(Ask("describing producers", targets, make, read, unknown_s=HEARSAY_S)))


def find_open_transactions(
    partitions: Iterable[tuple[str, int]] | None = None,
) -> Operation[list[OpenTransaction]]:
    """The open transactions in these partitions, or in all, the oldest first.

    >>> admin.find_open_transactions()
    []
    """
    if partitions is None:
        topics = yield from list_topics()
        partitions = [at for topic in topics for at in topic.all_partitions()]
    described = yield from describe_producers(partitions)
    found = [
        OpenTransaction(
            at,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.open_since_offset,
            producer.last_timestamp_ms,
        )
        for at, producers in described.items()
        for producer in producers
        if producer.open_since_offset is not None
    ]
    return sorted(found, key=lambda one: (one.last_timestamp_ms, one.at, one.producer_id))


def find_hanging_transactions(
    *, before_ms: int, partitions: Iterable[tuple[str, int]] | None = None
) -> Operation[list[OpenTransaction]]:
    """The open transactions without a write since a time that no coordinator will end.

    >>> admin.find_hanging_transactions(before_ms=1_700_000_000_000)
    []
    """
    opened = yield from find_open_transactions(partitions)
    candidates = [one for one in opened if one.last_timestamp_ms < before_ms]
    if not candidates:
        return []
    listed = yield from list_transactions(producer_ids={one.producer_id for one in candidates})
    known: dict[int, set[TopicPartition]] = {}
    described = yield from describe_transactions(one.transactional_id for one in listed)
    of_sinks = yield from _producers_of_sinks()
    candidates = [one for one in candidates if one.producer_id not in of_sinks]
    for transaction in described.values():
        known.setdefault(transaction.producer_id, set()).update(transaction.partitions)
    return hanging(candidates, known)


def _producers_of_sinks() -> Operation[set[int]]:
    """Producer ids of sinks: the sink coordinator ends their transactions, so they do not hang."""
    try:
        sinks = yield from list_sinks()
    except UnsupportedByBroker:
        return set()
    return {producer_id for sink in sinks for producer_id in sink.producer_ids}


def hanging(
    candidates: Iterable[OpenTransaction], known: Mapping[int, Collection[TopicPartition]]
) -> list[OpenTransaction]:
    """Those in partitions of which the producer's coordinator does not know; `known` is by producer id."""
    return [one for one in candidates if one.at not in known.get(one.producer_id, ())]


def abort_transaction(opened: OpenTransaction) -> Operation[None]:
    """Aborts a hanging transaction in a partition, by writing the marker that its coordinator did not write.

    >>> for hanging in admin.find_hanging_transactions(before_ms=0):
    ...     admin.abort_transaction(hanging)
    """
    marker = WritableTxnMarker(
        producer_id=opened.producer_id,
        producer_epoch=opened.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=opened.at.topic, partition_indexes=[opened.at.partition])],
        # a transaction that no coordinator ever heard of has no epoch of one
        coordinator_epoch=max(opened.coordinator_epoch, 0),
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    subject = f"producer {opened.producer_id}, "

    def read(answer: Any) -> None:
        for told in answer.markers:
            settled(by_partition(told.topics, lambda _: True, subject=subject))

    what = f"aborting a transaction in {opened.at}"
    yield from ask_one(what, LeaderOf(opened.at), lambda _: request, read)


NO_BATCH = -1


class Sink(NamedTuple):
    """A sink with its last committed and its current batch.

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


def list_sinks() -> Operation[list[Sink]]:
    """All sinks by name; raises `UnsupportedByBroker` if the broker is not Headrace.

    >>> [sink.app_id for sink in admin.list_sinks() if sink.open_attempts]
    []
    """

    def read(answer: Any, sent: Sent[int]) -> dict[int, list[Sink]]:
        check(answer.error_code, subject=f"broker {sent.broker_id}")
        return {broker: [_sink(told, broker) for told in answer.sinks] for broker in sent.subjects}

    found = yield from ask_every_broker("listing sinks", ListSinksRequest(), read)
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
    """Commits a batch: these attempts, by producer id and epoch, are committed, and all others are aborted.

    The call can be repeated: a batch is committed once. If one of the attempts is not open any more, nothing
    is committed.

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
    """Aborts everything that the run has written and not committed.

    >>> admin.abort_sink("copies", "query", "run-1")
    """
    request = AbortSinkRequest(app_id=app_id, query_id=query_id, run_id=run_id)
    yield from _order(f"aborting what sink {app_id!r} has open", app_id, request)


def reset_sink(app_id: str) -> Operation[None]:
    """Resets a sink, so that another query may use its name. Records that were written stay; if batches are
    written again, their records are there twice. Raises TRANSACTIONAL_ID_NOT_FOUND if the sink does not
    exist.

    >>> admin.commit_sink("yesterday", "query", "run-1", 0, [])
    >>> admin.reset_sink("yesterday")
    """
    yield from _order(f"resetting sink {app_id!r}", app_id, ResetSinkRequest(app_id=app_id))


def _order(what: str, app_id: str, request: Any) -> Operation[None]:
    def read(answer: Any) -> None:
        check(answer.error_code, answer.error_message, subject=f"sink {app_id!r}")

    yield from ask_one(what, CoordinatorOf(CoordinatorKind.SINK, app_id), lambda _: request, read)
