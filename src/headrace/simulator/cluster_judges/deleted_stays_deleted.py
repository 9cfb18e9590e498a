"""Deleted records stay deleted: no later leader's log begins before the acknowledged offset.

This holds for leaders that were in sync at the time of the answer or since then. The leader of that time
waited for the replicas that were alive. A replica that was down, and is elected before it has followed
another leader, brings its records back, as in Kafka. An earlier leader that does not know about the next one
does not know what that one has deleted. And no log begins after all offsets that a client asked for.
"""

from headrace.machines.replication.leader import PartitionLeader
from headrace.node.node import Node
from headrace.simulator.history import DeletionAsked, Event, PartitionKey, RecordsDeleted, Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes

Place = tuple[bytes, int]  # id of the topic, index of the partition


class Deletions:
    """Of one partition."""

    __slots__ = ("asked", "in_sync", "told")

    def __init__(self) -> None:
        self.asked = 0  # the highest offset that somebody named
        self.told = 0  # where it begins, as a client was told
        self.in_sync: set[int] = set()  # replicas that were in sync when that was told, or since


class DeletedStaysDeleted:
    name = "deleted_stays_deleted"

    def __init__(self) -> None:
        self._of: dict[Place, Deletions] = {}
        self._newest: dict[Place, PartitionLeader] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case DeletionAsked(partition, offset):
                known = self._of.setdefault(place_of(partition), Deletions())
                known.asked = max(known.asked, offset)
            case RecordsDeleted(partition, start):
                known = self._of[place_of(partition)]
                if start > known.told:
                    known.told = start
                    leader = self._newest.get(place_of(partition))
                    known.in_sync = {leader.id, *leader.isr} if leader is not None else set()
            case _:
                pass

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        for partition in changes.partitions:
            place = (bytes(partition.topic_id), partition.index)
            log, leader = partition.log, partition.leader
            if leader is not None:
                newest = self._newest.setdefault(place, leader)
                if leader.epoch >= newest.epoch:
                    self._newest[place] = leader
            known = self._of.get(place)
            if known is None or log is None or partition.is_offline or log.is_offline:
                continue
            where, start = f"{partition.topic}-{partition.index}", log.log_start_offset
            if start > known.asked and not log.damages:  # else it lacks its beginning, and knows that
                raise Violation(f"{where} begins at {start}, and nobody asked for more than {known.asked}")
            if leader is None or leader is not self._newest[place]:
                continue
            if leader.id not in known.in_sync:
                known.told, known.in_sync = min(known.told, start), set()
            elif start < known.told:
                raise Violation(
                    f"{where} begins at {start} in epoch {leader.epoch}, though a client was told that it "
                    f"begins at {known.told}, and {leader.id} has been in sync since"
                )
            known.in_sync |= {leader.id, *leader.isr}


def place_of(partition: PartitionKey) -> Place:
    return (partition.topic_id, partition.number)
