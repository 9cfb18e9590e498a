"""What the quorum knows of the metadata log of its own node: where it starts and ends, what of it is flushed,
and its lineage, the offset at which each epoch begins.

The bytes are elsewhere: the driver appends and flushes, and tells the quorum. Two logs that have the same
epoch at the same offset are equal up to there (Raft §5.3), so a leader and a follower find the point where
they diverge by comparing the ends of epochs (KIP-595, and KIP-101 and 279 for partitions).
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from headrace.machines.raft.voters import Voters


class LogPoint(NamedTuple):
    """An offset, and the epoch of the entry before it: the end of a log, an epoch, or a snapshot."""

    end_offset: int
    epoch: int


class ReplicaLog:
    """Invariants: start_offset <= flushed_offset <= end_offset; epochs and their start offsets rise, and the
    first of them is that of the entry before start_offset, which only a snapshot still has.
    """

    def __init__(
        self,
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        snapshot: LogPoint | None = None,
        voters: Iterable[tuple[int, Voters]] = (),
    ) -> None:
        """`epochs` are pairs of an epoch and the offset at which it begins. Everything is flushed."""
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_offset = end_offset
        self.snapshot = snapshot  # the newest one; it ends at or after start_offset
        self.epochs: list[tuple[int, int]] = list(epochs)
        self.voters: list[tuple[int, Voters]] = list(voters)  # as records say, each with its offset

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else 0

    @property
    def end(self) -> LogPoint:
        return LogPoint(self.end_offset, self.last_epoch)

    @property
    def is_flushed(self) -> bool:
        return self.flushed_offset == self.end_offset

    def end_of_epoch(self, epoch: int) -> LogPoint:
        """Where the newest epoch up to `epoch` ends in this log, and which one that is."""
        after = bisect_right(self.epochs, (epoch, self.end_offset))
        end_offset = self.epochs[after][1] if after < len(self.epochs) else self.end_offset
        return LogPoint(end_offset, self.epochs[after - 1][0] if after else 0)

    def is_newer_than(self, other: LogPoint) -> bool:
        """Raft §5.4.1: the last entry has a higher epoch, or the same and there are more of them."""
        return (self.last_epoch, self.end_offset) > (other.epoch, other.end_offset)

    def starts_after(self, follower: LogPoint) -> bool:
        """Whether the follower needs entries that are only in a snapshot: where its log ends, or where it
        parts from this one.
        """
        if self.start_offset == 0:
            return False
        return follower.end_offset < self.start_offset or follower.epoch < self.epochs[0][0]

    def divergence(self, follower: LogPoint) -> LogPoint | None:
        """None when the follower's log is a beginning of this one; else a point at or before which they part:
        the end of the newest epoch that this log has up to the follower's last one.
        """
        if follower == (0, 0):
            return None
        end = self.end_of_epoch(follower.epoch)
        return None if end.epoch == follower.epoch and follower.end_offset <= end.end_offset else end

    def truncation_point(self, divergence: LogPoint) -> int:
        """To where a follower truncates when its leader tells it that point (`divergence`)."""
        own = self.end_of_epoch(divergence.epoch)
        return min(own.end_offset, divergence.end_offset) if own.epoch == divergence.epoch else own.end_offset

    # --- changes -----------------------------------------------------------------------------------------

    def append(
        self, end_offset: int, epochs: Iterable[tuple[int, int]], voters: Iterable[tuple[int, Voters]] = ()
    ) -> None:
        for epoch, offset in epochs:
            if epoch > self.last_epoch:
                self.epochs.append((epoch, offset))
        self.voters += voters
        self.end_offset = end_offset

    def truncate(self, end_offset: int) -> None:
        while self.epochs and self.epochs[-1][1] >= end_offset:
            self.epochs.pop()
        while self.voters and self.voters[-1][0] >= end_offset:
            self.voters.pop()
        self.end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)

    def drop_before(self, start_offset: int, snapshot: LogPoint) -> None:
        """A snapshot was made, and the log now begins at `start_offset`."""
        self.snapshot = snapshot
        self.start_offset = start_offset
        while len(self.epochs) > 1 and self.epochs[1][1] < start_offset:
            del self.epochs[0]

    def begin_at(self, snapshot: LogPoint, voters: Voters | None) -> None:
        """A snapshot of the leader replaces the whole log."""
        self.snapshot = snapshot
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.end_offset
        self.epochs = [(snapshot.epoch, snapshot.end_offset - 1)]
        self.voters = [(snapshot.end_offset - 1, voters)] if voters is not None else []

    def check(self) -> None:
        assert self.start_offset <= self.flushed_offset <= self.end_offset
        assert all(first < second for first, second in pairwise(self.epochs))
        assert all(first[1] < second[1] for first, second in pairwise(self.epochs))
        assert not self.epochs or self.epochs[-1][1] < self.end_offset
        assert not self.start_offset or self.epochs[0][1] < self.start_offset
        assert all(offset < self.end_offset for offset, _ in self.voters)
