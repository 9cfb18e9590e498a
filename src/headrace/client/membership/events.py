"""Events of a group member for the application, in the order in which they happened; its identity.

The reasons are for people: users often ask why a rebalance happened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError

Partitions = frozenset[TopicPartition]

LEAVING = "the consumer was closed or has unsubscribed"  # a reason


class CommittedOffset(NamedTuple):
    """How far a partition is read: the offset of the next record, and what was noted beside it."""

    offset: int
    leader_epoch: int = -1  # of the last record read; tells a later reader of lost records (KIP-320)
    metadata: str = ""


class GroupMembership(NamedTuple):
    """Who commits: by it a coordinator refuses a member that lost its partitions (KIP-447).

    >>> headrace.GroupMembership("copiers", generation=3, member_id="consumer-1").group_id
    'copiers'
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


@dataclass(slots=True, frozen=True)
class Assigned:
    """These are the application's now, besides those it has; perhaps none, when a rebalance gave no more."""

    partitions: Partitions


@dataclass(slots=True, frozen=True)
class Revoked:
    """These have to be given up: the application ends its work on them, commits, and calls `acknowledge`.

    Until then they are still its own, and the group waits.
    """

    partitions: Partitions
    reason: str = field(default="", compare=False)


@dataclass(slots=True, frozen=True)
class Lost:
    """The application has lost these partitions; another member may own them, so it is too late to commit."""

    partitions: Partitions
    reason: str = field(default="", compare=False)


@dataclass(slots=True, frozen=True)
class PolledTooLate:
    """The application did not poll, or did not acknowledge, for max.poll.interval.ms; the member has left the
    group and joins again with the next poll. `Lost` follows if it had partitions.
    """

    interval_s: float


@dataclass(slots=True, frozen=True)
class Left:
    """The member is out of the group, as it was asked to be."""


@dataclass(slots=True, frozen=True)
class Failed:
    """Nothing more happens until the application subscribes again: a retry would not help."""

    error: ClientError


@dataclass(slots=True, frozen=True)
class CommitEnded:
    """A commit of the application is done or has failed; these events are in the order of the calls."""

    number: int  # that `commit` gave
    offsets: Mapping[TopicPartition, CommittedOffset]
    error: ClientError | None


@dataclass(slots=True, frozen=True)
class AutoCommitFailed:
    """An automatic commit failed; the next interval tries again, if the member still owns the partitions."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    error: ClientError


@dataclass(slots=True, frozen=True)
class OffsetsFetched:
    """What the group had committed, None where it had nothing; or why we cannot know."""

    number: int  # that `fetch_committed` gave
    offsets: Mapping[TopicPartition, CommittedOffset | None]
    error: ClientError | None


@dataclass(slots=True, frozen=True)
class TopicRefused:
    """A topic of the subscription may not be read, or has an invalid name; reported once, until it can be
    read.
    """

    topic: str
    error: ClientError


MembershipEvent = Assigned | Revoked | Lost | PolledTooLate | Left | Failed
OffsetEvent = CommitEnded | AutoCommitFailed | OffsetsFetched
GroupEvent = MembershipEvent | OffsetEvent | TopicRefused


NO_EPOCH = -1


class Identity(NamedTuple):
    member_id: str = ""
    epoch: int = NO_EPOCH  # the generation of a classic group, or the member's epoch
    instance_id: str | None = None


NOBODY = Identity()  # commits of a consumer that chose its partitions by itself
