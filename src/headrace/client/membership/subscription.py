"""What a group member subscribes to, and the partitions that it owns.

Topics are selected by name or by pattern. The partitions come and go in steps:

    take: what is new is told at once, unless something has to go first
    revoke --> the application ends its work --> acknowledge: now it is gone, and what is new is told
    lose: gone without asking

Between `revoke` and `acknowledge` partitions are still owned: their next owner has to wait.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from headrace.base.time import Instant
from headrace.client.errors import ClientError, InvalidInput
from headrace.client.membership.events import (
    Assigned,
    Lost,
    MembershipEvent,
    Partitions,
    Revoked,
    TopicRefused,
)
from headrace.client.metadata import Metadata, Refusals, Update


@dataclass(slots=True, frozen=True)
class Subscription:
    """Exactly one of the three says what is wanted."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None  # matched here, against whole names
    broker_pattern: str | None = None  # matched by the broker (RE2 syntax, consumer protocol only)

    def selects(self, topic: str) -> bool:
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics


def subscription_of(
    topics: Iterable[str] | str, pattern: str | re.Pattern[str] | None, broker_pattern: str | None
) -> Subscription:
    """From what an application says; text instead of a list is one topic."""
    names = frozenset([topics] if isinstance(topics, str) else topics)
    if bool(names) + (pattern is not None) + (broker_pattern is not None) != 1:
        raise InvalidInput("subscribe() needs exactly one of topics, pattern and broker_pattern")
    for name in names:
        if name.startswith("^"):
            raise InvalidInput(
                f"{name!r} is not a topic name; for a pattern, use subscribe(pattern={name!r})"
            )
    if isinstance(pattern, str):
        try:
            pattern = re.compile(pattern)
        except re.error as error:
            raise InvalidInput(f"{pattern!r} is not a regular expression: {error}") from error
    return Subscription(names, pattern, broker_pattern)


class SubscribedTopics:
    """The topics that a member watches, of all that the metadata cache describes.

    `changes` counts how often topics appeared, grew or disappeared, so that a leader knows when to assign
    again.
    """

    def __init__(
        self, metadata: Metadata, *, excludes_internal: bool, tell: Callable[[TopicRefused], None]
    ) -> None:
        """`excludes_internal`: patterns do not select Kafka's own topics."""
        self.partitions: dict[str, int] = {}  # partition counts of all known topics
        self.names: dict[bytes, str] = {}  # by topic id, also of topics that are gone: they may be ours still
        self.changes = 0
        self._metadata = metadata
        self._excludes_internal = excludes_internal
        self._tell = tell
        self._watched: frozenset[str] = frozenset()
        self._refusals = Refusals()
        self._selected: tuple[re.Pattern[str] | None, int, frozenset[str]] = (None, 0, frozenset())
        metadata.subscribe(self)

    def watch(self, topics: Iterable[str], *, everything: bool = False, ids: Collection[bytes] = ()) -> None:
        """From now on these; `ids` are those of topics whose names are not known yet."""
        watched = frozenset(topics)
        if watched != self._watched:
            for topic in sorted(watched - self._watched):
                self._metadata.want(topic)
            self._watched = watched
        self._metadata.want_all(everything)
        self._metadata.want_ids(ids)

    def is_told(self, topics: Iterable[str]) -> bool:
        """Whether we know of each of these topics if it exists."""
        return self._metadata.is_told(topics)

    def can_select(self, subscription: Subscription | None) -> bool:
        """Whether we know enough to say which topics the subscription selects."""
        return subscription is not None and (subscription.pattern is None or self._metadata.has_all)

    def select(self, subscription: Subscription) -> frozenset[str]:
        """The topics that it selects today; names are taken as they are, whether they exist or not."""
        pattern = subscription.pattern
        if pattern is None:
            return subscription.topics
        if self._selected[:2] != (pattern, self.changes):
            selected = frozenset(
                topic.name
                for topic in self._metadata.cluster.topics.values()
                if subscription.selects(topic.name) and not (topic.is_internal and self._excludes_internal)
            )
            self._selected = pattern, self.changes, selected
        return self._selected[2]

    # --- what the cache calls ------------------------------------------------------------------------------

    def wanted_topics(self) -> Collection[str]:
        return self._watched

    def metadata_updated(self, now: Instant, update: Update) -> Iterable[str]:
        cluster = self._metadata.cluster
        partitions = {name: len(topic.partitions) for name, topic in cluster.topics.items()}
        if partitions != self.partitions:
            self.partitions = partitions
            self.changes += 1
        self.names.update(cluster.names_by_id)
        for topic, error in self._refusals.new(update, self._watched).items():
            self._tell(TopicRefused(topic, error))
        return ()

    def metadata_failed(self, now: Instant, error: ClientError) -> None:
        """The cache asks again."""


NONE: Partitions = frozenset()


class OwnedPartitions:
    """Invariants: `revoking` is part of `owned`; `_adding` is set only while something is being revoked."""

    def __init__(self, tell: Callable[[MembershipEvent], None]) -> None:
        self.owned: Partitions = NONE
        self.revoking: Partitions = NONE  # told to the application, not acknowledged
        self._adding: Partitions | None = None  # to be told when it has acknowledged
        self._tell = tell

    def take(self, wanted: Partitions, reason: str) -> Partitions:
        """This and nothing else is to be owned; gives what has to be acknowledged before."""
        gone, new = self.owned - wanted, wanted - self.owned
        if gone:
            self._adding = new
            self.revoke(gone, reason)
        else:
            self._add(new)
        return gone

    def revoke(self, partitions: Partitions, reason: str) -> None:
        fresh = partitions - self.revoking
        if fresh:
            self.revoking |= fresh
            self._tell(Revoked(fresh, reason))

    def revoke_all(self, reason: str) -> None:
        self._adding = None
        self.revoke(self.owned, reason)

    def acknowledge(self, partitions: Partitions) -> None:
        """The application is done with these of what is being revoked."""
        done = partitions & self.revoking
        self.owned -= done
        self.revoking -= done
        if self._adding is not None and not self.revoking:
            adding, self._adding = self._adding, None
            self._add(adding)

    def reconsider(self) -> None:
        """A newer assignment is coming: the additions of this one are dropped."""
        self._adding = None

    def lose(self, reason: str) -> None:
        """All is gone, be it acknowledged or not."""
        lost, self.owned, self.revoking, self._adding = self.owned, NONE, NONE, None
        if lost:
            self._tell(Lost(lost, reason))

    def _add(self, partitions: Partitions) -> None:
        self.owned |= partitions
        self._tell(Assigned(partitions))

    def check(self) -> None:
        assert self.revoking <= self.owned
        assert self._adding is None or self.revoking
