"""Offsets that are committed together, in columns: the records of one commit, and what a coordinator keeps.

A commit may have thousands of offsets. Encoding, decoding and replaying them object by object would cost ten
microseconds each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.protocol._offset_commits import Committed, committed_by_partition, encode_commits
from headrace.protocol.coordinator_records.groups import OffsetCommitKey, OffsetCommitValue
from headrace.protocol.coordinator_records.record import CompactRecords, Record


class TopicColumns(NamedTuple):
    """Offsets of one topic to be committed: columns of the same length, a row for each partition."""

    topic: str
    topic_id: bytes  # zero: there is no such topic
    partitions: list[int]
    offsets: list[int]
    leader_epochs: list[int]
    metadata: list[str | None]


class CommittedTopic(NamedTuple):
    """Several records of one group and topic, as they are replayed."""

    group: str
    topic: str
    committed: dict[int, Committed]  # by partition


class OffsetCommits(CompactRecords):
    """The records of one commit."""

    __slots__ = ("_count", "commit_ms", "expires_ms", "group", "topics")

    def __init__(self, group: str, topics: list[TopicColumns], commit_ms: int, expires_ms: int) -> None:
        self.group = group
        self.topics = topics
        self.commit_ms = commit_ms
        self.expires_ms = expires_ms  # -1: they expire by retention
        self._count = sum(len(topic.partitions) for topic in topics)

    def encoded(self, timestamp: int) -> bytes:
        assert timestamp == self.commit_ms, "its records have the time of the commit"
        group = self.group.encode()
        first_delta = 0
        parts = []
        for each in self.topics:
            encoded = encode_commits(
                group,
                each.topic.encode(),
                each.topic_id,
                each.partitions,
                each.offsets,
                each.leader_epochs,
                each.metadata,
                self.commit_ms,
                self.expires_ms,
                first_delta,
            )
            parts.append(encoded)
            first_delta += len(each.partitions)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def changes(self) -> Iterator[CommittedTopic]:
        for each in self.topics:
            committed = committed_by_partition(
                each.topic_id,
                each.partitions,
                each.offsets,
                each.leader_epochs,
                each.metadata,
                self.commit_ms,
                self.expires_ms,
            )
            yield CommittedTopic(self.group, each.topic, committed)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        for topic, topic_id, *columns in self.topics:
            for partition, offset, leader_epoch, metadata in zip(*columns):
                key = OffsetCommitKey(group=self.group, topic=topic, partition=partition)
                value = OffsetCommitValue(
                    offset=offset,
                    leader_epoch=leader_epoch,
                    metadata=metadata or "",
                    commit_timestamp=self.commit_ms,
                    expire_timestamp=self.expires_ms,
                    topic_id=topic_id,
                )
                yield Record(key, value)
