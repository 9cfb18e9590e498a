"""What a transactional producer asks its coordinators, and how their answers read.

The second protocol (transaction.version 2, KIP-890) has versions of its own; a request of the first one must
not be newer than its last version of it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace import __version__
from headrace.client.cluster import TopicPartition
from headrace.client.coordinator import Coordinator
from headrace.client.membership.events import CommittedOffset
from headrace.client.network.connection import ByVersion
from headrace.client.pending import Pending
from headrace.client.request_queue import Answer
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

FEATURE = "transaction.version"
SECOND_PROTOCOL = 2
# The last versions that belong to the first protocol.
PRODUCE_FIRST_PROTOCOL = 11
END_TXN_FIRST_PROTOCOL = 4
OFFSET_COMMIT_FIRST_PROTOCOL = 4
ADD_PARTITIONS_BY_CLIENTS = 3  # from 4 on brokers speak to each other
_MEMBER_SINCE = 3  # TxnOffsetCommit says who commits (KIP-447)


class GroupMembership(NamedTuple):
    """Who commits: by it a coordinator refuses a member that lost its partitions (KIP-447).

    >>> headrace.GroupMembership("copiers", generation=3, member_id="consumer-1").group_id
    'copiers'
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class PendingOffsets:
    """Offsets that are being added to the transaction."""

    __slots__ = ("coordinator", "is_added", "left", "member", "pending")

    def __init__(
        self,
        member: GroupMembership,
        offsets: Mapping[TopicPartition, CommittedOffset],
        coordinator: Coordinator,
        pending: Pending[None],
    ) -> None:
        self.member = member
        self.left = dict(offsets)  # not committed yet
        self.coordinator = coordinator
        self.pending = pending
        self.is_added = False  # the group, to the transaction


class UntakenCall(NamedTuple):
    """A call whose caller may not have its result yet, since it gave up waiting."""

    what: str
    subject: object  # what it was called with
    pending: Pending[None]


def features_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="headrace", client_software_version=__version__)


def transaction_version(answer: Answer) -> int:
    """What the cluster has switched on."""
    assert isinstance(answer, ApiVersionsResponse)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return levels.get(FEATURE, 0)


def add_partitions_request(
    transactional_id: str, producer: tuple[int, int], adding: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for at in adding:
        topic = topics.setdefault(at.topic, AddPartitionsToTxnTopic(name=at.topic))
        topic.partitions.append(at.partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=list(topics.values()),
    )


def error_of_adding(answer: Answer) -> int:
    """0 if all were added; a partition that was not tried says less than the one that is why."""
    assert isinstance(answer, AddPartitionsToTxnResponse)
    errors = [
        told.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for told in topic.results_by_partition
        if told.partition_error_code
    ]
    return min(errors, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED, default=0)


def offsets_request(
    transactional_id: str,
    producer: tuple[int, int],
    member: GroupMembership,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> ByVersion:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for at, offset in offsets.items():
        topic = topics.setdefault(at.topic, TxnOffsetCommitRequestTopic(name=at.topic))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=at.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )

    def make(version: int) -> TxnOffsetCommitRequest:
        said = member if version >= _MEMBER_SINCE else GroupMembership(member.group_id)
        return TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=said.group_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            generation_id=said.generation,
            member_id=said.member_id,
            group_instance_id=said.instance_id,
            topics=list(topics.values()),
        )

    return ByVersion(TxnOffsetCommitRequest, make)


def results_of_offsets(answer: Answer) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    assert isinstance(answer, TxnOffsetCommitResponse)
    return {
        TopicPartition(topic.name, told.partition_index): told.error_code
        for topic in answer.topics
        for told in topic.partitions
    }


def init_producer_id_request(
    transactional_id: str, producer: tuple[int, int], timeout_ms: int
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )


def add_offsets_request(
    transactional_id: str, producer: tuple[int, int], group_id: str
) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group_id,
    )


def end_request(transactional_id: str, producer: tuple[int, int], *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )
