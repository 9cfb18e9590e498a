"""Keeps a Cluster fresh for a producer or a consumer: asks for stale topics, one question at a time."""

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.backoff import backoff
from headrace.client.cluster import Cluster
from headrace.client.errors import KafkaError
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


class Refresher:
    """idle --a topic is stale--> asked --answered--> idle, or --failed or still stale--> waiting --> asked
    again.
    """

    def __init__(self, cluster: Cluster, dice: Dice, *, creates_topics: bool = False) -> None:
        self.cluster = cluster
        self.errors: dict[str, KafkaError] = {}  # the topics that the last answer did not describe, and why
        self._dice = dice
        self._creates_topics = creates_topics  # the broker may do so, if it is set to
        self._is_asked = False
        self._ask_at = Instant(0.0)
        self._failures = 0

    def request(self, now: Instant) -> MetadataRequest | None:
        """The question to ask now, if one is due."""
        if self._is_asked or not self.cluster.stale or now < self._ask_at:
            return None
        self._is_asked = True
        topics = [MetadataRequestTopic(name=name) for name in sorted(self.cluster.stale)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self._creates_topics)

    def hurry(self) -> None:
        """The next question need not wait because of those before: it is about something new."""
        self._ask_at = Instant(0.0)

    def answered(self, now: Instant, response: MetadataResponse) -> None:
        """Topics that cannot be read now stay stale and are asked for again, more slowly each time.

        The same holds for one that is described without errors: whoever marked it stale may do so again at
        once, and the broker must not be asked in a tight loop.
        """
        self._is_asked = False
        self.errors = self.cluster.update(response)
        self.cluster.stale |= self.errors.keys()
        if self.errors:
            self._wait(now)
        else:
            self._failures = 0
            self._ask_at = Instant(now + backoff(0, self._dice))

    def postpone(self, now: Instant) -> None:
        """No answer came; asks again later."""
        self._is_asked = False
        self._wait(now)

    def _wait(self, now: Instant) -> None:
        self._ask_at = Instant(now + backoff(self._failures, self._dice))
        self._failures += 1

    def deadline(self) -> Instant:
        if self._is_asked or not self.cluster.stale:
            return NEVER
        return self._ask_at
