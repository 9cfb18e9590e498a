"""What a producer knows of the topics it writes to, handed on to the accumulator as answers come in."""

from typing import NamedTuple

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.mailbox import Answer, Mailbox
from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer.settings import SendingSettings
from headrace.client.refresher import Refresher
from headrace.protocol.messages.metadata import MetadataResponse


class PartitionsGrew(NamedTuple):
    """Records of a key that come from now on may lie in another partition than those before."""

    topic: str
    before: int
    after: int


Event = PartitionsGrew


class Topics:
    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        mailbox: Mailbox,
        settings: SendingSettings,
        dice: Dice,
    ) -> None:
        self.cluster = cluster
        self.error: ClientError | None = None  # why the last question was not answered
        self._accumulator = accumulator
        self._mailbox = mailbox
        self._settings = settings
        self._refresher = Refresher(cluster, dice, creates_topics=True)
        self._wanted: dict[str, None] = {}
        self._events: list[Event] = []
        self._fresh_until = NEVER
        self.answers = 0  # how often brokers have told us of topics

    def look_anew(self, topic: str) -> None:
        """What we know of it may be out of date."""
        self.cluster.mark_stale(topic)

    def want(self, topic: str) -> None:
        """Somebody has records for it."""
        if topic not in self._wanted:
            self._wanted[topic] = None
            self.cluster.mark_stale(topic)
            self._refresher.hurry()

    def error_of(self, topic: str) -> ClientError | None:
        """Why the topic's partitions are not known."""
        return self._refresher.errors.get(topic) or self.error

    def advance(self, now: Instant) -> None:
        if now >= self._fresh_until:
            self._fresh_until = NEVER
            for topic in self._wanted:
                self.cluster.mark_stale(topic)
        question = self._refresher.request(now)
        if question is not None:
            self._mailbox.post(None, question, self._answered, timeout_s=self._settings.request_timeout_s)

    def _answered(self, now: Instant, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self.error = answer
            self._refresher.postpone(now)
            return
        assert isinstance(answer, MetadataResponse)
        self.error = None
        self.answers += 1
        self._refresher.answered(now, answer)
        self._fresh_until = Instant(now + self._settings.metadata_age_s)
        for told in answer.topics:
            self._learn(told.name or "")

    def _learn(self, name: str) -> None:
        topic = self.cluster.topics.get(name)
        if topic is None:
            return
        available = [partition.leader in self.cluster.brokers for partition in topic.partitions]
        before = self._accumulator.learn(name, available)
        if 0 < before < len(available):
            self._events.append(PartitionsGrew(name, before, len(available)))

    def refusal(self, topic: str) -> ClientError | None:
        """What no waiting would mend: the topic cannot be written to, or brokers will not talk to us."""
        error = self.error_of(topic)
        return error if error is not None and not error.is_retriable else None

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def deadline(self) -> Instant:
        return min(self._refresher.deadline(), self._fresh_until)
