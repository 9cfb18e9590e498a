"""What a consumer knows of the topics it reads: leaders, epochs, ids; asked for when somebody misses them.

A question covers the topics that are stale. It is asked again soon, and then more slowly, while a leader is
missing, and otherwise when what we know is older than metadata.max.age.ms.
"""

from collections.abc import Callable, Collection

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, Partition, TopicPartition
from headrace.client.consumer.settings import ConsumerSettings
from headrace.client.errors import BadResponse, ClientError, KafkaError, TimedOut
from headrace.client.mailbox import Answer, Mailbox
from headrace.client.pending import Pending
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

UNKNOWN_TIMES_MAX = 2  # the first question may have made the broker create the topic


class _Listing:
    __slots__ = ("deadline", "error", "pending", "topic", "unknown_times")

    def __init__(self, topic: str, deadline: Instant) -> None:
        self.topic = topic
        self.deadline = deadline
        self.pending: Pending[list[Partition]] = Pending(f"listing the partitions of topic {topic!r}")
        self.unknown_times = 0
        self.error: ClientError | None = None


class Topics:
    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        mailbox: Mailbox,
        dice: Dice,
        *,
        wanted: Callable[[], Collection[TopicPartition]],
        heard: Callable[[MetadataResponse], None],
        fail: Callable[[ClientError], None],
        cannot_ask: Callable[[Instant, ClientError], None],
    ) -> None:
        """`wanted` are the partitions whose leaders somebody needs; `heard` is told of every answer, `fail`
        of what no retry would mend, and `cannot_ask` if that is why there is no answer at all.
        """
        self._settings = settings
        self._cluster = cluster
        self._mailbox = mailbox
        self._dice = dice
        self._wanted = wanted
        self._heard = heard
        self._fail = fail
        self._cannot_ask = cannot_ask
        self._listings: list[_Listing] = []
        self._refused: set[str] = set()  # told so, once
        self._is_asked = False
        self._ask_at = Instant(0.0)
        self._renew_at = NEVER
        self._failures = 0

    def list_partitions(self, now: Instant, topic: str, timeout_s: float) -> Pending[list[Partition]]:
        listing = _Listing(topic, Instant(now + timeout_s))
        known = self._cluster.topics.get(topic)
        if known is not None and topic not in self._cluster.stale:
            listing.pending.finish(list(known.partitions))
        else:
            self._listings.append(listing)
            self._cluster.mark_stale(topic)
        return listing.pending

    def want(self, topic: str) -> None:
        """Somebody is going to read it."""
        if topic not in self._cluster.topics or self._renew_at == NEVER:
            self._cluster.mark_stale(topic)

    def hear(self, now: Instant, answer: MetadataResponse, *, is_complete: bool) -> None:
        """An answer to somebody else's question; a complete one lists all topics."""
        try:
            self._learn(now, answer, is_complete=is_complete)
        except BadResponse as error:
            self._fail(error)

    def advance(self, now: Instant) -> None:
        self._expire(now)
        if self._is_asked:
            return
        if now >= self._renew_at:
            self._renew_at = NEVER
            for at in self._wanted():
                self._cluster.mark_stale(at.topic)
        if not self._cluster.stale or now < self._ask_at:
            return
        wanted = {at.topic for at in self._wanted()} | {listing.topic for listing in self._listings}
        self._cluster.stale &= wanted  # of others nobody wants to know any more
        if self._cluster.stale:
            self._ask(sorted(self._cluster.stale))

    def deadline(self) -> Instant:
        earliest = min((listing.deadline for listing in self._listings), default=NEVER)
        if self._is_asked:
            return earliest
        return min(earliest, self._ask_at if self._cluster.stale else self._renew_at)

    def _expire(self, now: Instant) -> None:
        for listing in list(self._listings):
            if now >= listing.deadline:
                self._listings.remove(listing)
                late = TimedOut(f"timed out while {listing.pending.what}")
                listing.pending.finish(error=listing.error or late)

    def _ask(self, names: list[str]) -> None:
        self._is_asked = True
        question = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self._settings.allow_auto_create_topics,
        )
        self._mailbox.post(None, question, self._answered, timeout_s=self._settings.request_timeout_s)

    def _answered(self, now: Instant, answer: Answer) -> None:
        self._is_asked = False
        if isinstance(answer, ClientError):
            self._unanswered(now, answer)
            return
        assert isinstance(answer, MetadataResponse)
        try:
            self._learn(now, answer)
        except BadResponse as error:
            self._unanswered(now, error)
            return
        self._heard(answer)
        is_missing = any(self._cluster.leader_of(at) is None for at in self._wanted())
        self._failures = self._failures + 1 if is_missing or self._listings else 0
        # also without a failure: whoever marked a topic stale may do so again at once
        self._ask_at = Instant(now + self._settings.backoff(self._failures, self._dice))

    def _unanswered(self, now: Instant, error: ClientError) -> None:
        for listing in self._listings:
            listing.error = error
        self._ask_at = Instant(now + self._settings.backoff(self._failures, self._dice))
        self._failures += 1
        if not error.is_retriable:
            listings, self._listings = self._listings, []
            for listing in listings:
                listing.pending.finish(error=error)
            self._cannot_ask(now, error)
            self._fail(error)

    def _learn(self, now: Instant, answer: MetadataResponse, *, is_complete: bool = False) -> None:
        errors = self._cluster.update(answer, is_complete=is_complete)
        self._renew_at = Instant(now + self._settings.metadata_age_s)
        wanted = {at.topic for at in self._wanted()}
        self._refused -= self._cluster.topics.keys()
        for name, error in errors.items():
            if name in wanted:
                self._cluster.mark_stale(name)
                if not error.is_retriable and name not in self._refused:
                    self._refused.add(name)
                    self._fail(error)
        for listing in list(self._listings):
            self._tell(listing, errors.get(listing.topic))

    def _tell(self, listing: _Listing, error: KafkaError | None) -> None:
        known = self._cluster.topics.get(listing.topic)
        if error is not None:
            listing.error = error
            listing.unknown_times += error.is_unknown_topic
            self._cluster.mark_stale(listing.topic)
            if error.is_retriable and listing.unknown_times < UNKNOWN_TIMES_MAX:
                return
        elif known is None:
            return  # the answer was about others
        self._listings.remove(listing)
        listing.pending.finish(None if known is None else list(known.partitions), error)
