"""Committed offsets of groups, and offsets that wait for the end of their transaction.

There may be millions, so each is a plain tuple, found by group, topic and partition. The offsets of a
transaction are pending, under its producer, until its marker is replayed. A commit that was written after a
pending one replaces it, whichever of the two becomes visible later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from headrace.protocol._offset_commits import NO_EXPIRY as NO_EXPIRY
from headrace.protocol._offset_commits import Committed as Committed
from headrace.protocol._offset_commits import gone_partitions
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import (
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from headrace.protocol.coordinator_records.offset_commits import CommittedTopic
from headrace.protocol.notation import ZERO_UUID

# Group, topic, partition.
OffsetKey = tuple[str, str, int]


class Offsets:
    """Changed by replay alone.

    Invariant: a producer stands in `_open[key]` exactly if it has a pending offset there.
    """

    __slots__ = ("_committed", "_open", "_open_groups", "_order", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[str, dict[int, Committed]]] = {}
        # By producer: each pending offset with its rank in the order of writing; None once overtaken.
        self._pending: dict[int, dict[OffsetKey, tuple[int, Committed | None]]] = {}
        self._open: dict[OffsetKey, set[int]] = {}
        self._open_groups: dict[str, int] = {}  # how many keys of the group are open
        self._order = 0

    # --- replay -----------------------------------------------------------------------------------------

    def replay(
        self,
        group_id: str,
        topic: str,
        partition: int,
        value: OffsetCommitValue | LegacyOffsetCommitValue | None,
        producer_id: int | None,
    ) -> None:
        if value is None:
            self._forget(group_id, topic, partition)
            return
        if type(value) is OffsetCommitValue:
            committed = (
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
            )
        else:
            committed = (value.offset, -1, value.metadata, value.commit_timestamp, NO_EXPIRY, ZERO_UUID)
        if producer_id is None:
            self._put(group_id, topic, partition, committed)
            if self._open:
                self._overtake((group_id, topic, partition), None)
        else:
            self._put_pending((group_id, topic, partition), committed, producer_id)

    def replay_topic(self, change: CommittedTopic, producer_id: int | None) -> None:
        """The same for several offsets of one group and topic."""
        group_id, topic, committed = change
        if producer_id is not None:
            for partition, offset in committed.items():
                self._put_pending((group_id, topic, partition), offset, producer_id)
            return
        topics = self._committed.get(group_id)
        if topics is None:
            topics = self._committed[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            topics[topic] = committed.copy()
        else:
            partitions.update(committed)
        if self._open:
            for partition in committed:
                self._overtake((group_id, topic, partition), None)

    def replay_end(self, producer_id: int, is_committed: bool) -> None:
        """The producer's transaction has ended."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        for key, (order, committed) in pending.items():
            self._close(key, producer_id)
            if is_committed and committed is not None:
                self._put(*key, committed)
                self._overtake(key, order)

    def _put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        topics = self._committed.get(group_id)
        if topics is None:
            topics = self._committed[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def _put_pending(self, key: OffsetKey, committed: Committed, producer_id: int) -> None:
        self._order += 1
        self._pending.setdefault(producer_id, {})[key] = (self._order, committed)
        producers = self._open.get(key)
        if producers is None:
            producers = self._open[key] = set()
            self._open_groups[key[0]] = self._open_groups.get(key[0], 0) + 1
        producers.add(producer_id)

    def _overtake(self, key: OffsetKey, order: int | None) -> None:
        """A commit has become visible; pending ones that were written before it must not come after it."""
        for producer_id in self._open.get(key, ()):
            pending = self._pending[producer_id]
            theirs, _ = pending[key]
            if order is None or theirs < order:
                pending[key] = (theirs, None)

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._committed.get(group_id)
        if topics is not None:
            partitions = topics.get(topic)
            if partitions is not None:
                partitions.pop(partition, None)
                if not partitions:
                    del topics[topic]
                    if not topics:
                        del self._committed[group_id]
        key = (group_id, topic, partition)
        for producer_id in list(self._open.get(key, ())):
            pending = self._pending[producer_id]
            del pending[key]
            if not pending:
                del self._pending[producer_id]
            self._close(key, producer_id)

    def _close(self, key: OffsetKey, producer_id: int) -> None:
        producers = self._open[key]
        producers.discard(producer_id)
        if producers:
            return
        del self._open[key]
        group_id = key[0]
        self._open_groups[group_id] -= 1
        if not self._open_groups[group_id]:
            del self._open_groups[group_id]

    # --- questions --------------------------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        topics = self._committed.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_group(self, group_id: str) -> dict[str, dict[int, Committed]]:
        """By topic and partition; not to be changed."""
        return self._committed.get(group_id, {})

    def group_ids(self) -> Iterator[str]:
        return iter(self._committed)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction may still change this offset."""
        return bool(self._open) and (group_id, topic, partition) in self._open

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open_groups

    def keys_of_topics(self, names: set[str]) -> dict[str, list[OffsetKey]]:
        """Where, by group, something is committed or pending for one of the topics."""
        keys: dict[str, dict[OffsetKey, None]] = {}
        for group_id, topics in self._committed.items():
            for topic in names & topics.keys():
                found = keys.setdefault(group_id, {})
                found.update(dict.fromkeys((group_id, topic, partition) for partition in topics[topic]))
        for key in self._open:
            if key[1] in names:
                keys.setdefault(key[0], {})[key] = None
        return {group_id: sorted(keys[group_id]) for group_id in sorted(keys)}

    def keys_of_gone(
        self, id_of: Callable[[str], bytes | None], offsets_max: int
    ) -> Generator[dict[str, list[OffsetKey]], None, dict[str, list[OffsetKey]]]:
        """Where, by group, something is committed or pending for a topic that is gone, though another one
        may have its name. `id_of` tells the id of the topic with a name. A step looks at about so many
        offsets; between two of them offsets may change. The last step returns.
        """
        keys: dict[str, dict[OffsetKey, None]] = {}
        for pending in self._pending.values():
            for key, (_, waiting) in pending.items():
                if waiting is not None and is_gone(waiting, id_of(key[1])):
                    keys.setdefault(key[0], {})[key] = None
        left = offsets_max
        for group_id in sorted(self._committed):
            for topic, partitions in self._committed.get(group_id, {}).items():
                left -= len(partitions)
                for partition in gone_partitions(partitions, id_of(topic)):
                    keys.setdefault(group_id, {})[group_id, topic, partition] = None
            if left <= 0:
                yield {group_id: sorted(keys[group_id]) for group_id in sorted(keys)}
                keys = {}
                left = offsets_max
        return {group_id: sorted(keys[group_id]) for group_id in sorted(keys)}

    def keys_of_group(self, group_id: str) -> list[OffsetKey]:
        """Where the group has something committed or pending."""
        keys = {
            (group_id, topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        }
        if group_id in self._open_groups:
            keys.update(key for key in self._open if key[0] == group_id)
        return sorted(keys)

    def state(self) -> object:
        """All that was replayed. The order of pending offsets is told by rank: compaction leaves gaps."""
        ranks = sorted(order for pending in self._pending.values() for order, _ in pending.values())
        rank_of = {order: rank for rank, order in enumerate(ranks)}
        pending = {
            producer_id: {key: (rank_of[order], committed) for key, (order, committed) in keys.items()}
            for producer_id, keys in self._pending.items()
        }
        return self._committed, pending


def is_gone(committed: Committed, id: bytes | None) -> bool:
    """Whether the offset is of another topic than the one with this id, if there is one."""
    return id is None or (committed[5] != id and committed[5] != ZERO_UUID)


def tombstone(key: OffsetKey) -> Record:
    group_id, topic, partition = key
    return Record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
