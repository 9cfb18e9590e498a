"""Topics of a producer in the metadata cache; partition counts and leaders go on to the accumulator."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import Instant
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.metadata import Metadata, Update
from headrace.client.producer._accumulator import Accumulator
from headrace.client.session import RequestQueue
from headrace.client.settings.producer import SendingSettings


class PartitionsGrew(NamedTuple):
    """A topic has more partitions: new records of a key may go to another partition than the old ones."""

    topic: str
    before: int
    after: int


Event = PartitionsGrew


class Topics:
    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        request_queue: RequestQueue,
        settings: SendingSettings,
        rng: Randomness,
    ) -> None:
        self.cluster = cluster
        self._accumulator = accumulator
        self._metadata = Metadata(
            request_queue,
            rng,
            request_timeout_s=settings.request_timeout_s,
            max_age_s=settings.metadata_age_s,
            creates_topics=True,
            cluster=cluster,
        )
        self._metadata.subscribe(self)
        self._wanted: dict[str, None] = {}
        self._ids: dict[str, bytes] = {}  # of the topics as the accumulator knows them
        self._events: list[Event] = []

    @property
    def error(self) -> ClientError | None:
        """Why the last request for topics was not answered."""
        return self._metadata.error

    @property
    def answers(self) -> int:
        """How often brokers have described topics."""
        return self._metadata.answers

    def look_anew(self, topic: str) -> None:
        """What we know of it may be out of date."""
        self.cluster.mark_stale(topic)

    def want(self, topic: str) -> None:
        """There are records for the topic."""
        if topic not in self._wanted:
            self._wanted[topic] = None
            self._metadata.want(topic)

    def error_of(self, topic: str) -> ClientError | None:
        """Why the topic's partitions are not known."""
        lookup = self._metadata.lookups.get(topic)
        return (lookup and lookup.error) or self._metadata.error

    def refusal(self, topic: str) -> ClientError | None:
        """An error that waiting would not mend: the topic cannot be written to, or brokers refuse us."""
        error = self.error_of(topic)
        return error if error is not None and not error.is_retriable else None

    def advance(self, now: Instant) -> None:
        self._metadata.advance(now)

    def deadline(self) -> Instant:
        return self._metadata.deadline()

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # --- what the cache calls ------------------------------------------------------------------------------

    def wanted_topics(self) -> Collection[str]:
        return self._wanted.keys()

    def metadata_updated(self, now: Instant, update: Update) -> Iterable[str]:
        for name in sorted(update.topics):
            topic = self.cluster.topics.get(name)
            if topic is None:
                continue
            available = [partition.leader in self.cluster.brokers for partition in topic.partitions]
            known_id = self._ids.get(name, topic.topic_id)
            self._ids[name] = topic.topic_id
            before = self._accumulator.learn(name, available, known_id != topic.topic_id)
            if 0 < before < len(available):
                self._events.append(PartitionsGrew(name, before, len(available)))
        return ()

    def metadata_failed(self, now: Instant, error: ClientError) -> None:
        """`error_of` tells it; the cache asks again."""
