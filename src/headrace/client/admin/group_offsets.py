"""Committed offsets of groups: list, alter and delete them; the lag of a group; offsets after a reset.

    start ≤ … committed … ≤ end        lag = end - committed

`start` and `end` are those of the partition. A committed offset may lie outside them: records before it
expired, or the topic was deleted and created again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.admin.groups import Group, coordinator_of, describe_groups, list_groups
from headrace.client.admin.offsets import ListedOffset, OffsetAt, offsets_at
from headrace.client.admin.operation import (
    Ask,
    ByPartition,
    Operation,
    Outcome,
    Sent,
    as_list,
    as_partition,
    ask_all,
    ask_one,
    by_partition,
    by_topic,
    check,
    settled,
)
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError
from headrace.client.membership.events import CommittedOffset
from headrace.client.network.connection import ByVersion
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup


class PartitionLag(NamedTuple):
    """The lag of a group in one partition.

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
    """The lag of each partition that the group is assigned or has committed; `group` is None without a
    description.
    """
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
    """The change of a group's offset in one partition by a reset.

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


NAMES_UNTIL = 9  # from version 10 on, offsets are told by topic id, which a deleted topic has no more
MANY_GROUPS_SINCE = 8
NO_OFFSET = -1
# Share and streams groups keep their offsets elsewhere; brokers of before KIP-848 tell no type.
WITH_OFFSETS = ("", "classic", "consumer")


# --- questions -------------------------------------------------------------------------------------------


def list_group_offsets(group: str) -> Operation[dict[TopicPartition, CommittedOffset]]:
    """The committed offsets of a group by partition; empty if the group does not exist.

    >>> admin.list_group_offsets("readers")["orders", 0].offset
    1
    """
    return (yield from list_offsets_of_groups([group]))[group]


def list_offsets_of_groups(
    groups: str | Iterable[str],
) -> Operation[dict[str, dict[TopicPartition, CommittedOffset]]]:
    """The committed offsets of several groups.

    >>> offsets = admin.list_offsets_of_groups(["readers", "nobody"])
    >>> len(offsets["readers"]), len(offsets["nobody"])
    (1, 0)
    """

    def make(names: list[str], _: int) -> ByVersion:
        (name,) = names

        def of_version(version: int) -> OffsetFetchRequest:
            if version >= MANY_GROUPS_SINCE:
                return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None)])
            return OffsetFetchRequest(group_id=name, topics=None)

        return ByVersion(OffsetFetchRequest, of_version)

    def read(answer: Any, sent: Sent[str]) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        (name,) = sent.subjects
        told = answer.groups[0] if answer.groups else answer
        check(told.error_code, subject=f"group {name!r}")
        offsets = settled(by_partition(told.topics, _committed))
        return {name: {at: one for at, one in offsets.items() if one.offset != NO_OFFSET}}

    targets = {group: coordinator_of(group) for group in as_list(groups)}
    question = Ask(
        "asking for offsets of groups", targets, make, read, version_max=NAMES_UNTIL, is_alone=True
    )
    return (yield from ask_all(question))


def _committed(told: Any) -> CommittedOffset:
    return CommittedOffset(told.committed_offset, told.committed_leader_epoch, told.metadata or "")


def group_lag(group: str) -> Operation[list[PartitionLag]]:
    """The lag of one group by partition.

    >>> sum(one.lag or 0 for one in admin.group_lag("readers"))
    1
    """
    return (yield from lag_of_groups([group]))[group]


def lag_of_groups(groups: str | Iterable[str] | None = None) -> Operation[dict[str, list[PartitionLag]]]:
    """The lag of groups by partition: of those that you name, or of all that have offsets.

    >>> sorted(admin.lag_of_groups())
    ['readers']
    """
    described = yield from groups_with_offsets(groups)
    return (yield from lag_of_described(described))


def groups_with_offsets(groups: str | Iterable[str] | None) -> Operation[dict[str, Group]]:
    if groups is None:
        listed = yield from list_groups()
        groups = [one.group for one in listed if one.type in WITH_OFFSETS]
    return (yield from describe_groups(groups))


def lag_of_described(described: Mapping[str, Group]) -> Operation[dict[str, list[PartitionLag]]]:
    committed = yield from list_offsets_of_groups(described)
    read = {at for offsets in committed.values() for at in offsets}
    read |= {at for group in described.values() for member in group.members for at in member.assignment or ()}
    ends = yield from offsets_at(dict.fromkeys(sorted(read), int(OffsetAt.LATEST)))
    known = _known_ends(ends)
    return {name: lag_of(group, committed[name], known) for name, group in described.items()}


def _known_ends(ends: Outcome[TopicPartition, ListedOffset]) -> dict[TopicPartition, int]:
    """Of the partitions that are there: a group may remember topics that were deleted."""
    known = {}
    for at, told in ends.items():
        if isinstance(told, ClientError):
            if not getattr(told, "is_unknown_topic", False):
                raise told
        elif told.offset is not None:
            known[at] = told.offset
    return known


# --- orders ----------------------------------------------------------------------------------------------


def alter_group_offsets(group: str, offsets: ByPartition[int | CommittedOffset]) -> Operation[None]:
    """Sets the committed offsets of a group without members; creates the group if it does not exist.

    >>> admin.alter_group_offsets("rewound", {("orders", 0): 0})
    >>> admin.alter_group_offsets("rewound", {("orders", 1): CommittedOffset(0, metadata="by hand")})
    >>> admin.list_group_offsets("rewound")["orders", 1].metadata
    'by hand'
    >>> admin.delete_group("rewound")
    """
    wanted = {
        as_partition(at): one if isinstance(one, CommittedOffset) else CommittedOffset(one)
        for at, one in offsets.items()
    }
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=at.partition,
                        committed_offset=wanted[at].offset,
                        committed_leader_epoch=wanted[at].leader_epoch,
                        committed_metadata=wanted[at].metadata,
                    )
                    for at in partitions
                ],
            )
            for topic, partitions in by_topic(sorted(wanted)).items()
        ],
    )
    what = f"setting offsets of group {group!r}"
    yield from ask_one(
        what,
        coordinator_of(group),
        lambda _: request,
        lambda answer: _check_partitions(group, answer.topics),
        version_max=NAMES_UNTIL,
    )


def delete_group_offsets(group: str, partitions: Iterable[tuple[str, int]]) -> Operation[None]:
    """Deletes the committed offsets of a group for some partitions.

    >>> admin.alter_group_offsets("forgetful", {("orders", 0): 1, ("orders", 1): 0})
    >>> admin.delete_group_offsets("forgetful", [("orders", 1)])
    >>> list(admin.list_group_offsets("forgetful"))
    [TopicPartition(topic='orders', partition=0)]
    >>> admin.delete_group("forgetful")
    """
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=at.partition) for at in asked],
            )
            for topic, asked in by_topic(sorted(map(as_partition, partitions))).items()
        ],
    )

    def read(answer: Any) -> None:
        check(answer.error_code, subject=f"group {group!r}")
        _check_partitions(group, answer.topics)

    what = f"deleting offsets of group {group!r}"
    yield from ask_one(what, coordinator_of(group), lambda _: request, read)


def _check_partitions(group: str, topics: Iterable[Any]) -> None:
    """Raises what the partitions say: one error as it is, several as one."""
    settled(by_partition(topics, lambda _: True, subject=f"group {group!r}, "))
