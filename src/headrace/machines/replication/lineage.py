"""Lineage of a log: its leader epochs and where each of them ended (KIP-101, KIP-279, KIP-320).

Two logs are equal up to the end of the last epoch that they have in common, or up to the smaller of its two
ends. A follower finds that place with the leader's answers, one earlier epoch at a time: the leader may not
have the follower's last epoch, and the follower may not have the epoch that the leader answers with.
"""

from typing import Protocol

from headrace.base.ids import Offset
from headrace.base.values import Value

NONE_KNOWN = (-1, -1)


class Lineage(Protocol):
    """What is asked of a log."""

    def epoch_end_offset(self, epoch: int, /) -> tuple[int, int]:
        """The largest known epoch up to `epoch` and where it ended; NONE_KNOWN where that cannot be told."""
        ...

    def epoch_at(self, offset: int, /) -> int:
        """The epoch in which the offset was, or will be, written; -1 where that is not known."""
        ...


class Divergence(Value):
    """The leader's largest epoch up to the one that was asked for, and where it ended there."""

    epoch: int
    end_offset: int


def find_divergence(leader: Lineage, last_fetched_epoch: int, fetch_offset: int) -> Divergence | None:
    """The leader's question: does a log that ends at `fetch_offset`, with a last record of that epoch,
    differ from its own? None: it does not.
    """
    epoch, end_offset = leader.epoch_end_offset(last_fetched_epoch)
    if epoch == last_fetched_epoch and end_offset >= fetch_offset:
        return None
    return Divergence(epoch, end_offset)


def find_replica_divergence(
    leader: Lineage, log_start_offset: int, last_fetched_epoch: int, fetch_offset: int
) -> Divergence | None:
    """The same for a replica, which must have nothing that cannot be compared: of epochs that ended before
    its log begins, the leader does not know where, or whether there were records of them at all.
    """
    if last_fetched_epoch < leader.epoch_at(log_start_offset):
        return Divergence(last_fetched_epoch, log_start_offset)
    return find_divergence(leader, last_fetched_epoch, fetch_offset)


def truncation_offset(follower: Lineage, log_end_offset: int, leader: Divergence) -> Offset:
    """The follower's question: where to cut. Everything from there on is not, or may not be, in the leader's
    log. If the follower does not have the leader's epoch, it cuts where its own earlier epoch ended, and its
    next fetch asks about that one: cutting at the leader's end instead could leave records between two epochs
    that the leader never had (KIP-279).
    """
    epoch, end_offset = follower.epoch_end_offset(leader.epoch)
    if epoch == leader.epoch:
        end_offset = min(end_offset, leader.end_offset)
    elif epoch < 0:
        end_offset = leader.end_offset  # it knows no epoch so early: no record of its own can be common
    return Offset(min(end_offset, log_end_offset))
