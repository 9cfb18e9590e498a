"""Topic metadata of one client: a cache that is refreshed for all its subscribers, one request at a time.

    fresh --marked stale, wanted for the first time, or too old--> due --Metadata request--> asked
    asked --described--> fresh
          --error or no leader--> stale, asked for again after a pause that grows for each topic
          --the request failed--> stale, the next request waits for a pause that grows for all

A request covers the topics that are due and that a subscriber wants, or that somebody looks up once. It asks
for all topics if a subscriber wants all and that list is due. Topics that are known only by their ids are
asked for in a request of their own: Kafka ignores names in a request that has ids.

Time comes in, requests go to the request queue, and subscribers are called when an answer has changed
`cluster`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.backoff import RETRY_FIRST_S, RETRY_LAST_S, backoff
from headrace.client.cluster import Cluster
from headrace.client.errors import BadResponse, ClientError, KafkaError
from headrace.client.session import Answer, RequestQueue
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

UNKNOWN_ID_RETRY_S = 1.0  # how often an id that no broker knows is asked for
LONG_AGO = Instant(float("-inf"))


class Lookup(NamedTuple):
    """The last request about a topic, or about the brokers."""

    asked_at: Instant
    error: ClientError | None = None  # why it brought nothing: the topic's own, or that of the whole request


class Update(NamedTuple):
    """One answer, after the cluster has taken it in."""

    topics: Collection[str]  # that it describes or refuses
    errors: Mapping[str, KafkaError]
    is_complete: bool  # it lists all topics that there are


class Subscriber(Protocol):
    def wanted_topics(self) -> Collection[str]:
        """The topics that are kept fresh for this subscriber."""
        ...

    def metadata_updated(self, now: Instant, update: Update) -> Iterable[str]:
        """Gives the topics that still lack something, such as a leader."""
        ...

    def metadata_failed(self, now: Instant, error: ClientError) -> None:
        """No answer came."""
        ...


class Refusals:
    """Topics with errors that do not pass: a subscriber reports each once, until the topic can be read."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def new(self, update: Update, wanted: Collection[str]) -> dict[str, KafkaError]:
        found = {
            topic: error
            for topic, error in update.errors.items()
            if topic in wanted and not error.is_retriable and topic not in self._reported
        }
        self._reported -= set(update.topics) - update.errors.keys()
        self._reported |= found.keys()
        return found


class _Retry(NamedTuple):
    failures: int
    at: Instant  # not before


_NO_RETRY = _Retry(0, LONG_AGO)


class Metadata:
    """Invariants: one request at most is under way; `lookups` has every topic that was ever asked for."""

    def __init__(
        self,
        request_queue: RequestQueue,
        rng: Randomness,
        *,
        request_timeout_s: float,
        max_age_s: float,
        creates_topics: bool = False,
        cluster: Cluster | None = None,
        retry_first_s: float = RETRY_FIRST_S,
        retry_last_s: float = RETRY_LAST_S,
    ) -> None:
        """`creates_topics`: the broker may create a topic that is asked for, if its own settings allow it."""
        self.cluster = cluster or Cluster()
        self.answers = 0  # so far
        self.error: ClientError | None = None  # why the last request failed; None after an answer
        self.lookups: dict[str, Lookup] = {}
        self.brokers: Lookup | None = None
        self.has_all = False  # whether all topics were ever listed
        self._request_queue = request_queue
        self._rng = rng
        self._timeout_s = request_timeout_s
        self._max_age_s = max_age_s
        self._creates_topics = creates_topics
        self._retry_first_s = retry_first_s
        self._retry_last_s = retry_last_s
        self._subscribers: list[Subscriber] = []
        self._told: set[str] = set()  # topics that a broker has described or refused
        self._once: set[str] = set()  # to be looked up once
        self._wants_brokers = False
        self._wants_all = False
        self._is_all_due = False
        self._all_asked_at = LONG_AGO  # of the last list of all topics
        self._ids: frozenset[bytes] = frozenset()
        self._asked: frozenset[str] | None = None  # the topics of the request under way; None: there is none
        self._seen_at = LONG_AGO  # the last time that was told
        self._ask_at = LONG_AGO  # no request before
        self._ask_ids_at = LONG_AGO
        self._refresh_at = NEVER  # when the oldest of what is wanted is too old
        self._failures = 0  # of whole requests, in a row
        self._retries: dict[str, _Retry] = {}  # topics whose last answers brought nothing

    # --- what is wanted ------------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def want(self, topic: str) -> None:
        """A subscriber has begun to want the topic."""
        known = self.lookups.get(topic)
        if known is None or known.error is not None or known.asked_at + self._max_age_s <= self._seen_at:
            self.cluster.mark_stale(topic)
        if known is None:
            self.hurry()

    def hurry(self) -> None:
        """The next request is about something new: it need not wait because of those before it."""
        self._ask_at = LONG_AGO

    def want_all(self, is_wanted: bool) -> None:
        """Whether the list of all topics is kept fresh."""
        if is_wanted and not self._wants_all:
            self._is_all_due = True
            self.hurry()
        self._wants_all = is_wanted

    def want_ids(self, ids: Collection[bytes]) -> None:
        """Topics whose names are not known yet."""
        self._ids = frozenset(ids)

    def look_up(self, topic: str) -> None:
        """Asks for the topic once, unless a request about it is under way; `lookups` has what comes of it."""
        if self._asked is None or topic not in self._asked:
            self._once.add(topic)
            self._retries.pop(topic, None)
            self.cluster.mark_stale(topic)
            self.hurry()

    def look_up_brokers(self) -> None:
        """Every answer describes all brokers; one is asked for if none is under way."""
        if self._asked is None:
            self._wants_brokers = True
            self.hurry()

    def is_told(self, topics: Iterable[str]) -> bool:
        """Whether brokers have said of each of these topics what it is, or that it does not exist."""
        return self.has_all or all(topic in self._told for topic in topics)

    @property
    def is_under_way(self) -> bool:
        return self._asked is not None

    # --- time ----------------------------------------------------------------------------------------------

    def deadline(self) -> Instant:
        """When `advance` has something to do, unless an answer comes first."""
        if self._asked is not None:
            return NEVER
        due = self._refresh_at
        if self._wants_brokers or self._is_all_due:
            due = min(due, self._ask_at)
        if self.cluster.stale:
            retries = self._retries
            first = min(retries.get(topic, _NO_RETRY).at for topic in self.cluster.stale)
            due = min(due, max(self._ask_at, first))
        if self._ids and not self._ids <= self.cluster.names_by_id.keys():
            due = min(due, max(self._ask_at, self._ask_ids_at))
        return due

    def advance(self, now: Instant) -> None:
        """Sends the next request, if one is due."""
        self._seen_at = now
        if self._asked is not None:
            return
        if now >= self._refresh_at:
            self._refresh_at = NEVER
            self.cluster.stale |= self._wanted()
            self._is_all_due = self._wants_all
        if now < self._ask_at:
            return
        if self._is_all_due:
            self._ask(now, None)
            return
        topics = self._due(now) if self.cluster.stale else ()
        if topics or self._wants_brokers:
            self._ask(now, topics)
        elif self._ids and now >= self._ask_ids_at:
            unknown = self._ids - self.cluster.names_by_id.keys()
            if unknown:
                self._ask(now, (), sorted(unknown))

    def _wanted(self) -> set[str]:
        return set().union(*(subscriber.wanted_topics() for subscriber in self._subscribers))

    def _due(self, now: Instant) -> list[str]:
        stale = self.cluster.stale
        stale &= self._wanted() | self._once  # nobody wants the others any more
        return sorted(topic for topic in stale if now >= self._retries.get(topic, _NO_RETRY).at)

    # --- requests and answers ------------------------------------------------------------------------------

    def _ask(self, now: Instant, topics: Collection[str] | None, ids: Collection[bytes] = ()) -> None:
        """About these topics; None: all that there are."""
        asked = self._asked = frozenset(topics or ())
        self._wants_brokers = False
        if ids:
            self._ask_ids_at = Instant(now + UNKNOWN_ID_RETRY_S)
        named = [MetadataRequestTopic(name=name) for name in topics or ()]
        named += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
        request = MetadataRequest(
            topics=None if topics is None else named,
            allow_auto_topic_creation=self._creates_topics and bool(topics),
        )

        def answered(later: Instant, answer: Answer) -> None:
            self._asked = None
            if not isinstance(answer, ClientError):
                assert isinstance(answer, MetadataResponse)
                try:
                    errors = self.cluster.update(answer, is_complete=topics is None)
                except BadResponse as error:
                    answer = error
                else:
                    self._updated(later, now, asked, answer, errors, is_complete=topics is None)
                    return
            self._failed(later, now, asked, answer)

        self._request_queue.post(None, request, answered, timeout_s=self._timeout_s)

    def _updated(
        self,
        now: Instant,
        asked_at: Instant,
        asked: frozenset[str],
        answer: MetadataResponse,
        errors: dict[str, KafkaError],
        *,
        is_complete: bool,
    ) -> None:
        self.answers += 1
        self.error = None
        self.brokers = Lookup(asked_at)
        topics = {topic.name for topic in answer.topics if topic.name}
        if is_complete:
            self.has_all = True
            self._is_all_due = False
            self._all_asked_at = asked_at
            self._told.clear()
            self.lookups.clear()
        self._told |= topics
        for topic in topics | asked:
            self.lookups[topic] = Lookup(asked_at, errors.get(topic))
        self._once -= asked
        self._failures = 0
        # also after an answer without errors: whoever marked a topic stale may do so again at once
        self._ask_at = Instant(now + self._pause_s(0))
        update = Update(topics, errors, is_complete)
        missing = self._wanted() & ((asked - self.cluster.topics.keys()) | errors.keys())
        for subscriber in self._subscribers:
            missing.update(subscriber.metadata_updated(now, update))
        self._schedule_retries(now, topics | asked, missing)
        self._schedule_refresh()

    def _schedule_retries(self, now: Instant, answered: set[str], missing: set[str]) -> None:
        for topic in answered - missing:
            self._retries.pop(topic, None)
        pauses_s: dict[int, float] = {}  # topics that are missing together are asked for together
        for topic in sorted(missing & answered):
            failures = self._retries.get(topic, _NO_RETRY).failures
            if failures not in pauses_s:
                pauses_s[failures] = self._pause_s(failures)
            self._retries[topic] = _Retry(failures + 1, Instant(now + pauses_s[failures]))
        self.cluster.stale |= missing

    def _schedule_refresh(self) -> None:
        lookups = self.lookups
        wanted = [lookups[topic].asked_at for topic in self._wanted() if topic in lookups]
        if self._wants_all and self.has_all:
            wanted.append(self._all_asked_at)
        self._refresh_at = Instant(min(wanted) + self._max_age_s) if wanted else NEVER

    def _failed(self, now: Instant, asked_at: Instant, asked: frozenset[str], error: ClientError) -> None:
        self.error = error
        self.brokers = Lookup(asked_at, error)
        for topic in asked:
            self.lookups[topic] = Lookup(asked_at, error)
        self._once -= asked
        self._ask_at = Instant(now + self._pause_s(self._failures))
        self._failures += 1
        for subscriber in self._subscribers:
            subscriber.metadata_failed(now, error)

    def _pause_s(self, failures: int) -> float:
        return backoff(failures, self._rng, first_s=self._retry_first_s, last_s=self._retry_last_s)

    # --- for clients that look up much ---------------------------------------------------------------------

    def learn_brokers(self, asked_at: Instant, answer: MetadataResponse) -> None:
        """From an answer to another's request; its topics may be too many to keep."""
        self.cluster.update(
            MetadataResponse(
                brokers=answer.brokers, cluster_id=answer.cluster_id, controller_id=answer.controller_id
            )
        )
        self.brokers = Lookup(asked_at)

    def forget_topics(self) -> None:
        """Drops all topics; those that are wanted are asked for again when somebody needs them."""
        self.lookups.clear()
        self._told.clear()
        self._retries.clear()
        self.cluster.topics.clear()
        self.cluster.names_by_id.clear()
