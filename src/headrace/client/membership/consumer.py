"""Member of a group of the consumer protocol (KIP-848): one kind of request, the heartbeat; the broker
decides.

    OUT --subscribe--> PREPARING --nothing left to give up, topics known--> JOINING (epoch 0)
        --answered with an epoch--> MEMBER, which takes each new assignment over and tells so
    any of these --fenced or forgotten--> PREPARING, with all partitions lost
                 --polled too late--> STALE --polled--> PREPARING
                 --leave--> LEAVING --> OUT
                 --hopeless--> FAILED --subscribe--> PREPARING

The broker names partitions by topic ids. It assigns a partition only after its owner has reported that it
gave it up, so the member takes over an assignment in one step: it revokes the partitions that are missing in
it. When the application has acknowledged that, the new ones are assigned, and the next heartbeat reports
them.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from headrace.base.ids import id_text
from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, TopicPartition
from headrace.client.coordinator import NOT_THE_ONE, Coordinator
from headrace.client.errors import ClientError, KafkaError
from headrace.client.membership.events import (
    LEAVING,
    NOBODY,
    Failed,
    Identity,
    Left,
    MembershipEvent,
    Partitions,
    PolledTooLate,
)
from headrace.client.membership.heartbeat import HeartbeatTimer
from headrace.client.membership.subscription import OwnedPartitions, SubscribedTopics, Subscription
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.consumer import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

Owned = Mapping[bytes, list[int]]  # partition numbers by topic id


class _Said(NamedTuple):
    subscription: Subscription | None
    owned: Owned


class Report:
    """said --heard--> known; what is known is not said again until it changes or is forgotten."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._said: _Said | None = None
        self._known: _Said | None = None
        self._ever_said_pattern = False

    def is_said(self, subscription: Subscription | None, owned: Owned) -> bool:
        """Whether a heartbeat has gone out with it that was not lost, as far as we know."""
        return self._said == _Said(subscription, owned)

    def is_told(self, subscription: Subscription | None, owned: Owned) -> bool:
        return self._known == _Said(subscription, owned)

    def heard(self) -> None:
        """The last heartbeat was answered."""
        self._known = self._said

    def forget(self) -> None:
        self._known = self._said = None

    def heartbeat(
        self, member_id: str, epoch: int, *, subscription: Subscription | None, owned: Owned
    ) -> ConsumerGroupHeartbeatRequest:
        known = self._known
        self._said = _Said(subscription, owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.instance_id,
        )
        if known is None:
            request.rack_id = self._settings.rack
            request.rebalance_timeout_ms = int(self._settings.max_poll_interval_s * 1000)
            request.server_assignor = self._settings.server_assignor
        if subscription is not None and (known is None or known.subscription != subscription):
            self._subscribe(request, subscription)
        if known is None or known.owned != owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in owned.items()
            ]
        return request

    def _subscribe(self, request: ConsumerGroupHeartbeatRequest, subscription: Subscription) -> None:
        request.subscribed_topic_names = sorted(subscription.topics)
        if subscription.broker_pattern is not None:
            request.subscribed_topic_regex = subscription.broker_pattern
            self._ever_said_pattern = True
        elif self._ever_said_pattern:
            request.subscribed_topic_regex = ""  # takes the pattern back


JOINING_EPOCH = 0
LEAVING_EPOCH = -1
PAUSING_EPOCH = -2  # a static member leaves and may come back

# The broker says how often it wants to hear of us; until then Kafka's default holds.
FIRST_INTERVAL_S = 5.0

NOTHING: tuple[Partitions | None, Owned] = (None, {})


class ConsumerPhase(Enum):
    OUT = auto()
    PREPARING = auto()
    JOINING = auto()
    MEMBER = auto()
    LEAVING = auto()
    STALE = auto()
    FAILED = auto()


_AT_REST = (ConsumerPhase.OUT, ConsumerPhase.STALE, ConsumerPhase.FAILED)


class ConsumerMembership:
    """Invariant: we join with nothing; whatever we own, the present epochs gave us.

    The calls of the application are those of `ClassicMembership`. Only what they have in common beyond the
    names is shared (`OwnedPartitions`, `HeartbeatTimer`, `SubscribedTopics`): each protocol has its own
    phases, and each call moves between those.
    """

    def __init__(
        self,
        settings: GroupSettings,
        request_queue: RequestQueue,
        coordinator: Coordinator,
        topics: SubscribedTopics,
        rng: Randomness,
        tell: Callable[[MembershipEvent], None],
    ) -> None:
        self.phase = ConsumerPhase.OUT
        self.member_id = id_text(rng.randbytes(16))  # ours to choose, and kept for life
        self.epoch = JOINING_EPOCH
        self.subscription: Subscription | None = None
        self._settings = settings
        self._request_queue = request_queue
        self._coordinator = coordinator
        self._topics = topics
        self._tell = tell
        self._owned_partitions = OwnedPartitions(tell)
        self._timer = HeartbeatTimer(rng, interval_s=FIRST_INTERVAL_S, session_s=NEVER)
        self._report = Report(settings)
        self._target: Mapping[bytes, tuple[int, ...]] | None = None  # not reconciled yet
        self._topic_ids: dict[str, bytes] = {}  # of what we own
        self._sorted = NOTHING
        self._round = 0  # answers to heartbeats of an earlier round come too late
        self._joins = 0  # heartbeats that asked to be taken in
        self._is_saying_goodbye = False
        self._poll_until = NEVER
        coordinator.listeners.append(self._search_ended)

    # --- the application ----------------------------------------------------------------------------------

    def subscribe(self, now: Instant, subscription: Subscription) -> None:
        self.subscription = subscription
        self._poll_until = Instant(now + self._settings.max_poll_interval_s)
        if self.phase in _AT_REST:
            self.phase = ConsumerPhase.PREPARING

    def polled(self, now: Instant) -> None:
        """The application has called `poll`. It still has to acknowledge what it was asked to."""
        if self.revoking:
            return
        self._poll_until = Instant(now + self._settings.max_poll_interval_s)
        if self.phase is ConsumerPhase.STALE:
            self.phase = ConsumerPhase.PREPARING

    def acknowledge(self, now: Instant, partitions: Partitions) -> None:
        """The application is done with these of what was revoked."""
        self._owned_partitions.acknowledge(partitions)
        self._poll_until = Instant(now + self._settings.max_poll_interval_s)

    def leave(self, now: Instant) -> None:
        """Out of the group, as soon as all is given up; `Left` says when."""
        self.subscription = None
        if self.phase is ConsumerPhase.LEAVING:
            return
        if self.phase in _AT_REST:
            self._depart()
            return
        self._target = None
        self.phase = ConsumerPhase.LEAVING
        self._owned_partitions.revoke_all(LEAVING)

    @property
    def owned(self) -> Partitions:
        return self._owned_partitions.owned

    @property
    def revoking(self) -> Partitions:
        """What the application has been told to give up and has not acknowledged."""
        return self._owned_partitions.revoking

    @property
    def is_stable(self) -> bool:
        """Whether we have what the broker gave us, and it knows."""
        return (
            self.phase is ConsumerPhase.MEMBER
            and self._target is None
            and self._report.is_told(self._subscribed(), self._owned_by_id())
        )

    @property
    def is_out(self) -> bool:
        """Whether the group has no say in what is read."""
        return self.phase is ConsumerPhase.OUT

    def identity(self) -> Identity | None:
        """The member id and epoch for commits; None until the next epoch."""
        if self.is_out:
            return NOBODY
        if self.epoch <= JOINING_EPOCH:
            return None
        return Identity(self.member_id, self.epoch, self._settings.instance_id)

    def reader_identity(self) -> Identity | None:
        """The group checks the epoch of a member that reads its offsets."""
        return None if self.is_out else self.identity()

    # --- time ----------------------------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Does what is due."""
        self._check_polling(now)
        self._watch_topics()
        if (
            self.phase is ConsumerPhase.PREPARING
            and not self.revoking
            and self._topics.can_select(self.subscription)
        ):
            self.phase = ConsumerPhase.JOINING
            self._report.forget()
            self._timer.hurry()
        if self.phase is ConsumerPhase.MEMBER:
            if self._target is not None and not self.revoking:
                self._reconcile(self._target)
            if not self.revoking and not self._report.is_said(self._subscribed(), self._owned_by_id()):
                self._timer.hurry()
        if self.phase is ConsumerPhase.LEAVING and not self.revoking:
            self._leave()
        if self._beats:
            self._beat(now)

    def deadline(self) -> Instant:
        if self.phase in _AT_REST:
            return NEVER
        earliest = self._poll_until if self.phase is not ConsumerPhase.LEAVING else NEVER
        if self._beats and not self._coordinator.is_sought:
            earliest = min(earliest, self._timer.beat_at())
        return earliest

    def _check_polling(self, now: Instant) -> None:
        if self.phase in _AT_REST or self.phase is ConsumerPhase.LEAVING or now < self._poll_until:
            return
        self._tell(PolledTooLate(self._settings.max_poll_interval_s))
        self._say_goodbye(lambda *_: None)
        self._forget(ConsumerPhase.STALE, f"not polled for {self._settings.max_poll_interval_s:g} s")

    def _watch_topics(self) -> None:
        if self.phase is ConsumerPhase.OUT:
            return
        nameless = () if self._target is None else self._target.keys() - self._topics.names.keys()
        matches_here = self.subscription is not None and self.subscription.pattern is not None
        names = self.subscription.topics if self.subscription is not None else frozenset()
        self._topics.watch(names, everything=matches_here, ids=nameless)

    def _subscribed(self) -> Subscription | None:
        """The subscription in the heartbeat; for a pattern that is matched by the client, the topic names."""
        if self.subscription is None or self.subscription.pattern is None:
            return self.subscription
        return Subscription(self._topics.select(self.subscription))

    # --- reconciliation ------------------------------------------------------------------------------------

    def _reconcile(self, target: Mapping[bytes, tuple[int, ...]]) -> None:
        """As far as we know the topics by name; the others follow when we do."""
        names = self._topics.names
        named = {topic_id: names[topic_id] for topic_id in target if topic_id in names}
        self._topic_ids.update({name: topic_id for topic_id, name in named.items()})
        self._sorted = NOTHING
        wanted = frozenset(
            TopicPartition(name, number) for topic_id, name in named.items() for number in target[topic_id]
        )
        is_complete = len(named) == len(target)
        if is_complete:
            self._target = None
        if is_complete or wanted != self.owned:
            self._owned_partitions.take(wanted, "the broker gives them to another member, or they are gone")

    def _owned_by_id(self) -> Owned:
        """As the broker is told; sorted once for each change of what we own."""
        if self._sorted[0] is not self.owned:
            numbers: dict[bytes, list[int]] = {}
            for at in sorted(self.owned):
                numbers.setdefault(self._topic_ids[at.topic], []).append(at.partition)
            self._sorted = self.owned, numbers
        return self._sorted[1]

    def _forget(self, phase: ConsumerPhase, reason: str) -> None:
        """Drops the epoch and all partitions."""
        self.epoch = JOINING_EPOCH
        self._target = None
        self._round += 1
        self._timer.is_under_way = False
        if self.phase is not ConsumerPhase.LEAVING:
            self.phase = phase
        self._owned_partitions.lose(reason)

    def _fail(self, error: ClientError) -> None:
        if self.phase is not ConsumerPhase.LEAVING:
            self._tell(Failed(error))
        self._forget(ConsumerPhase.FAILED, str(error))

    def _search_ended(self, now: Instant, error: ClientError) -> None:
        """The coordinator refuses us permanently."""
        if self.phase is ConsumerPhase.LEAVING:
            self._depart()
        elif self.phase not in _AT_REST:
            self._fail(error)

    # --- heartbeats ----------------------------------------------------------------------------------------

    @property
    def _beats(self) -> bool:
        """Who leaves is still a member until all is given up."""
        if self.phase is ConsumerPhase.LEAVING:
            return bool(self.revoking) and self.epoch > JOINING_EPOCH
        return self.phase in (ConsumerPhase.JOINING, ConsumerPhase.MEMBER)

    def _beat(self, now: Instant) -> None:
        if now < self._timer.beat_at():
            return
        to = self._coordinator.address()
        if to is None:
            return
        self._timer.sent(now)
        self._joins += self.epoch == JOINING_EPOCH
        number = self._round
        question = self._report.heartbeat(
            self.member_id, self.epoch, subscription=self._subscribed(), owned=self._owned_by_id()
        )

        def then(now: Instant, answer: Answer) -> None:
            if number == self._round:
                self._heard(now, to, answer)

        self._request_queue.post(to, question, then, timeout_s=self._settings.request_timeout_s)

    def _heard(self, now: Instant, to: Address, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self._missed(now, to, answer)
            return
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        match answer.error_code:
            case ErrorCode.NONE:
                self._timer.interval_s = answer.heartbeat_interval_ms / 1000
                self._timer.heard(now)
                self._report.heard()
                self._take(answer)
            case code:
                error = KafkaError(code, answer.error_message, subject=f"group {self._settings.group_id!r}")
                if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                    self._timer.missed(now)
                    self._forget(ConsumerPhase.PREPARING, str(error))
                else:
                    self._missed(now, to, error)

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = answer.member_epoch
        if self.phase is ConsumerPhase.JOINING:
            self.phase = ConsumerPhase.MEMBER
        if answer.assignment is not None and self.phase is ConsumerPhase.MEMBER:
            self._owned_partitions.reconsider()
            self._target = {
                each.topic_id: tuple(each.partitions) for each in answer.assignment.topic_partitions
            }

    def _missed(self, now: Instant, to: Address, error: ClientError) -> None:
        self._timer.missed(now)
        self._report.forget()  # nobody knows what was heard of it
        if not error.is_retriable and not self._is_in_our_own_way(error):
            self._fail(error)
        elif not isinstance(error, KafkaError) or error.code in NOT_THE_ONE:
            self._coordinator.failed(to)

    def _is_in_our_own_way(self, error: ClientError) -> bool:
        """Whether the instance id may be held by ourselves, since an earlier join of ours succeeded unheard.
        Such a member's session ends some time; that of somebody else, found at our first try, need not.
        """
        is_held = isinstance(error, KafkaError) and error.code == ErrorCode.UNRELEASED_INSTANCE_ID
        return is_held and self._joins > 1

    def refused(self, code: int) -> None:
        """A commit was refused; the answer to the next heartbeat shows whether the member was removed."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
            self._timer.hurry()

    # --- leaving -------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        if self._is_saying_goodbye:
            return
        self._is_saying_goodbye = True
        self._round += 1
        number = self._round

        def then(now: Instant, answer: Answer) -> None:
            # whatever the answer is: the group forgets us now, or when the session ends
            if number == self._round:
                self._depart()

        if not self._say_goodbye(then):
            self._depart()

    def _depart(self) -> None:
        self.phase = ConsumerPhase.OUT
        self._is_saying_goodbye = False
        self.epoch = JOINING_EPOCH
        self._target = None
        self._owned_partitions.lose(LEAVING)
        self._timer.is_under_way = False
        self._topics.watch(())
        self._tell(Left())
        if self.subscription is not None:  # subscribed again while we were leaving
            self.phase = ConsumerPhase.PREPARING

    def _say_goodbye(self, then: Callable[[Instant, Answer], None]) -> bool:
        """Whether there is anything to say: perhaps the broker has just taken us in."""
        to = self._coordinator.address() if self._coordinator.is_known else None
        if to is None or (self.epoch <= JOINING_EPOCH and not self._timer.is_under_way):
            return False
        instance_id = self._settings.instance_id
        question = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            member_epoch=LEAVING_EPOCH if instance_id is None else PAUSING_EPOCH,
            instance_id=instance_id,
        )
        self._request_queue.post(to, question, then, timeout_s=self._settings.request_timeout_s)
        return True
