"""Decisions about offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

Members of a group commit for themselves; whoever reads without one (a simple consumer, an admin) may commit
while nobody is in the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.base.time import Now
from headrace.machines.coordination import Decision, Writer
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.group import PartitionCheck
from headrace.machines.groups.offsets import NO_EXPIRY, tombstone
from headrace.machines.groups.shard import Shard
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import OffsetCommitKey, OffsetCommitValue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.protocol.notation import ZERO_UUID

# From here on a client knows the errors of the new protocol.
NEW_PROTOCOL_VERSION = 9
NO_OFFSET = -1


class Commit:
    """What one request commits, offset by offset, and the records that come of it."""

    __slots__ = ("_expires_ms", "_group_id", "_is_transactional", "_refusal", "_shard", "_wall_ms", "records")

    def __init__(
        self,
        shard: Shard,
        now: Now,
        group_id: str,
        refusal: ErrorCode | PartitionCheck,
        *,
        retention_ms: int = NO_EXPIRY,
        is_transactional: bool = False,
    ) -> None:
        self.records: list[Record] = []
        self._shard = shard
        self._group_id = group_id
        self._refusal = refusal
        self._wall_ms = now.wall_ms
        self._expires_ms = NO_EXPIRY if retention_ms == NO_EXPIRY else now.wall_ms + retention_ms
        self._is_transactional = is_transactional

    def put(
        self,
        topic: str,
        topic_id: bytes,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    ) -> ErrorCode:
        index = partition.partition_index
        metadata = partition.committed_metadata or ""
        refusal = self._refusal
        error = refusal if isinstance(refusal, ErrorCode) else refusal(topic, topic_id, index)
        if error is ErrorCode.STALE_MEMBER_EPOCH and self._is_transactional:
            return ErrorCode.ILLEGAL_GENERATION  # producers know no member epochs
        if error:
            return error
        if len(metadata) > self._shard.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=self._wall_ms,
            expire_timestamp=self._expires_ms,
            topic_id=ZERO_UUID if self._is_transactional else topic_id,  # as Kafka writes them
        )
        key = OffsetCommitKey(group=self._group_id, topic=topic, partition=index)
        self.records.append(Record(key, value))
        return error


def commit(shard: Shard, now: Now, request: OffsetCommitRequest, version: int) -> Decision:
    refusal = _refusal(shard, now, request, version)
    commit = Commit(shard, now, request.group_id, refusal, retention_ms=request.retention_time_ms)
    topics = []
    for topic in request.topics:
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID:  # versions below 10 name their topics
            topic_id = shard.topics.id_of(topic.name) or ZERO_UUID
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index,
                error_code=commit.put(topic.name, topic_id, partition),
            )
            for partition in topic.partitions
        ]
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return Decision(OffsetCommitResponse(topics=topics), commit.records)


def commit_again(
    shard: Shard,
    now: Now,
    request: OffsetCommitRequest,
    version: int,
    before: Record,
    offset: int,
    leader_epoch: int,
) -> Record | None:
    """The record of a commit that differs from an earlier one in its offset alone; None: it is more."""
    key, said = before
    assert isinstance(said, OffsetCommitValue)
    refusal = _refusal(shard, now, request, version)
    if refusal is not ErrorCode.NONE or len(said.metadata) > shard.settings.offset_metadata_max_bytes:
        return None
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=said.metadata,
        commit_timestamp=now.wall_ms,
        topic_id=said.topic_id,
    )
    return Record(key, value)


def _refusal(
    shard: Shard, now: Now, request: OffsetCommitRequest, version: int
) -> ErrorCode | PartitionCheck:
    """Why a member's offsets are not taken: all of them, or as a check of each partition says."""
    group = shard.groups.get(request.group_id)
    if group is not None:
        refusal = group.check_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            is_transactional=False,
            version=version,
        )
        if refusal is ErrorCode.NONE and isinstance(group, ClassicGroup):
            _keep_alive(shard, now, group, request.member_id)
        return refusal
    if request.generation_id_or_member_epoch < 0:
        return ErrorCode.NONE  # a simple group begins with its first offset
    is_new = version >= NEW_PROTOCOL_VERSION
    return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION


def _keep_alive(shard: Shard, now: Now, group: ClassicGroup, member_id: str) -> None:
    """Whoever commits is alive, also while it is too busy for heartbeats."""
    member = group.members.get(member_id)
    if member is not None:
        rebalance.restart_session(shard, now, group, member)


def commit_transactional(shard: Shard, now: Now, request: TxnOffsetCommitRequest, version: int) -> Decision:
    refusal: ErrorCode | PartitionCheck
    group = shard.groups.get(request.group_id)
    if group is not None:
        refusal = group.check_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            is_transactional=True,
            version=version,
        )
    else:
        refusal = ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    commit = Commit(shard, now, request.group_id, refusal, is_transactional=True)
    topics = []
    for topic in request.topics:
        topic_id = shard.topics.id_of(topic.name) or ZERO_UUID
        partitions = [
            TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index,
                error_code=commit.put(topic.name, topic_id, partition),
            )
            for partition in topic.partitions
        ]
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    writer = Writer(request.producer_id, request.producer_epoch)
    return Decision(TxnOffsetCommitResponse(topics=topics), commit.records, writer=writer)


def fetch(shard: Shard, asked: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    group_id = asked.group_id
    group = shard.groups.get(group_id)
    if group is not None:
        error = group.check_fetch(asked.member_id, asked.member_epoch)
        if error:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    topics = asked.topics
    if topics is None:
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=sorted(partitions))
            for name, partitions in sorted(shard.offsets.of_group(group_id).items())
        ]
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _fetched(shard, group_id, topic.name, topic.topic_id, partition, require_stable)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in topics
        ],
    )


def _fetched(
    shard: Shard, group_id: str, topic: str, topic_id: bytes, partition: int, require_stable: bool
) -> OffsetFetchResponsePartitions:
    if require_stable and shard.offsets.is_unstable(group_id, topic, partition):
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    committed = shard.offsets.get(group_id, topic, partition)
    if committed is None or _are_different(committed[5], topic_id):
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=NO_OFFSET, metadata=""
        )
    offset, leader_epoch, metadata, _, _, _ = committed
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
    )


def _are_different(committed: bytes, asked: bytes) -> bool:
    """A topic of the same name was there before; ids that are not known say nothing."""
    return committed != asked and committed != ZERO_UUID and asked != ZERO_UUID


def delete(shard: Shard, request: OffsetDeleteRequest) -> Decision:
    group_id = request.group_id
    group = shard.groups.get(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
    if group is None or error:
        return Decision(OffsetDeleteResponse(error_code=error))
    records: list[Record] = []
    topics = []
    for topic in request.topics:
        is_subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        indexes = [partition.partition_index for partition in topic.partitions]
        if not is_subscribed:
            records += _tombstones_where_known(shard, group_id, topic.name, indexes)
        topics.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                    for index in indexes
                ],
            )
        )
    return Decision(OffsetDeleteResponse(topics=topics), records)


def _tombstones_where_known(
    shard: Shard, group_id: str, topic: str, partitions: Sequence[int]
) -> list[Record]:
    offsets = shard.offsets
    return [
        tombstone((group_id, topic, partition))
        for partition in partitions
        if offsets.get(group_id, topic, partition) is not None
        or offsets.is_unstable(group_id, topic, partition)
    ]
