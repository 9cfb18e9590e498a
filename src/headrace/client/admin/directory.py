"""Who is where: brokers, leaders and coordinators, looked up when somebody asks and they are not known.

What is found is kept with the moment at which it was asked for. Whoever was sent to the wrong broker says
that only what was asked for later will do, so that nobody is told the same stale thing twice, and a look-up
that is under way serves all who wait for it. A look-up that fails is told to those who wait; trying again is
their decision.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.base.time import Instant
from headrace.client.admin.operation import CoordinatorOf, LeaderOf, OfBroker, Somewhere, Target
from headrace.client.cluster import Address, Cluster
from headrace.client.connection import ByVersion
from headrace.client.coordinator import MANY_KEYS_SINCE, CoordinatorKind
from headrace.client.errors import BadResponse, ClientError, InvalidInput, KafkaError, UnsupportedByBroker
from headrace.client.mailbox import Answer, Mailbox
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

# Names that are kept between operations; an admin client that lives long may ask about any number.
NAMES_KEPT_MAX = 10_000

LONG_AGO = Instant(float("-inf"))


class Found(NamedTuple):
    to: Address | None  # None: any broker will do
    broker_id: int | None = None


class _Topic(NamedTuple):
    name: str


class _Brokers(NamedTuple):
    """All of them, and which is the controller."""


_BROKERS = _Brokers()
_Name = _Brokers | _Topic | CoordinatorOf


class _Entry(NamedTuple):
    asked_at: Instant
    found: Found | None = None  # of a coordinator; what is known of brokers and topics is in the cluster
    error: ClientError | None = None


class Directory:
    """Invariant: a name is in `_under_way` from the moment its look-up is posted until that is answered."""

    def __init__(self, mailbox: Mailbox, *, request_timeout_s: float, age_s: float) -> None:
        self.cluster = Cluster()
        self.has_news = False  # a look-up has ended that nobody has looked at yet
        self._mailbox = mailbox
        self._timeout_s = request_timeout_s
        self._age_s = age_s
        self._entries: dict[_Name, _Entry] = {}
        self._wanted: dict[_Name, None] = {}  # in the order of the asking
        self._under_way: set[_Name] = set()

    # --- questions -----------------------------------------------------------------------------------------

    def find(
        self, now: Instant, target: Target, *, since: Instant, after: Instant
    ) -> Found | ClientError | None:
        """Where to send what is for the target; None while it is looked for.

        Only what was asked for later than `after` is believed. An error, and that something is not there,
        counts if it is news to this inquiry, which began at `since`.
        """
        after = max(after, Instant(now - self._age_s))
        match target:
            case Somewhere.ANY:
                return Found(None)
            case Somewhere.CONTROLLER:
                return self._controller(since, after)
            case OfBroker(broker_id):
                return self._broker(broker_id, since, after)
            case LeaderOf():
                return self._leader(target, since, after)
            case CoordinatorOf():
                entry = self._known(target, since, after)
                return None if entry is None else entry.error or entry.found

    def _known(self, name: _Name, since: Instant, after: Instant) -> _Entry | None:
        """What is believed of a name; looked for from now on if that is nothing."""
        entry = self._entries.get(name)
        if entry is not None and entry.asked_at > after and (entry.error is None or entry.asked_at >= since):
            return entry
        self._look_for(name)
        return None

    def _look_for(self, name: _Name) -> None:
        if name not in self._under_way:
            self._wanted[name] = None

    def _controller(self, since: Instant, after: Instant) -> Found | ClientError | None:
        entry = self._known(_BROKERS, since, after)
        if entry is None or entry.error is not None:
            return entry and entry.error
        controller = self.cluster.controller_id
        # without one every broker passes the order on to whom it concerns
        return Found(self.cluster.brokers.get(controller), controller)

    def _broker(self, broker_id: int, since: Instant, after: Instant) -> Found | ClientError | None:
        entry = self._known(_BROKERS, since, after)
        if entry is None or entry.error is not None:
            return entry and entry.error
        address = self.cluster.brokers.get(broker_id)
        if address is not None:
            return Found(address, broker_id)
        if entry.asked_at < since:
            self._look_for(_BROKERS)  # it may have come since
            return None
        there = ", ".join(map(str, sorted(self.cluster.brokers)))
        return InvalidInput(f"there is no broker {broker_id}; the brokers are {there}")

    def _leader(self, target: LeaderOf, since: Instant, after: Instant) -> Found | ClientError | None:
        at = target.partition
        entry = self._known(_Topic(at.topic), since, after)
        if entry is None or entry.error is not None:
            return entry and entry.error
        leader = self.cluster.leader_of(at)
        if leader is not None:
            return Found(self.cluster.brokers[leader], leader)
        if entry.asked_at < since:
            self._look_for(_Topic(at.topic))
            return None
        topic = self.cluster.topics.get(at.topic)
        if topic is not None and not 0 <= at.partition < len(topic.partitions):
            has = f"the topic has partitions 0 to {len(topic.partitions) - 1}"
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, has, subject=f"partition {at}")
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, subject=f"partition {at}")

    def learn_brokers(self, asked_at: Instant, answer: MetadataResponse) -> None:
        """From an answer that somebody else asked for; its topics may be too many to keep."""
        self.cluster.update(
            MetadataResponse(
                brokers=answer.brokers, cluster_id=answer.cluster_id, controller_id=answer.controller_id
            )
        )
        self._entries[_BROKERS] = _Entry(asked_at)

    def forget_many(self) -> None:
        """What nobody waits for may go when it has become much."""
        if len(self._entries) > NAMES_KEPT_MAX and not self._under_way:
            self._entries.clear()
            self.cluster.topics.clear()
            self.cluster.names_by_id.clear()

    # --- look-ups ------------------------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Posts the look-ups that somebody wants."""
        self.has_news = False
        wanted, self._wanted = self._wanted, {}
        self._under_way.update(wanted)
        topics = [name.name for name in wanted if isinstance(name, _Topic)]
        if topics or _BROKERS in wanted:
            self._look_up_topics(now, topics)
        for kind in CoordinatorKind:
            keys = [name.key for name in wanted if isinstance(name, CoordinatorOf) and name.kind is kind]
            if keys:
                self._look_up_coordinators(now, kind, keys)

    def _look_up_topics(self, now: Instant, topics: list[str]) -> None:
        named = [MetadataRequestTopic(name=name) for name in topics]
        names: list[_Name] = [_BROKERS, *map(_Topic, topics)]

        def then(_: Instant, answer: Answer) -> None:
            if not isinstance(answer, ClientError):
                assert isinstance(answer, MetadataResponse)
                answer = self._updated(now, answer, topics) or answer
            if isinstance(answer, ClientError):
                self._told(now, names, answer)

        question = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        self._under_way.add(_BROKERS)
        self._mailbox.post(None, question, then, timeout_s=self._timeout_s)

    def _updated(self, asked_at: Instant, answer: MetadataResponse, topics: list[str]) -> ClientError | None:
        try:
            errors = self.cluster.update(answer)
        except BadResponse as error:
            return error
        self._told(asked_at, [_BROKERS])
        for topic in topics:
            self._told(asked_at, [_Topic(topic)], errors.get(topic))
        return None

    def _look_up_coordinators(self, now: Instant, kind: CoordinatorKind, keys: list[str]) -> None:
        def make(version: int) -> FindCoordinatorRequest:
            if version >= MANY_KEYS_SINCE:
                return FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
            return FindCoordinatorRequest(key=keys[0], key_type=kind)

        def then(_: Instant, answer: Answer) -> None:
            if isinstance(answer, ClientError):
                self._told(now, (CoordinatorOf(kind, key) for key in keys), answer)
                return
            assert isinstance(answer, FindCoordinatorResponse)
            told: dict[str, Any] = {one.key: one for one in answer.coordinators} or {keys[0]: answer}
            for key in keys:
                name = CoordinatorOf(kind, key)
                if key in told:
                    self._told(now, [name], *_coordinator(name, told[key]))
                elif answer.coordinators:
                    self._told(now, [name], BadResponse(f"the broker told no coordinator of {name}"))
                else:  # it takes one key at a time: the others will be wanted again
                    self._under_way.discard(name)

        self._mailbox.post(None, ByVersion(FindCoordinatorRequest, make), then, timeout_s=self._timeout_s)

    def _told(
        self,
        asked_at: Instant,
        names: Iterable[_Name],
        error: ClientError | None = None,
        found: Found | None = None,
    ) -> None:
        self.has_news = True
        for name in names:
            self._under_way.discard(name)
            self._entries[name] = _Entry(asked_at, found, error)


def _coordinator(name: CoordinatorOf, told: Any) -> tuple[ClientError | None, Found | None]:
    if told.error_code == ErrorCode.INVALID_REQUEST and name.kind is CoordinatorKind.SINK:
        return UnsupportedByBroker("sinks"), None  # Apache Kafka knows no such kind of coordinator
    if told.error_code:
        return KafkaError(told.error_code, told.error_message, subject=str(name)), None
    if not told.host:
        return BadResponse(f"the broker told no coordinator of {name}"), None
    return None, Found(Address(told.host, told.port), told.node_id)
