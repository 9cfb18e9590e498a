"""Member of a classic group: joins, gets its assignment, sends heartbeats, and joins again.

    OUT --subscribe--> PREPARING --all given up, topics known--> JOINING --JoinGroup answered-->
        leader: GATHERING --topics known, shared out--> SYNCING --SyncGroup answered--> STABLE
        others: SYNCING --> STABLE
    STABLE --a reason to rebalance--> PREPARING
    any of these --the group forgot us--> PREPARING, with all partitions lost
                 --polled too late--> STALE --polled--> PREPARING
                 --leave--> LEAVING --> OUT
                 --hopeless--> FAILED --subscribe--> PREPARING

With the eager protocol everything is revoked in PREPARING. With the cooperative one (KIP-429) members keep
reading their partitions, and give up in STABLE those that the new assignment does not contain, which starts
another rebalance. In both, nothing is given up before the application has acknowledged it.
"""

from collections.abc import Callable
from enum import Enum, auto

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.assignors import NO_GENERATION, is_cooperative
from headrace.client.backoff import backoff
from headrace.client.cluster import Address
from headrace.client.coordinator import NOT_THE_ONE, Coordinator
from headrace.client.errors import BadResponse, ClientError, InvalidInput, KafkaError
from headrace.client.membership.classic_protocol import (
    Generation,
    GroupLeader,
    LastAssignment,
    join_request,
    leave_request,
    read_assignment,
    sync_request,
)
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
from headrace.client.membership.heartbeat import Heartbeat
from headrace.client.membership.subscription import OwnedPartitions, SubscribedTopics, Subscription
from headrace.client.session import REBALANCE, Answer, RequestQueue
from headrace.client.settings.consumer import GroupSettings
from headrace.protocol.errors import ErrorCode, ProtocolError
from headrace.protocol.messages.join_group import JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse
from headrace.protocol.notation import Request

JOIN_GRACE_S = 5.0  # beyond the rebalance timeout, as Java waits for JoinGroup


class ClassicPhase(Enum):
    OUT = auto()
    PREPARING = auto()
    JOINING = auto()
    GATHERING = auto()
    SYNCING = auto()
    STABLE = auto()
    LEAVING = auto()
    STALE = auto()
    FAILED = auto()


_AT_REST = (ClassicPhase.OUT, ClassicPhase.STALE, ClassicPhase.FAILED)


# What an answer to a heartbeat or a commit says of the member; everything else it says of the request.
_ABOUT_US = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)


class ClassicMembership:
    """Invariant: JoinGroup is not sent while anything is being revoked."""

    def __init__(
        self,
        settings: GroupSettings,
        request_queue: RequestQueue,
        coordinator: Coordinator,
        topics: SubscribedTopics,
        rng: Randomness,
        tell: Callable[[MembershipEvent], None],
    ) -> None:
        self.phase = ClassicPhase.OUT
        self.generation = Generation()
        self.subscription: Subscription | None = None
        self._settings = settings
        self._assignors = {assignor.name: assignor for assignor in settings.assignors}
        self._is_cooperative = all(is_cooperative(assignor) for assignor in settings.assignors)
        self._request_queue = request_queue
        self._coordinator = coordinator
        self._topics = topics
        self._rng = rng
        self._tell = tell
        self._heartbeat = Heartbeat(settings, request_queue, coordinator, rng, answered=self._judged)
        self._owned_partitions = OwnedPartitions(tell)
        self._last = LastAssignment()
        self._joined_topics: frozenset[str] = frozenset()  # those of the subscription that we joined with
        self._group_leader: GroupLeader | None = None
        self._shares: list[SyncGroupRequestAssignment] = []
        self._rejoin_reason: str | None = None
        self._round = 0  # answers to questions of an earlier round come too late
        self._awaits_answer = False
        self._retry_at = Instant(0.0)
        self._failures = 0
        self._poll_until = NEVER
        coordinator.listeners.append(self._search_ended)

    # --- the application ----------------------------------------------------------------------------------

    def subscribe(self, now: Instant, subscription: Subscription) -> None:
        if subscription.broker_pattern is not None:
            raise InvalidInput("broker_pattern needs group.protocol=consumer")
        self.subscription = subscription
        self._poll_until = Instant(now + self._settings.max_poll_interval_s)
        if self.phase in _AT_REST:
            self.phase = ClassicPhase.PREPARING
            self._rejoin_reason = "subscribed"

    def polled(self, now: Instant) -> None:
        """The application has called `poll`. It still has to acknowledge what it was asked to."""
        if self.revoking:
            return
        self._poll_until = Instant(now + self._settings.max_poll_interval_s)
        if self.phase is ClassicPhase.STALE:
            self.phase = ClassicPhase.PREPARING
            self._rejoin_reason = "polled again after max.poll.interval.ms"

    def acknowledge(self, now: Instant, partitions: Partitions) -> None:
        """The application is done with these of what was revoked."""
        self._owned_partitions.acknowledge(partitions)
        self._poll_until = Instant(now + self._settings.max_poll_interval_s)

    def leave(self, now: Instant) -> None:
        """Out of the group, as soon as all is given up; `Left` says when."""
        self.subscription = None
        if self.phase is ClassicPhase.LEAVING:
            return
        if self.phase in _AT_REST:
            self._depart()
            return
        self._begin_round()
        self._rejoin_reason = None
        self.phase = ClassicPhase.LEAVING
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
        """Whether the last rebalance is over and no other is wanted."""
        return self.phase is ClassicPhase.STABLE and self._rejoin_reason is None

    @property
    def is_out(self) -> bool:
        """Whether the group has no say in what is read."""
        return self.phase is ClassicPhase.OUT

    def identity(self) -> Identity | None:
        """The member id and generation for commits; None until the next generation."""
        if self.is_out:
            return NOBODY
        if self.generation.id == NO_GENERATION:
            return None
        return Identity(self.generation.member_id, self.generation.id, self._settings.instance_id)

    def reader_identity(self) -> Identity | None:
        """Classic groups do not check who reads their offsets."""
        return None

    # --- time ----------------------------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Does what is due."""
        self._check_polling(now)
        if self.subscription is not None:
            self._notice_topics(self.subscription)
        if self._rejoin_reason is None and self._finishes_by() <= now:
            self._rejoin_reason = "partitions that were held back have no owner yet"
        if self.phase is ClassicPhase.STABLE and self._rejoin_reason is not None and not self.revoking:
            self._prepare()
        if (
            self.phase is ClassicPhase.PREPARING
            and not self.revoking
            and self._topics.can_select(self.subscription)
        ):
            self.phase = ClassicPhase.JOINING
        if self.phase is ClassicPhase.GATHERING:
            self._share_out()
        if not self._awaits_answer and now >= self._retry_at:
            if self.phase is ClassicPhase.JOINING:
                self._join()
            elif self.phase is ClassicPhase.SYNCING:
                self._sync()
        if self.phase is ClassicPhase.LEAVING and not self.revoking and not self._awaits_answer:
            self._leave()
        if self._beats:
            self._heartbeat.advance(now, self.generation)

    def deadline(self) -> Instant:
        if self.phase in _AT_REST:
            return NEVER
        earliest = self._poll_until if self.phase is not ClassicPhase.LEAVING else NEVER
        if self._rejoin_reason is None:
            earliest = min(earliest, self._finishes_by())
        if not self._coordinator.is_sought:
            if self.phase in (ClassicPhase.JOINING, ClassicPhase.SYNCING) and not self._awaits_answer:
                earliest = min(earliest, self._retry_at)
            if self._beats:
                earliest = min(earliest, self._heartbeat.deadline())
        return earliest

    def _finishes_by(self) -> Instant:
        if self.phase is not ClassicPhase.STABLE or self._group_leader is None:
            return NEVER
        return self._group_leader.finishes_by

    def _check_polling(self, now: Instant) -> None:
        if self.phase in _AT_REST or self.phase is ClassicPhase.LEAVING or now < self._poll_until:
            return
        self._tell(PolledTooLate(self._settings.max_poll_interval_s))
        reason = f"not polled for {self._settings.max_poll_interval_s:g} s"
        self._say_goodbye(reason, lambda *_: None)
        self._forget(ClassicPhase.STALE, reason)

    def _notice_topics(self, subscription: Subscription) -> None:
        chosen = self._topics.select(subscription)
        group_topics = self._group_leader.topics if self._group_leader is not None else frozenset()
        self._topics.watch(chosen | group_topics, everything=subscription.pattern is not None)
        if self.phase in (ClassicPhase.OUT, ClassicPhase.PREPARING, ClassicPhase.STALE, ClassicPhase.FAILED):
            return
        if chosen != self._joined_topics and (self.phase is not ClassicPhase.JOINING or self._awaits_answer):
            self._rejoin_reason = "the subscription has changed"
        elif self._group_leader is not None and self._group_leader.is_outdated(self._topics):
            self._rejoin_reason = "topics of the group have changed"

    # --- giving up -----------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Before we join (again): under the eager protocol everything has to go."""
        self.phase = ClassicPhase.PREPARING
        if not self._is_cooperative:
            self._owned_partitions.revoke_all(self._rejoin_reason or "the group rebalances")
        elif self.subscription is not None:
            selects = self.subscription.selects
            unwanted = frozenset(at for at in self.owned if not selects(at.topic))
            self._owned_partitions.revoke(unwanted, "no longer subscribed to")

    def _forget(self, phase: ClassicPhase, reason: str, *, keeps_id: bool = False) -> None:
        """Drops the generation and its assignment."""
        self.generation = Generation(member_id=self.generation.member_id if keeps_id else "")
        self._group_leader = None
        self._begin_round()
        if self.phase is not ClassicPhase.LEAVING:
            self.phase = phase
        self._owned_partitions.lose(reason)

    def _fail(self, error: ClientError) -> None:
        if self.phase is not ClassicPhase.LEAVING:
            self._tell(Failed(error))
        self._forget(ClassicPhase.FAILED, str(error))

    def _search_ended(self, now: Instant, error: ClientError) -> None:
        """The coordinator refuses us permanently."""
        if self.phase is ClassicPhase.LEAVING:
            self._depart()
        elif self.phase not in _AT_REST:
            self._fail(error)

    def _begin_round(self) -> int:
        self._round += 1
        self._awaits_answer = False
        return self._round

    def _setback(self, now: Instant, to: Address, error: ClientError, *, coordinator_failed: bool) -> None:
        """JoinGroup or SyncGroup brought nothing: we join again after a while."""
        if not error.is_retriable:
            self._fail(error)
            return
        if coordinator_failed:
            self._coordinator.failed(to)
        self._retry_at = Instant(now + backoff(self._failures, self._rng))
        self._failures += 1
        self._prepare()

    # --- joining -------------------------------------------------------------------------------------------

    def _join(self) -> None:
        to = self._coordinator.address()
        if to is None or self.subscription is None:
            return
        reason, self._rejoin_reason = self._rejoin_reason, None
        self._joined_topics = self._topics.select(self.subscription)
        self._group_leader = None
        question = join_request(
            self._settings,
            self.generation,
            topics=self._joined_topics,
            owned=self.owned,
            last=self._last,
            reason=reason,
        )
        self._ask(to, question, self._joined)

    def _joined(self, now: Instant, to: Address, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self._setback(now, to, answer, coordinator_failed=True)
            return
        assert isinstance(answer, JoinGroupResponse)
        match answer.error_code:
            case ErrorCode.NONE:
                self._enter(now, answer)
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.generation = Generation(member_id=answer.member_id)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._expelled(answer.error_code)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._retry_at = Instant(now + backoff(0, self._rng))
            case code:
                self._setback(now, to, self._error(code), coordinator_failed=code in NOT_THE_ONE)

    def _enter(self, now: Instant, answer: JoinGroupResponse) -> None:
        protocol = answer.protocol_name or ""
        if protocol not in self._assignors:
            self._fail(
                BadResponse(f"the group chose the assignor {protocol!r}, which this member did not offer")
            )
            return
        self.generation = Generation(answer.generation_id, answer.member_id, protocol)
        self._failures = 0
        self._heartbeat.start(now)
        self._shares = []
        if answer.leader != answer.member_id:
            self.phase = ClassicPhase.SYNCING
            return
        try:
            self._group_leader = GroupLeader(answer.members, skips_assignment=answer.skip_assignment)
        except ProtocolError as error:
            self._fail(BadResponse(f"the subscription of another member cannot be read: {error}"))
            return
        self.phase = ClassicPhase.GATHERING

    def _share_out(self) -> None:
        assert self._group_leader is not None
        if not self._topics.is_told(self._group_leader.topics):
            return
        assignor = self._assignors[self.generation.protocol]
        try:
            self._shares = self._group_leader.shares(assignor, self._topics)
        except InvalidInput as error:
            self._fail(error)
            return
        self.phase = ClassicPhase.SYNCING

    def _sync(self) -> None:
        to = self._coordinator.address()
        if to is None:
            return
        self._ask(to, sync_request(self._settings, self.generation, self._shares), self._synced)

    def _ask(self, to: Address, question: Request, heard: Callable[[Instant, Address, Answer], None]) -> None:
        """Sends JoinGroup; the broker may answer only when all other members have joined."""
        number = self._begin_round()
        self._awaits_answer = True

        def then(now: Instant, answer: Answer) -> None:
            if number == self._round:
                self._awaits_answer = False
                heard(now, to, answer)

        timeout_s = max(self._settings.request_timeout_s, self._settings.max_poll_interval_s + JOIN_GRACE_S)
        self._request_queue.post(to, question, then, timeout_s=timeout_s, lane=REBALANCE)

    def _synced(self, now: Instant, to: Address, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self._setback(now, to, answer, coordinator_failed=True)
            return
        assert isinstance(answer, SyncGroupResponse)
        match answer.error_code:
            case ErrorCode.NONE:
                if self._group_leader is not None:
                    self._group_leader.synced(now, self._settings)
                try:
                    self._settle(read_assignment(answer.assignment))
                except ProtocolError as error:
                    self._fail(BadResponse(f"the assignment cannot be read: {error}"))
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin_reason = "the group began another rebalance"
                self._prepare()
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self._expelled(answer.error_code)
            case code:
                self._setback(now, to, self._error(code), coordinator_failed=code in NOT_THE_ONE)

    def _settle(self, assigned: Partitions) -> None:
        """The rebalance is over for us: what we keep, what is new, and what has to go."""
        assert self.subscription is not None
        self.phase = ClassicPhase.STABLE
        selects = self.subscription.selects
        if not all(selects(at.topic) for at in assigned):
            self._rejoin_reason = "the subscription has changed"
            return  # what we own stays ours; the next rebalance will be about the topics wanted now
        self._last = LastAssignment(assigned, self.generation.id)
        gone = self._owned_partitions.take(assigned, "the group gives them to another member")
        if gone:
            self._rejoin_reason = f"gave up {len(gone)} partitions"

    def _error(self, code: int) -> KafkaError:
        return KafkaError(code, subject=f"group {self._settings.group_id!r}")

    # --- living --------------------------------------------------------------------------------------------

    @property
    def _beats(self) -> bool:
        """Nobody asks for a heartbeat while our JoinGroup waits at the broker."""
        if self.generation.id == NO_GENERATION or self.phase in _AT_REST:
            return False
        return self.phase is not ClassicPhase.JOINING or not self._awaits_answer

    def _judged(self, generation: Generation, code: int) -> None:
        """A heartbeat was answered."""
        if generation != self.generation:
            return
        if code in _ABOUT_US:
            self.refused(code)
        elif code and not self._error(code).is_retriable:
            self._fail(self._error(code))

    def refused(self, code: int) -> None:
        """A heartbeat or a commit of this very generation was answered with an error."""
        if self.is_out:
            return  # who assigned partitions by hand does not join for being refused
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                if self.phase is ClassicPhase.STABLE and self._rejoin_reason is None:
                    self._rejoin_reason = "the group is rebalancing"
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self._expelled(code)
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fail(self._error(code))

    def _expelled(self, code: int) -> None:
        """The group went on without us: we join again, with our member id where it still knows us."""
        self._rejoin_reason = str(self._error(code))
        keeps_id = code == ErrorCode.ILLEGAL_GENERATION
        self._forget(ClassicPhase.PREPARING, self._rejoin_reason, keeps_id=keeps_id)

    # --- leaving -------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        number = self._begin_round()
        self._awaits_answer = True

        def then(now: Instant, answer: Answer) -> None:
            # whatever the answer is: the group forgets us now, or when the session ends
            if number == self._round:
                self._awaits_answer = False
                self._depart()

        if not self._say_goodbye(LEAVING, then):
            self._awaits_answer = False
            self._depart()

    def _depart(self) -> None:
        self.generation = Generation()
        self._group_leader = None
        self._owned_partitions.lose(LEAVING)
        self.phase = ClassicPhase.OUT
        self._topics.watch(())
        self._tell(Left())
        if self.subscription is not None:  # subscribed again while we were leaving
            self.phase = ClassicPhase.PREPARING

    def _say_goodbye(self, reason: str, then: Callable[[Instant, Answer], None]) -> bool:
        """Whether there is anything to say: a static member's place is kept for it until its session ends."""
        to = self._coordinator.address() if self._coordinator.is_known else None
        if not self.generation.member_id or self._settings.instance_id is not None or to is None:
            return False
        question = leave_request(self._settings, self.generation, reason)
        self._request_queue.post(to, question, then, timeout_s=self._settings.request_timeout_s)
        return True
