"""Events of a group member for the application, in the order in which they happened; its identity.

The reasons are for people: a rebalance that nobody can explain is the most frequent complaint.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError

Partitions = frozenset[TopicPartition]


class CommittedOffset(NamedTuple):
    """How far a partition is read: the offset of the next record, and what was noted beside it."""

    offset: int
    leader_epoch: int = -1  # of the last record read; tells a later reader of lost records (KIP-320)
    metadata: str = ""


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
    """These are no longer the application's, and perhaps somebody else's already: too late to commit."""

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
    """A commit that the application asked for is done, or has failed for good; in the order of the asking."""

    number: int  # that `commit` gave
    offsets: Mapping[TopicPartition, CommittedOffset]
    error: ClientError | None


@dataclass(slots=True, frozen=True)
class AutoCommitFailed:
    """Offsets that nobody asked to commit were not; the next interval tries again, if they are still ours."""

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
    """A topic of the subscription is not ours to read, or cannot exist; told once, until it can be read."""

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
