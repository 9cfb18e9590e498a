"""How far behind a group is, and where a reset would put it: sums over offsets that somebody else asked for.

    start ≤ … committed … ≤ end        lag = end - committed

`start` and `end` are those of the partition. A committed offset may lie outside of them: records before it
expired, or the topic was made anew.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.admin.group_values import Group
from headrace.client.cluster import TopicPartition
from headrace.client.membership.events import CommittedOffset


class PartitionLag(NamedTuple):
    """How far a group is behind in one partition.

    >>> [(one.at.partition, one.committed, one.end, one.lag) for one in admin.group_lag("readers")]
    [(0, 1, 2, 1)]
    """

    at: TopicPartition
    committed: int | None  # None: assigned, and nothing committed yet
    end: int | None  # None: the partition is gone
    member: str | None  # who reads it now
    client_id: str | None

    @property
    def lag(self) -> int | None:
        """None where it cannot be known."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


def lag_of(
    group: Group | None,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionLag]:
    """Of each partition that the group reads or has committed; `group` is None when nobody described it."""
    owners = owners_of(group)
    lags = []
    for at in sorted(committed.keys() | owners.keys()):
        owner = owners.get(at, (None, None))
        offset = committed[at].offset if at in committed else None
        lags.append(PartitionLag(at, offset, ends.get(at), *owner))
    return lags


def owners_of(group: Group | None) -> dict[TopicPartition, tuple[str, str]]:
    """Member and client id by partition."""
    members = group.members if group is not None else ()
    return {at: (member.member_id, member.client_id) for member in members for at in member.assignment or ()}


def total_lag(lags: Iterable[PartitionLag]) -> int:
    """What is known of it."""
    return sum(lag.lag or 0 for lag in lags)


class Move(NamedTuple):
    """Where a reset puts a group in one partition.

    >>> Move(TopicPartition("orders", 0), before=3, wanted=-5, start=1, end=9).after
    1
    """

    at: TopicPartition
    before: int | None
    wanted: int
    start: int
    end: int

    @property
    def after(self) -> int:
        """What is wanted, or the nearest offset that the partition has."""
        return min(max(self.wanted, self.start), self.end)

    @property
    def is_clamped(self) -> bool:
        return self.after != self.wanted

    @property
    def lag(self) -> int:
        return self.end - self.after


def planned(
    wanted: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, CommittedOffset],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[Move]:
    return [
        Move(at, committed[at].offset if at in committed else None, offset, starts[at], ends[at])
        for at, offset in sorted(wanted.items())
    ]


def shifted(
    partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset], by: int
) -> dict[TopicPartition, int]:
    """Offsets moved relative to where the group is; KeyError for a partition without a committed offset."""
    return {at: committed[at].offset + by for at in partitions}
