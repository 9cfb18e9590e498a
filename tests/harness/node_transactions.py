"""A transactional producer of a node."""

from __future__ import annotations

from typing import Any

from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}

LATEST = -1


class Producer:
    """A transactional producer with its requests spelled out."""

    def __init__(self, host: ManualHost, name: str = "tx", timeout_ms: int = 60_000) -> None:
        self.host = host
        self.name = name
        self.sequence = 0
        for kind in (0, 1):
            host.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 4)
        reply = host.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 5)
        assert reply.error_code == 0, reply
        self.id, self.epoch = reply.producer_id, reply.producer_epoch

    def add(self, topic: str) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        (told,) = self.host.ask(request, 3).results_by_topic_v3_and_below
        return told.results_by_partition[0].partition_error_code

    def write(self, topic: str, *, version: int) -> int:
        batch = build_batch(
            [(self.host.clock.now().wall_ms, b"k", b"v", ())],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = self.host.produce_request(topic, bytearray(batch))
        request.transactional_id = self.name
        if version >= 13:
            request.topic_data[0].topic_id = self.host.node.controller.metadata.image.topics[topic].id
            request.topic_data[0].name = ""
        (told,) = self.host.ask(request, version).responses
        code = told.partition_responses[0].error_code
        self.sequence += not code
        return code

    def end(self, *, commit: bool, version: int) -> Any:
        reply = self.host.ask(
            EndTxnRequest(
                transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
            ),
            version,
        )
        if version >= 5 and not reply.error_code:
            self.id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
        return reply

    def state(self) -> str:
        (state,) = self.host.ask(
            DescribeTransactionsRequest(transactional_ids=[self.name]), 0
        ).transaction_states
        return state.transaction_state


def latest(host: ManualHost, topic: str, isolation: int) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
            )
        ],
    )
    return host.ask(request, 7).topics[0].partitions[0].offset


def committed_offset(host: ManualHost, group: str, *, stable: bool = False) -> Any:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=stable
    )
    (answer,) = host.ask(request, 9).groups
    return answer


def offset_commit(producer: Producer) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, committed_metadata=""
                    )
                ],
            )
        ],
    )
