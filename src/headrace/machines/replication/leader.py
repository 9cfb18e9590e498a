"""The leader's view of one partition: in-sync replicas, their ends, and the high watermark.

The high watermark is the lowest end of the in-sync replicas: what lies below it is on all of them, so
no clean election can lose it. It never falls while this replica leads.

The leader's own end is what it may promise. Where a topic demands an fsync for each message that is its
flushed end, otherwise its log end: the partition passes in whichever holds.
"""

from collections.abc import Iterable

from headrace.base.ids import BrokerId, Epoch, Offset


class PartitionLeader:
    """Invariant: high_watermark <= the end of every in-sync replica, unless one has just joined behind it."""

    __slots__ = ("ends", "epoch", "high_watermark", "id", "isr")

    def __init__(self, id: BrokerId, epoch: Epoch, isr: Iterable[BrokerId], high_watermark: Offset) -> None:
        self.id = id
        self.epoch = epoch
        self.isr = frozenset(isr) | {id}
        self.high_watermark = high_watermark
        self.ends: dict[BrokerId, Offset] = {}  # ends of the other replicas, as their fetches told

    def local_end_moved(self, end: int) -> bool:
        """Our own promise now reaches `end`; True when the high watermark rose."""
        if len(self.isr) > 1:
            end = min(end, self._lowest_other_end())
        if end <= self.high_watermark:
            return False
        self.high_watermark = Offset(end)
        return True

    def replica_fetched(self, replica: BrokerId, offset: Offset, local_end: int) -> bool:
        """A follower asked for `offset`, so it holds everything before; True when the high watermark rose."""
        self.ends[replica] = offset
        return self.local_end_moved(local_end)

    def isr_changed(self, isr: Iterable[BrokerId], local_end: int) -> bool:
        """A committed change of the in-sync set; a smaller one may raise the high watermark."""
        self.isr = frozenset(isr) | {self.id}
        return self.local_end_moved(local_end)

    def has_enough(self, min_insync_replicas: int) -> bool:
        return len(self.isr) >= min_insync_replicas

    def _lowest_other_end(self) -> int:
        # a replica that never fetched is known to hold nothing
        return min(self.ends.get(replica, Offset(0)) for replica in self.isr if replica != self.id)
