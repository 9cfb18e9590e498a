"""Topics of a consumer in the metadata cache: leaders of what it reads, and calls that list partitions.

The application hears once of a topic that it may not read, and of every failure that no retry would mend.
"""

from collections.abc import Callable, Collection, Iterable

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, Partition, TopicPartition
from headrace.client.errors import ClientError, KafkaError, TimedOut
from headrace.client.metadata import Metadata, Refusals, Update
from headrace.client.pending import Pending

UNKNOWN_TIMES_MAX = 2  # the first request may have made the broker create the topic


class _Listing:
    __slots__ = ("deadline", "error", "pending", "topic", "unknown_times")

    def __init__(self, topic: str, deadline: Instant) -> None:
        self.topic = topic
        self.deadline = deadline
        self.pending: Pending[list[Partition]] = Pending(f"listing the partitions of topic {topic!r}")
        self.unknown_times = 0
        self.error: ClientError | None = None


class ConsumerTopics:
    def __init__(
        self,
        metadata: Metadata,
        *,
        wanted: Callable[[], Collection[TopicPartition]],
        updated: Callable[[], None],
        fail: Callable[[ClientError], None],
        cannot_ask: Callable[[Instant, ClientError], None],
    ) -> None:
        """`wanted` gives the partitions whose leaders are needed. `updated` is called after every answer,
        `fail` with an error that no retry would mend, and `cannot_ask` if such an error came instead of an
        answer.
        """
        self._metadata = metadata
        self._wanted = wanted
        self._updated = updated
        self._fail = fail
        self._cannot_ask = cannot_ask
        self._listings: list[_Listing] = []
        self._refusals = Refusals()
        metadata.subscribe(self)

    @property
    def _cluster(self) -> Cluster:
        return self._metadata.cluster

    def list_partitions(self, now: Instant, topic: str, timeout_s: float) -> Pending[list[Partition]]:
        listing = _Listing(topic, Instant(now + timeout_s))
        known = self._cluster.topics.get(topic)
        if known is not None and topic not in self._cluster.stale:
            listing.pending.finish(list(known.partitions))
        else:
            self._listings.append(listing)
            self._metadata.want(topic)
        return listing.pending

    def want(self, topic: str) -> None:
        """A partition of the topic is going to be read."""
        self._metadata.want(topic)

    def advance(self, now: Instant) -> None:
        for listing in list(self._listings):
            if now >= listing.deadline:
                self._listings.remove(listing)
                late = TimedOut(f"timed out while {listing.pending.what}")
                listing.pending.finish(error=listing.error or late)
        self._metadata.advance(now)

    def deadline(self) -> Instant:
        earliest = min((listing.deadline for listing in self._listings), default=NEVER)
        return min(earliest, self._metadata.deadline())

    # --- what the cache calls ------------------------------------------------------------------------------

    def wanted_topics(self) -> Collection[str]:
        return {at.topic for at in self._wanted()} | {listing.topic for listing in self._listings}

    def metadata_updated(self, now: Instant, update: Update) -> Iterable[str]:
        for error in self._refusals.new(update, {at.topic for at in self._wanted()}).values():
            self._fail(error)
        for listing in list(self._listings):
            self._answer(listing, update.errors.get(listing.topic))
        self._updated()
        missing = {at.topic for at in self._wanted() if self._cluster.leader_of(at) is None}
        return missing | {listing.topic for listing in self._listings}

    def _answer(self, listing: _Listing, error: KafkaError | None) -> None:
        known = self._cluster.topics.get(listing.topic)
        if error is not None:
            listing.error = error
            listing.unknown_times += error.is_unknown_topic
            if error.is_retriable and listing.unknown_times < UNKNOWN_TIMES_MAX:
                return
        elif known is None:
            return  # the answer was about other topics
        self._listings.remove(listing)
        listing.pending.finish(None if known is None else list(known.partitions), error)

    def metadata_failed(self, now: Instant, error: ClientError) -> None:
        for listing in self._listings:
            listing.error = error
        if not error.is_retriable:
            listings, self._listings = self._listings, []
            for listing in listings:
                listing.pending.finish(error=error)
            self._cannot_ask(now, error)
            self._fail(error)
