"""Decisions about offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

Members of a group commit for themselves. Clients that are not members (a simple consumer, an admin) may
commit while the group has no members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from headrace.base.time import Now
from headrace.machines.coordination import Decision, Writer
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.group import Committer, PartitionCheck
from headrace.machines.groups.offsets import NO_EXPIRY, tombstone
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import OffsetCommitValue
from headrace.protocol.coordinator_records.offset_commits import OffsetCommits, TopicColumns
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import ZERO_UUID

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

NO_OFFSET = -1
NO_PARTITION = -1
LATEST_MS = 2**63 - 1  # as far as a record can tell

# The partitions of a topic.
TopicPartitions = tuple[str, Sequence[int]]


class FetchedOffset(NamedTuple):
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


FetchedTopic = tuple[str, list[FetchedOffset]]


def commit(
    machine: Groups, now: Now, committer: Committer, topics: Sequence[TopicColumns], retention_ms: int
) -> Decision:
    """The reply is an error code for each offset."""
    refusal = _refusal(machine, now, committer)
    expires_ms = NO_EXPIRY if retention_ms == NO_EXPIRY else min(now.wall_ms + retention_ms, LATEST_MS)
    return _commit(machine, now, committer.group_id, refusal, topics, expires_ms)


def _commit(
    machine: Groups,
    now: Now,
    group_id: str,
    refusal: ErrorCode | PartitionCheck,
    topics: Sequence[TopicColumns],
    expires_ms: int = NO_EXPIRY,
    writer: Writer | None = None,
) -> Decision:
    """With a writer the offsets are part of its transaction. Where Kafka leaves topic ids out, in a
    transaction, they are written all the same.
    """
    metadata_max = machine.settings.offset_metadata_max_bytes
    accepted: list[TopicColumns] = []
    errors: list[ErrorCode] = []
    for topic in topics:
        if refusal is ErrorCode.NONE and not any(topic.metadata):  # the usual case
            found = [ErrorCode.NONE] * len(topic.partitions)
        else:
            found = _errors(topic, refusal, metadata_max, writer)
        errors += found
        if any(found):
            topic = _without_errors(topic, found)
        if topic.partitions:
            accepted.append(topic)
    if not accepted:
        return Decision(errors, writer=writer)
    records = OffsetCommits(group_id, accepted, now.wall_ms, expires_ms)
    return Decision(errors, cast(list[Record], records), writer=writer)


def _errors(
    columns: TopicColumns,
    refusal: ErrorCode | PartitionCheck,
    metadata_max: int,
    writer: Writer | None,
) -> list[ErrorCode]:
    topic, topic_id = columns.topic, columns.topic_id
    errors: list[ErrorCode] = []
    for partition, metadata in zip(columns.partitions, columns.metadata):
        error = refusal if isinstance(refusal, ErrorCode) else refusal(topic, topic_id, partition)
        if error:
            if writer is not None and error is ErrorCode.STALE_MEMBER_EPOCH:
                error = ErrorCode.ILLEGAL_GENERATION  # producers know no member epochs
        elif metadata is not None and len(metadata) > metadata_max:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        errors.append(error)
    return errors


def _without_errors(columns: TopicColumns, errors: Sequence[ErrorCode]) -> TopicColumns:
    rows = [row for row, error in enumerate(errors) if error is ErrorCode.NONE]
    return TopicColumns(
        columns.topic,
        columns.topic_id,
        [columns.partitions[row] for row in rows],
        [columns.offsets[row] for row in rows],
        [columns.leader_epochs[row] for row in rows],
        [columns.metadata[row] for row in rows],
    )


def commit_again(
    machine: Groups,
    now: Now,
    committer: Committer,
    before: Record,
    offset: int,
    leader_epoch: int,
) -> Record | None:
    """The record of a commit that differs from an earlier one in its offset alone; None: it is more."""
    key, said = before
    assert isinstance(said, OffsetCommitValue)
    refusal = _refusal(machine, now, committer)
    if refusal is not ErrorCode.NONE or len(said.metadata) > machine.settings.offset_metadata_max_bytes:
        return None
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=said.metadata,
        commit_timestamp=now.wall_ms,
        topic_id=said.topic_id,
    )
    return Record(key, value)


def _refusal(machine: Groups, now: Now, committer: Committer) -> ErrorCode | PartitionCheck:
    """Why a member's offsets are refused: an error for all of them, or a check of each partition."""
    group = machine.groups.get(committer.group_id)
    if group is not None:
        refusal = group.check_commit(committer, is_transactional=False)
        if refusal is ErrorCode.NONE and isinstance(group, ClassicGroup):
            _keep_alive(machine, now, group, committer.member_id)
        return refusal
    if committer.epoch < 0:
        return ErrorCode.NONE  # a simple group begins with its first offset
    return ErrorCode.GROUP_ID_NOT_FOUND if committer.knows_epochs else ErrorCode.ILLEGAL_GENERATION


def _keep_alive(machine: Groups, now: Now, group: ClassicGroup, member_id: str) -> None:
    """Extends the session of a member that commits, because it may be too busy for heartbeats."""
    member = group.members.get(member_id)
    if member is not None:
        rebalance.restart_session(machine, now, group, member)


def commit_transactional(
    machine: Groups, now: Now, committer: Committer, writer: Writer, topics: Sequence[TopicColumns]
) -> Decision:
    """The reply is an error code for each offset."""
    refusal: ErrorCode | PartitionCheck
    group = machine.groups.get(committer.group_id)
    if group is not None:
        refusal = group.check_commit(committer, is_transactional=True)
    else:
        refusal = ErrorCode.NONE if committer.epoch < 0 else ErrorCode.ILLEGAL_GENERATION
    return _commit(machine, now, committer.group_id, refusal, topics, writer=writer)


def fetch(
    machine: Groups,
    group_id: str,
    member_id: str | None,
    epoch: int,
    topics: Sequence[TopicPartitions] | None,
    require_stable: bool,
) -> list[FetchedTopic] | ErrorCode:
    """Without topics: all that the group has committed."""
    group = machine.groups.get(group_id)
    if group is not None:
        error = group.check_fetch(member_id, epoch)
        if error:
            return error
    return [
        (topic, _fetched(machine, group_id, topic, partitions, require_stable))
        for topic, partitions in (_all_topics(machine, group_id) if topics is None else topics)
    ]


def confirm(group_id: str) -> Decision:
    """A record that changes nothing, the tombstone of an offset that nobody commits. When it is committed,
    no other broker had become the group's coordinator before it was written.
    """
    return Decision(records=[tombstone((group_id, "", NO_PARTITION))])


def _all_topics(machine: Groups, group_id: str) -> list[TopicPartitions]:
    """Where the group has committed something, but not to a topic that is gone and has a successor."""
    topics: list[TopicPartitions] = []
    for name, partitions in sorted(machine.offsets.of_group(group_id).items()):
        topic_id = machine.topics.id_of(name) or ZERO_UUID
        indexes = sorted(index for index, one in partitions.items() if not _are_different(one[5], topic_id))
        if indexes:
            topics.append((name, indexes))
    return topics


def _fetched(
    machine: Groups, group_id: str, topic: str, partitions: Sequence[int], require_stable: bool
) -> list[FetchedOffset]:
    offsets, topic_id = machine.offsets, machine.topics.id_of(topic) or ZERO_UUID
    fetched = []
    for partition in partitions:
        committed = offsets.get(group_id, topic, partition)
        if require_stable and offsets.is_unstable(group_id, topic, partition):
            fetched.append(FetchedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif committed is None or _are_different(committed[5], topic_id):
            fetched.append(FetchedOffset(partition))
        else:
            fetched.append(FetchedOffset(partition, *committed[:3]))
    return fetched


def _are_different(committed: bytes, asked: bytes) -> bool:
    """A topic of the same name was there before; ids that are not known say nothing."""
    return committed != asked and committed != ZERO_UUID and asked != ZERO_UUID


def delete(machine: Groups, group_id: str, topics: Sequence[TopicPartitions]) -> Decision:
    """The reply is an error code for each topic, or one for all."""
    group = machine.groups.get(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
    if group is None or error:
        return Decision(error)
    records: list[Record] = []
    errors = []
    for topic, partitions in topics:
        if group.is_subscribed_to(topic):
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        else:
            errors.append(ErrorCode.NONE)
            records += _tombstones_where_known(machine, group_id, topic, partitions)
    return Decision(errors, records)


def _tombstones_where_known(
    machine: Groups, group_id: str, topic: str, partitions: Sequence[int]
) -> list[Record]:
    offsets = machine.offsets
    return [
        tombstone((group_id, topic, partition))
        for partition in partitions
        if offsets.get(group_id, topic, partition) is not None
        or offsets.is_unstable(group_id, topic, partition)
    ]
