"""Which topics exist and how many partitions they have, for those who must notice when that changes.

A question covers the watched names, or all topics where a pattern wants them. It is asked when a name is
watched that we were told nothing of, again soon while a topic is missing, and otherwise when what we know is
older than metadata.max.age.ms.
"""

import re
from collections.abc import Callable, Iterable

from headrace.base.dice import Dice
from headrace.base.ids import NO_TOPIC_ID
from headrace.base.time import NEVER, Instant
from headrace.client.backoff import backoff
from headrace.client.errors import ClientError, KafkaError
from headrace.client.mailbox import Answer, Mailbox
from headrace.client.membership.events import TopicRefused
from headrace.client.membership.subscription import Subscription
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

# The answer, and whether it lists all topics that there are.
Heard = Callable[[Instant, MetadataResponse, bool], None]

MISSING_RETRY_S = 1.0  # how often a missing topic is asked for: Java's retry.backoff.max.ms


class TopicWatch:
    """Invariant: `partitions` has the topics that exist, as far as we were told, of those in `_told`."""

    def __init__(
        self,
        mailbox: Mailbox,
        dice: Dice,
        *,
        max_age_s: float,
        request_timeout_s: float,
        allow_auto_create: bool,
        excludes_internal: bool,
        tell: Callable[[TopicRefused], None],
    ) -> None:
        self.partitions: dict[str, int] = {}
        self.internal: set[str] = set()
        self.names: dict[bytes, str] = {}  # by topic id
        self.changes = 0  # of `partitions`, so far
        self.was_told_all = False
        self.heard: list[Heard] = []  # who wants to know what brokers answered
        self._mailbox = mailbox
        self._dice = dice
        self._max_age_s = max_age_s
        self._timeout_s = request_timeout_s
        self._allow_auto_create = allow_auto_create
        self._excludes_internal = excludes_internal
        self._tell = tell
        self._refused: set[str] = set()  # told so
        self._names: frozenset[str] = frozenset()
        self._ids: frozenset[bytes] = frozenset()
        self._wants_all = False
        self._told: set[str] = set()  # names about which we have an answer, be it that there is no such topic
        self._is_asked = False
        self._ask_at = Instant(0.0)  # not before
        self._renew_at = Instant(0.0)  # at the latest
        self._ids_ask_at = Instant(0.0)
        self._failures = 0
        self._chosen: tuple[re.Pattern[str] | None, int, frozenset[str]] = (None, 0, frozenset())

    def watch(self, names: Iterable[str], *, everything: bool = False, ids: Iterable[bytes] = ()) -> None:
        """From now on these; ids are those of topics whose names are not known yet."""
        self._names, self._wants_all, self._ids = frozenset(names), everything, frozenset(ids)

    def was_told(self, names: Iterable[str]) -> bool:
        """Whether we know of each if it exists."""
        return self.was_told_all or all(name in self._told for name in names)

    def can_choose(self, subscription: Subscription | None) -> bool:
        """Whether we know enough to say which topics it means."""
        return subscription is not None and (subscription.pattern is None or self.was_told_all)

    def chosen(self, subscription: Subscription) -> frozenset[str]:
        """The topics it means today; names are taken as they are, whether they exist or not."""
        pattern = subscription.pattern
        if pattern is None:
            return subscription.topics
        if self._chosen[:2] != (pattern, self.changes):
            known = self.partitions.keys() - (self.internal if self._excludes_internal else set())
            self._chosen = pattern, self.changes, frozenset(filter(subscription.selects, known))
        return self._chosen[2]

    def deadline(self) -> Instant:
        return NEVER if self._is_asked else min(self._names_due_at(), self._ids_due_at())

    def _names_due_at(self) -> Instant:
        if not self._names and not self._wants_all:
            return NEVER
        is_ignorant = self._wants_all and not self.was_told_all
        if is_ignorant or not self.was_told(self._names):
            return self._ask_at
        return max(self._ask_at, self._renew_at)

    def _ids_due_at(self) -> Instant:
        return NEVER if self._ids <= self.names.keys() else max(self._ask_at, self._ids_ask_at)

    def advance(self, now: Instant) -> None:
        if self._is_asked:
            return
        if now >= self._names_due_at():
            self._ask_names()
        elif now >= self._ids_due_at():
            self._ask_ids()

    def _ask_names(self) -> None:
        names, wants_all = self._names, self._wants_all
        topics = [MetadataRequestTopic(name=name) for name in sorted(names)]
        question = MetadataRequest(
            topics=None if wants_all else topics,
            allow_auto_topic_creation=self._allow_auto_create and not wants_all,
        )

        def then(now: Instant, answer: MetadataResponse) -> None:
            self.learn(answer, is_complete=wants_all)
            self._told |= names
            is_missing = not names <= self.partitions.keys()
            self._renew_at = Instant(now + (MISSING_RETRY_S if is_missing else self._max_age_s))

        self._ask(question, then, is_complete=wants_all)

    def _ask_ids(self) -> None:
        """A request of its own: Kafka overlooks names in one that has ids."""
        wanted = sorted(self._ids - self.names.keys())
        topics = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in wanted]

        def then(now: Instant, answer: MetadataResponse) -> None:
            self.learn(answer)
            self._ids_ask_at = Instant(now + MISSING_RETRY_S)

        self._ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), then)

    def _ask(
        self,
        question: MetadataRequest,
        then: Callable[[Instant, MetadataResponse], None],
        *,
        is_complete: bool = False,
    ) -> None:
        self._is_asked = True

        def answered(now: Instant, answer: Answer) -> None:
            self._is_asked = False
            if isinstance(answer, ClientError):
                self._ask_at = Instant(now + backoff(self._failures, self._dice))
                self._failures += 1
                return
            assert isinstance(answer, MetadataResponse)
            self._failures = 0
            self._ask_at = Instant(now + backoff(0, self._dice))
            then(now, answer)
            for hear in self.heard:
                hear(now, answer, is_complete)

        self._mailbox.post(None, question, answered, timeout_s=self._timeout_s)

    def learn(self, answer: MetadataResponse, *, is_complete: bool = False) -> None:
        """Takes an answer in, perhaps one to somebody else's question; a complete one lists all topics."""
        before = dict(self.partitions)
        if is_complete:
            self.was_told_all = True
            for name in self.partitions.keys() - {told.name for told in answer.topics}:
                del self.partitions[name]
        for told in answer.topics:
            if not told.name:  # an id that nobody knows
                continue
            self._told.add(told.name)
            if told.error_code:
                self._failed(told.name, told.error_code)
                continue
            self._refused.discard(told.name)
            self.partitions[told.name] = len(told.partitions)
            if told.is_internal:
                self.internal.add(told.name)
            if told.topic_id != NO_TOPIC_ID:
                self.names[told.topic_id] = told.name
        if self.partitions != before:
            self.changes += 1

    def _failed(self, name: str, code: int) -> None:
        error = KafkaError(code, subject=f"topic {name!r}")
        if error.is_retriable and not error.is_unknown_topic:
            return  # it is not gone because it has no leader at the moment
        self.partitions.pop(name, None)
        if not error.is_retriable and name not in self._refused:
            self._refused.add(name)
            self._tell(TopicRefused(name, error))
