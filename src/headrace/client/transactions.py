"""Transactions: what coordinators know of them, what partitions hold open, and what hangs between the two.

A transaction hangs in a partition when the partition waits for its end and no coordinator knows that it ever
had to end there: readers of committed records stop at it for ever.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.client import Client
from headrace.client.cluster import TopicPartition
from headrace.client.coordinators import CoordinatorKind, Coordinators
from headrace.client.errors import KafkaError
from headrace.client.offsets import ask_leaders
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.notation import Request

NO_TRANSACTION = -1


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class Transaction(NamedTuple):
    transactional_id: str
    coordinator: int
    state: str
    timeout_ms: int
    started_ms: int | None  # None: none is under way
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]


class OpenTransaction(NamedTuple):
    """What a partition knows of a producer whose transaction has not ended there."""

    at: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class Transactions:
    def __init__(self, client: Client) -> None:
        self.client = client
        self._coordinators = Coordinators(client, CoordinatorKind.TRANSACTION)

    def all(self, producer_ids: Collection[int] = ()) -> list[ListedTransaction]:
        """Of all coordinators, by transactional id; of all producers, or of those named."""
        self.client.contact()
        return sorted(
            found
            for broker in sorted(self.client.cluster.brokers)
            for found in self._of_broker(broker, producer_ids)
        )

    def _of_broker(self, broker: int, producer_ids: Collection[int]) -> list[ListedTransaction]:
        def check(answer: Any) -> None:
            if answer.error_code:
                raise KafkaError(answer.error_code, subject=f"broker {broker}")

        answer = self.client.call(
            ListTransactionsRequest(producer_id_filters=sorted(producer_ids)),
            what=f"asking broker {broker} for its transactions",
            broker=lambda: broker,
            check=check,
        )
        return [
            ListedTransaction(told.transactional_id, told.producer_id, told.transaction_state, broker)
            for told in answer.transaction_states
        ]

    def describe(self, transactional_ids: Iterable[str]) -> list[Transaction]:
        """In the order asked; the first that is not there is raised."""
        wanted = list(transactional_ids)
        coordinators = self._coordinators.find(wanted)
        return [self._describe(name, coordinators[name]) for name in wanted]

    def _describe(self, name: str, coordinator: int) -> Transaction:
        def check(answer: Any) -> None:
            for told in answer.transaction_states:
                if told.error_code:
                    raise KafkaError(told.error_code, subject=f"transactional id {name!r}")

        answer = self._coordinators.call(
            name,
            DescribeTransactionsRequest(transactional_ids=[name]),
            what=f"describing transactional id {name!r}",
            check=check,
        )
        (told,) = answer.transaction_states
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

    def open_in(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """What the leaders of those partitions hold open, the oldest first."""

        def request_for(asked: list[TopicPartition]) -> Request:
            topics: dict[str, TopicRequest] = {}
            for at in asked:
                topic = topics.setdefault(at.topic, TopicRequest(name=at.topic))
                topic.partition_indexes.append(at.partition)
            return DescribeProducersRequest(topics=list(topics.values()))

        told = ask_leaders(
            self.client, partitions, request_for, lambda one: one.active_producers, "describing producers"
        )
        found = [
            OpenTransaction(
                at,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp,
            )
            for at, producers in told.items()
            for producer in producers
            if producer.current_txn_start_offset != NO_TRANSACTION
        ]
        return sorted(found, key=lambda one: (one.last_timestamp_ms, one.at, one.producer_id))

    def hanging_in(self, partitions: Collection[TopicPartition], before_ms: int) -> list[OpenTransaction]:
        """The open transactions that nothing was written to since `before_ms` and that nobody will end."""
        candidates = [one for one in self.open_in(partitions) if one.last_timestamp_ms < before_ms]
        if not candidates:
            return []
        listed = self.all({one.producer_id for one in candidates})
        known: dict[int, set[TopicPartition]] = {}
        for transaction in self.describe(one.transactional_id for one in listed):
            known.setdefault(transaction.producer_id, set()).update(transaction.partitions)
        return hanging(candidates, known)


def hanging(
    candidates: Iterable[OpenTransaction], known: Mapping[int, Collection[TopicPartition]]
) -> list[OpenTransaction]:
    """Those in partitions of which the producer's coordinator does not know; `known` is by producer id."""
    return [one for one in candidates if one.at not in known.get(one.producer_id, ())]
