"""DescribeProducers, key 61, version 0: the idempotent and transactional producers a partition remembers."""

from collections.abc import Iterable

from headrace.base.time import Now
from headrace.machines.metadata.controller.names import name_fault
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.partitions import Partitions, TopicReplicas
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


class DescribeProducers:
    def __init__(
        self,
        partitions: Partitions,
        access: Access,
    ) -> None:
        self._partitions = partitions
        self._access = access

    def handle(self, request: Request) -> DescribeProducersResponse:
        body: DescribeProducersRequest = request.body
        # each partition once: an answer may be long, and its length must not be multiplied by the client
        asked: dict[str, dict[int, None]] = {}
        for topic in body.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        return DescribeProducersResponse(
            topics=[
                TopicResponse(name=name, partitions=self._topic_results(request, name, indexes))
                for name, indexes in asked.items()
            ]
        )

    def _topic_results(self, request: Request, name: str, indexes: Iterable[int]) -> list[PartitionResponse]:
        if not self._access.allows(request, Operation.READ, Resource.TOPIC, name):
            return [failed(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for index in indexes]
        fault = name_fault(name)
        if fault is not None:
            message = f"Topic name is invalid: {fault}"
            return [failed(index, ErrorCode.INVALID_TOPIC_EXCEPTION, message) for index in indexes]
        topic = self._partitions.of_name(name)
        return [described(request.now, topic, index) for index in indexes]


def described(now: Now, topic: TopicReplicas | None, index: int) -> PartitionResponse:
    partition = topic.replicas.get(index) if topic is not None else None
    if partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.absence(index)
        return failed(index, code, "This server does not host this topic-partition.")
    fault = partition.leadership_fault()
    if fault is not None:
        return failed(index, fault)
    try:
        producers = partition.opened(now).producers()
    except FAULTS as raised:
        return failed(index, code_of(raised), str(raised))
    return PartitionResponse(
        partition_index=partition.index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start,
            )
            for producer in producers
        ],
    )


def failed(index: int, code: ErrorCode, message: str | None = None) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, error_message=message)
