"""Which broker an admin request goes to: any broker, the controller, a leader or a coordinator.

Brokers and leaders come from the metadata cache, coordinators are kept here. Each is kept with the moment at
which it was asked for. An operation that was sent to the wrong broker accepts only what was asked for later,
so that it does not get the same stale answer twice; a look-up that is under way serves all that wait for it.
The error of a look-up goes to the operations that wait; they decide whether to try again.
"""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import Instant
from headrace.client.admin.operation import CoordinatorOf, LeaderOf, NoSuchBroker, OfBroker, Somewhere, Target
from headrace.client.cluster import Address, Cluster
from headrace.client.coordinator import MANY_KEYS_SINCE, CoordinatorKind
from headrace.client.errors import BadResponse, ClientError, KafkaError, UnsupportedByBroker
from headrace.client.metadata import Lookup, Metadata, Update
from headrace.client.network.connection import ByVersion
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.network import AdminSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.messages.metadata import MetadataResponse

# Names that are kept between operations; an admin client that lives long may ask about any number.
NAMES_KEPT_MAX = 10_000


class Destination(NamedTuple):
    to: Address | None  # None: any broker will do
    broker_id: int | None = None


class _Coordinator(NamedTuple):
    """The last look-up of a coordinator."""

    asked_at: Instant
    error: ClientError | None = None
    found: Destination | None = None


class BrokerLookup:
    """Invariant: a coordinator is in `_under_way` from the moment its look-up is posted until its answer."""

    def __init__(self, request_queue: RequestQueue, settings: AdminSettings, rng: Randomness) -> None:
        self.has_news = False  # a look-up has ended that nobody has looked at yet
        self._request_queue = request_queue
        self._timeout_s = settings.request_timeout_s
        self._age_s = settings.metadata_age_s
        self._metadata = Metadata(
            request_queue,
            rng,
            request_timeout_s=settings.request_timeout_s,
            max_age_s=settings.metadata_age_s,
        )
        self._metadata.subscribe(self)
        self._coordinators: dict[CoordinatorOf, _Coordinator] = {}
        self._wanted: dict[CoordinatorOf, None] = {}  # in the order of the asking
        self._under_way: set[CoordinatorOf] = set()

    @property
    def cluster(self) -> Cluster:
        return self._metadata.cluster

    # --- questions -----------------------------------------------------------------------------------------

    def find(
        self, now: Instant, target: Target, *, since: Instant, after: Instant
    ) -> Destination | ClientError | None:
        """Where to send what is for the target; None while it is looked for.

        Only what was asked for later than `after` is believed. An error, and that something is not there,
        counts if it was asked for after the operation began, at `since`.
        """
        after = max(after, Instant(now - self._age_s))
        match target:
            case Somewhere.ANY:
                return Destination(None)
            case Somewhere.CONTROLLER:
                return self._controller(since, after)
            case OfBroker(broker_id):
                return self._broker(broker_id, since, after)
            case LeaderOf():
                return self._leader(target, since, after)
            case CoordinatorOf():
                known = self._coordinators.get(target)
                if known is not None and _is_believed(known, since, after):
                    return known.error or known.found
                if target not in self._under_way:
                    self._wanted[target] = None
                return None

    def _controller(self, since: Instant, after: Instant) -> Destination | ClientError | None:
        lookup = self._brokers(since, after)
        if lookup is None or lookup.error is not None:
            return lookup and lookup.error
        controller = self.cluster.controller_id
        # without one every broker passes the order on to whom it concerns
        return Destination(self.cluster.brokers.get(controller), controller)

    def _broker(self, broker_id: int, since: Instant, after: Instant) -> Destination | ClientError | None:
        lookup = self._brokers(since, after)
        if lookup is None or lookup.error is not None:
            return lookup and lookup.error
        address = self.cluster.brokers.get(broker_id)
        if address is not None:
            return Destination(address, broker_id)
        if lookup.asked_at < since:
            self._metadata.look_up_brokers()  # it may have come since
            return None
        there = ", ".join(map(str, sorted(self.cluster.brokers)))
        return NoSuchBroker(f"there is no broker {broker_id}; the brokers are {there}")

    def _brokers(self, since: Instant, after: Instant) -> Lookup | None:
        lookup = self._metadata.brokers
        if lookup is not None and _is_believed(lookup, since, after):
            return lookup
        self._metadata.look_up_brokers()
        return None

    def _leader(self, target: LeaderOf, since: Instant, after: Instant) -> Destination | ClientError | None:
        at = target.partition
        lookup = self._metadata.lookups.get(at.topic)
        if lookup is None or not _is_believed(lookup, since, after):
            self._metadata.look_up(at.topic)
            return None
        if lookup.error is not None:
            return lookup.error
        leader = self.cluster.leader_of(at)
        if leader is not None:
            return Destination(self.cluster.brokers[leader], leader)
        if lookup.asked_at < since:
            self._metadata.look_up(at.topic)
            return None
        topic = self.cluster.topics.get(at.topic)
        if topic is not None and not 0 <= at.partition < len(topic.partitions):
            has = f"the topic has partitions 0 to {len(topic.partitions) - 1}"
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, has, subject=f"partition {at}")
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, subject=f"partition {at}")

    def learn_brokers(self, asked_at: Instant, answer: MetadataResponse) -> None:
        """From an answer to an operation's own Metadata request."""
        self._metadata.learn_brokers(asked_at, answer)

    def forget_many(self) -> None:
        """Forgets all names when they have become many; only while no operation waits."""
        names = len(self._coordinators) + len(self._metadata.lookups)
        if names > NAMES_KEPT_MAX and not self._under_way and not self._metadata.is_under_way:
            self._coordinators.clear()
            self._metadata.forget_topics()

    # --- what the metadata cache calls ---------------------------------------------------------------------

    def wanted_topics(self) -> Collection[str]:
        return ()  # topics are looked up when an operation needs them, and not kept fresh

    def metadata_updated(self, now: Instant, update: Update) -> Iterable[str]:
        self.has_news = True
        return ()

    def metadata_failed(self, now: Instant, error: ClientError) -> None:
        self.has_news = True

    # --- look-ups ------------------------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Sends the look-ups that are wanted."""
        self.has_news = False
        self._metadata.advance(now)
        wanted, self._wanted = self._wanted, {}
        self._under_way.update(wanted)
        for kind in CoordinatorKind:
            keys = [target.key for target in wanted if target.kind is kind]
            if keys:
                self._look_up_coordinators(now, kind, keys)

    def _look_up_coordinators(self, now: Instant, kind: CoordinatorKind, keys: list[str]) -> None:
        def make(version: int) -> FindCoordinatorRequest:
            if version >= MANY_KEYS_SINCE:
                return FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
            return FindCoordinatorRequest(key=keys[0], key_type=kind)

        def then(_: Instant, answer: Answer) -> None:
            if isinstance(answer, ClientError):
                for key in keys:
                    self._told(CoordinatorOf(kind, key), _Coordinator(now, answer))
                return
            assert isinstance(answer, FindCoordinatorResponse)
            told: dict[str, Any] = {one.key: one for one in answer.coordinators} or {keys[0]: answer}
            for key in keys:
                target = CoordinatorOf(kind, key)
                if key in told:
                    self._told(target, _Coordinator(now, *_coordinator(target, told[key])))
                elif answer.coordinators:
                    left_out = BadResponse(f"the broker's answer has no coordinator of {target}")
                    self._told(target, _Coordinator(now, left_out))
                else:  # it takes one key at a time: the others will be wanted again
                    self._under_way.discard(target)

        self._request_queue.post(
            None, ByVersion(FindCoordinatorRequest, make), then, timeout_s=self._timeout_s
        )

    def _told(self, target: CoordinatorOf, coordinator: _Coordinator) -> None:
        self.has_news = True
        self._under_way.discard(target)
        self._coordinators[target] = coordinator


def _is_believed(lookup: Lookup | _Coordinator, since: Instant, after: Instant) -> bool:
    return lookup.asked_at > after and (lookup.error is None or lookup.asked_at >= since)


def _coordinator(target: CoordinatorOf, told: Any) -> tuple[ClientError | None, Destination | None]:
    if told.error_code == ErrorCode.INVALID_REQUEST and target.kind is CoordinatorKind.SINK:
        return UnsupportedByBroker("sinks"), None  # Apache Kafka knows no such kind of coordinator
    if told.error_code:
        return KafkaError(told.error_code, told.error_message, subject=str(target)), None
    if not told.host:
        return BadResponse(f"the broker's answer has no coordinator of {target}"), None
    return None, Destination(Address(told.host, told.port), told.node_id)
