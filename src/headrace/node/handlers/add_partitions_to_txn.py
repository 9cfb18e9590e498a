"""AddPartitionsToTxn, key 24, versions 0–5: which partitions a transaction is about to write to.

Up to version 3 clients send it for one transaction; from version 4 on brokers send it for many, to add or
only to verify (KIP-890).
"""

from typing import Any

from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.groups import ImageTopics
from headrace.node.coordinators.permits import Permits, key_of
from headrace.node.coordinators.shard import Shard
from headrace.node.coordinators.transactions import TransactionCoordinator, older
from headrace.node.partitions import INTERNAL_TOPICS
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE = 2  # PRODUCER_FENCED; older clients know INVALID_PRODUCER_EPOCH
BATCHED_SINCE = 4

TopicPartition = tuple[str, int]


class AddPartitionsToTxn:
    def __init__(
        self,
        topics: ImageTopics,
        transactions: TransactionCoordinator,
        permits: Permits,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._topics = topics
        self._transactions = transactions
        self._permits = permits
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: AddPartitionsToTxnRequest = request.body
        is_batched = request.version >= BATCHED_SINCE
        if is_batched and not self._access.allows(
            request, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
        ):
            return refused_whole(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        request.is_exempt = is_batched
        transactions = body.transactions if is_batched else [only_transaction(body)]
        shards: list[Shard[Any]] = []
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=self._added(request, transaction, shards),
            )
            for transaction in transactions
        ]

        def refused(code: ErrorCode) -> AddPartitionsToTxnResponse:
            if is_batched:
                return refused_whole(code)
            topics = transactions[0].topics
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=told(topics, dict.fromkeys(partitions_of(topics), code))
            )

        if is_batched:
            reply = AddPartitionsToTxnResponse(results_by_transaction=results)
        else:
            reply = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
        return when_all_committed(self._waiting, request, shards, reply, refused)

    def _added(
        self, request: Request, transaction: AddPartitionsToTxnTransaction, shards: list[Shard[Any]]
    ) -> list[AddPartitionsToTxnTopicResult]:
        """The result of each partition; all of them are added, or none is."""
        topics = transaction.topics
        transactional_id = transaction.transactional_id
        if request.version < BATCHED_SINCE and not self._access.allows(
            request, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
        ):
            return told(
                topics, dict.fromkeys(partitions_of(topics), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            )
        wrong = {
            partition: code
            for partition in partitions_of(topics)
            if (code := self._fault_of(request, partition))
        }
        if wrong:
            return told(
                topics,
                {
                    partition: wrong.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED)
                    for partition in partitions_of(topics)
                },
            )
        # sinks are added to by brokers only
        is_of_client = request.version < BATCHED_SINCE
        keeper = self._transactions if is_of_client else self._permits
        shard = keeper.shard_of(request.now, transactional_id)
        if isinstance(shard, ErrorCode):
            return told(topics, dict.fromkeys(partitions_of(topics), shard))
        decision = shard.decide(
            request.now,
            transactional_id if is_of_client else key_of(transactional_id),
            shard.machine.add_partitions,
            transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions_of(topics),
            verify_only=transaction.verify_only,
            transaction_version=2 if request.version >= BATCHED_SINCE else 1,
        )
        if isinstance(decision, ErrorCode) or not shard.carry_out(request.now, decision):
            return told(topics, dict.fromkeys(partitions_of(topics), ErrorCode.COORDINATOR_NOT_AVAILABLE))
        shards.append(shard)
        return told(
            topics,
            {
                partition: older(code, is_fenced_known=request.version >= FENCED_SINCE)
                for partition, code in decision.reply.items()
            },
        )

    def _fault_of(self, request: Request, partition: TopicPartition) -> ErrorCode:
        topic, index = partition
        if request.version < BATCHED_SINCE and (
            topic in INTERNAL_TOPICS
            or not self._access.allows(request, Operation.WRITE, Resource.TOPIC, topic)
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        count = self._topics.partition_count(topic)
        if count is None or not 0 <= index < count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


def refused_whole(code: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(error_code=code)


def only_transaction(body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=body.v3_and_below_transactional_id,
        producer_id=body.v3_and_below_producer_id,
        producer_epoch=body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )


def partitions_of(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def told(
    topics: list[AddPartitionsToTxnTopic], codes: dict[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
