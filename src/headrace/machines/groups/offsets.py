"""How far groups have read: committed offsets, and those that wait for the end of their transaction.

There may be millions, so each is one plain tuple, found by group, topic and partition. The offsets of a
transaction are pending, under its producer, until its marker is replayed; a commit that was written after a
pending one wins over it, whichever of the two becomes visible later.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import (
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from headrace.protocol.notation import ZERO_UUID

# Offset, leader epoch, metadata, time of the commit, time of its expiry (-1: by retention), topic id.
Committed = tuple[int, int, str, int, int, bytes]
# Group, topic, partition.
Place = tuple[str, str, int]

NO_EXPIRY = -1


class Offsets:
    """Changed by replay alone.

    Invariant: a producer stands in `_open[place]` exactly if it has a pending offset there.
    """

    __slots__ = ("_committed", "_open", "_open_groups", "_order", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[str, dict[int, Committed]]] = {}
        # By producer: each pending offset with its place in the order of writing; None once it was overtaken.
        self._pending: dict[int, dict[Place, tuple[int, Committed | None]]] = {}
        self._open: dict[Place, set[int]] = {}
        self._open_groups: dict[str, int] = {}  # how many places of the group are open
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

    def replay_end(self, producer_id: int, is_committed: bool) -> None:
        """The producer's transaction has ended."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        for place, (order, committed) in pending.items():
            self._close(place, producer_id)
            if is_committed and committed is not None:
                self._put(*place, committed)
                self._overtake(place, order)

    def _put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        topics = self._committed.get(group_id)
        if topics is None:
            topics = self._committed[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def _put_pending(self, place: Place, committed: Committed, producer_id: int) -> None:
        self._order += 1
        self._pending.setdefault(producer_id, {})[place] = (self._order, committed)
        producers = self._open.get(place)
        if producers is None:
            producers = self._open[place] = set()
            self._open_groups[place[0]] = self._open_groups.get(place[0], 0) + 1
        producers.add(producer_id)

    def _overtake(self, place: Place, order: int | None) -> None:
        """A commit has become visible; pending ones that were written before it must not come after it."""
        for producer_id in self._open.get(place, ()):
            pending = self._pending[producer_id]
            theirs, _ = pending[place]
            if order is None or theirs < order:
                pending[place] = (theirs, None)

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
        place = (group_id, topic, partition)
        for producer_id in list(self._open.get(place, ())):
            pending = self._pending[producer_id]
            del pending[place]
            if not pending:
                del self._pending[producer_id]
            self._close(place, producer_id)

    def _close(self, place: Place, producer_id: int) -> None:
        producers = self._open[place]
        producers.discard(producer_id)
        if producers:
            return
        del self._open[place]
        group_id = place[0]
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

    def places_of_topics(self, names: set[str]) -> dict[str, list[Place]]:
        """Where, by group, something is committed or pending for one of the topics."""
        places: dict[str, dict[Place, None]] = {}
        for group_id, topics in self._committed.items():
            for topic in names & topics.keys():
                found = places.setdefault(group_id, {})
                found.update(dict.fromkeys((group_id, topic, partition) for partition in topics[topic]))
        for place in self._open:
            if place[1] in names:
                places.setdefault(place[0], {})[place] = None
        return {group_id: sorted(places[group_id]) for group_id in sorted(places)}

    def places_of_group(self, group_id: str) -> list[Place]:
        """Where the group has something committed or pending."""
        places = {
            (group_id, topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        }
        if group_id in self._open_groups:
            places.update(place for place in self._open if place[0] == group_id)
        return sorted(places)

    def state(self) -> object:
        """All that was replayed. The order of pending offsets is told by rank: compaction leaves gaps."""
        ranks = sorted(order for pending in self._pending.values() for order, _ in pending.values())
        rank_of = {order: rank for rank, order in enumerate(ranks)}
        pending = {
            producer_id: {place: (rank_of[order], committed) for place, (order, committed) in places.items()}
            for producer_id, places in self._pending.items()
        }
        return self._committed, pending


def tombstone(place: Place) -> Record:
    group_id, topic, partition = place
    return Record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
