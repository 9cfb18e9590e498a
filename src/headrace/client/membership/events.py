"""What the application has to know of its membership, in the order in which it happened."""

from dataclasses import dataclass

from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError

Partitions = frozenset[TopicPartition]


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


@dataclass(slots=True, frozen=True)
class Lost:
    """These are no longer the application's, and perhaps somebody else's already: too late to commit."""

    partitions: Partitions


@dataclass(slots=True, frozen=True)
class PolledTooLate:
    """The application did not poll for longer than max.poll.interval.ms; the member has left the group and
    joins again with the next poll. `Lost` follows if it had partitions.
    """

    interval_s: float


@dataclass(slots=True, frozen=True)
class Left:
    """The member is out of the group, as it was asked to be."""


@dataclass(slots=True, frozen=True)
class Failed:
    """Nothing more happens until the application subscribes anew: trying again would not mend this."""

    error: ClientError


MembershipEvent = Assigned | Revoked | Lost | PolledTooLate | Left | Failed
