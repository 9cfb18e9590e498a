"""A member of a classic group: it joins, is given its share, says that it lives, and joins again.

    OUT --subscribe--> PREPARING --all given up, topics known--> JOINING --JoinGroup answered-->
        leader: GATHERING --topics known, shared out--> SYNCING --SyncGroup answered--> STABLE
        others: SYNCING --> STABLE
    STABLE --a reason to rebalance--> PREPARING
    any of these --the group forgot us--> PREPARING, with all partitions lost
                 --polled too late--> STALE --polled--> PREPARING
                 --leave--> LEAVING --> OUT
                 --hopeless--> FAILED --subscribe--> PREPARING

Under the eager protocol everything is revoked in PREPARING; under the cooperative one (KIP-429) members go on
with what they own, and give up in STABLE what the new assignment leaves out, which is a reason to rebalance.
Either way nothing is given up before the application has acknowledged it.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.assignors.model import NO_GENERATION, is_cooperative
from headrace.client.assignors.wire import LastAssignment, read_assignment, write_subscription
from headrace.client.attempts import backoff
from headrace.client.cluster import Address
from headrace.client.connection import ByVersion
from headrace.client.errors import BadResponse, ClientError, InvalidInput, KafkaError
from headrace.client.membership.coordinator import Coordinator
from headrace.client.membership.events import (
    Assigned,
    Failed,
    Left,
    Lost,
    MembershipEvent,
    Partitions,
    PolledTooLate,
    Revoked,
)
from headrace.client.membership.identity import Identity
from headrace.client.membership.leadership import Leadership
from headrace.client.membership.mailbox import Answer, Mailbox
from headrace.client.membership.pulse import Pulse
from headrace.client.membership.settings import GroupSettings
from headrace.client.membership.subscription import Subscription
from headrace.client.membership.topics import TopicWatch
from headrace.protocol.errors import ErrorCode, MalformedMessage
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE = "consumer"
JOIN_GRACE_S = 5.0  # beyond the rebalance timeout, as Java waits for JoinGroup
LEAVE_MANY_SINCE = 3  # before, LeaveGroup names one member

NONE: Partitions = frozenset()


class Phase(Enum):
    OUT = auto()
    PREPARING = auto()
    JOINING = auto()
    GATHERING = auto()
    SYNCING = auto()
    STABLE = auto()
    LEAVING = auto()
    STALE = auto()
    FAILED = auto()


_AT_REST = (Phase.OUT, Phase.STALE, Phase.FAILED)


class Generation(NamedTuple):
    id: int = NO_GENERATION
    member_id: str = ""
    protocol: str = ""


class ClassicMembership:
    """Invariants: `_revoking` is part of `owned`; JoinGroup is not sent while anything is being revoked."""

    def __init__(
        self,
        settings: GroupSettings,
        mailbox: Mailbox,
        coordinator: Coordinator,
        topics: TopicWatch,
        dice: Dice,
        tell: Callable[[MembershipEvent], None],
    ) -> None:
        self.phase = Phase.OUT
        self.generation = Generation()
        self.owned: Partitions = NONE
        self.subscription: Subscription | None = None
        self._settings = settings
        self._assignors = {assignor.name: assignor for assignor in settings.assignors}
        self._is_cooperative = all(is_cooperative(assignor) for assignor in settings.assignors)
        self._mailbox = mailbox
        self._coordinator = coordinator
        self._topics = topics
        self._dice = dice
        self._tell = tell
        self._pulse = Pulse(
            dice, interval_s=settings.heartbeat_interval_s, session_s=settings.session_timeout_s
        )
        self._revoking: Partitions | None = None  # told to the application, not acknowledged
        self._adding: Partitions | None = None  # told to it once it has acknowledged
        self._last = LastAssignment()
        self._joined_topics: frozenset[str] = frozenset()  # those of the subscription that we joined with
        self._leadership: Leadership | None = None
        self._shares: list[SyncGroupRequestAssignment] = []
        self._rejoin_reason: str | None = None
        self._round = 0  # answers to questions of an earlier round come too late
        self._awaits_answer = False
        self._retry_at = Instant(0.0)
        self._failures = 0
        self._poll_until = NEVER
        coordinator.listeners.append(self._refused)

    # --- the application ----------------------------------------------------------------------------------

    def subscribe(self, now: Instant, subscription: Subscription) -> None:
        if subscription.broker_pattern is not None:
            raise InvalidInput("only groups of the consumer protocol let the broker match a pattern")
        self.subscription = subscription
        self._poll_until = Instant(now + self._settings.max_poll_interval_s)
        if self.phase in _AT_REST:
            self.phase = Phase.PREPARING
            self._rejoin_reason = "subscribed"

    def polled(self, now: Instant) -> None:
        """The application is at work: it has called `poll`."""
        self._poll_until = Instant(now + self._settings.max_poll_interval_s)
        if self.phase is Phase.STALE:
            self.phase = Phase.PREPARING
            self._rejoin_reason = "polled again after max.poll.interval.ms"

    def acknowledge(self, now: Instant) -> None:
        """The application is done with what was last revoked."""
        if self._revoking is None:
            return
        self.owned -= self._revoking
        self._revoking = None
        if self._adding is not None:
            self.owned |= self._adding
            self._tell(Assigned(self._adding))
            self._adding = None

    def leave(self, now: Instant) -> None:
        """Out of the group, as soon as all is given up; `Left` says when."""
        self.subscription = None
        if self.phase is Phase.LEAVING:
            return
        if self.phase in _AT_REST:
            self._depart()
            return
        self._begin_round()
        self._adding = self._rejoin_reason = None
        self.phase = Phase.LEAVING
        self._revoke(self.owned)

    @property
    def revoking(self) -> Partitions:
        """What the application has been told to give up and has not acknowledged."""
        return self._revoking or NONE

    @property
    def is_stable(self) -> bool:
        """Whether the last rebalance is over and no other is wanted."""
        return self.phase is Phase.STABLE and self._rejoin_reason is None

    def identity(self) -> Identity:
        return Identity(self.generation.member_id, self.generation.id, self._settings.instance_id)

    # --- time ----------------------------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Does what is due."""
        self._check_polling(now)
        if self.subscription is not None:
            self._notice_topics(self.subscription)
        if self.phase is Phase.STABLE and self._rejoin_reason is not None and self._revoking is None:
            self._prepare()
        if self.phase is Phase.PREPARING and self._revoking is None and self._knows_subscription():
            self.phase = Phase.JOINING
        if self.phase is Phase.GATHERING:
            self._share_out()
        if not self._awaits_answer and now >= self._retry_at:
            if self.phase is Phase.JOINING:
                self._join()
            elif self.phase is Phase.SYNCING:
                self._sync()
        if self.phase is Phase.LEAVING and self._revoking is None and not self._awaits_answer:
            self._leave()
        self._beat(now)

    def deadline(self) -> Instant:
        if self.phase in _AT_REST:
            return NEVER
        earliest = self._poll_until if self.phase is not Phase.LEAVING else NEVER
        if self._coordinator.is_known:
            if self.phase in (Phase.JOINING, Phase.SYNCING) and not self._awaits_answer:
                earliest = min(earliest, self._retry_at)
            if self._beats:
                earliest = min(earliest, self._pulse.beat_at(), self._pulse.session_until)
        return earliest

    def _check_polling(self, now: Instant) -> None:
        if self.phase in _AT_REST or self.phase is Phase.LEAVING or now < self._poll_until:
            return
        self._tell(PolledTooLate(self._settings.max_poll_interval_s))
        self._say_goodbye(f"not polled for {self._settings.max_poll_interval_s:g} s", lambda *_: None)
        self._forget(Phase.STALE)

    def _notice_topics(self, subscription: Subscription) -> None:
        chosen = self._chosen(subscription)
        group_topics = self._leadership.topics if self._leadership is not None else frozenset()
        self._topics.watch(chosen | group_topics, everything=subscription.pattern is not None)
        if self.phase in (Phase.OUT, Phase.PREPARING, Phase.STALE, Phase.FAILED):
            return
        if chosen != self._joined_topics and (self.phase is not Phase.JOINING or self._awaits_answer):
            self._rejoin_reason = "the subscription has changed"
        elif self._leadership is not None and self._leadership.is_outdated(self._topics.partitions):
            self._rejoin_reason = "topics of the group have changed"

    def _chosen(self, subscription: Subscription) -> frozenset[str]:
        known = set(self._topics.partitions)
        if self._settings.excludes_internal_topics:
            known -= self._topics.internal
        return subscription.chosen(known)

    def _knows_subscription(self) -> bool:
        return self.subscription is not None and (
            self.subscription.pattern is None or self._topics.was_told_all
        )

    # --- giving up -----------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Before we join (again): under the eager protocol everything has to go."""
        self.phase = Phase.PREPARING
        if not self._is_cooperative:
            self._revoke(self.owned)
        elif self.subscription is not None:
            selects = self.subscription.selects
            self._revoke(frozenset(at for at in self.owned if not selects(at.topic)))

    def _revoke(self, partitions: Partitions) -> None:
        fresh = partitions - self.revoking
        if fresh:
            self._revoking = self.revoking | fresh
            self._tell(Revoked(fresh))

    def _forget(self, phase: Phase, *, keeps_id: bool = False) -> None:
        """The generation is no longer ours, and neither is what it gave us."""
        self.generation = Generation(member_id=self.generation.member_id if keeps_id else "")
        self._leadership = None
        self._adding = None
        self._begin_round()
        if self.phase is not Phase.LEAVING:
            self.phase = phase
        lost, self.owned = self.owned - self.revoking, self.revoking
        if lost:
            self._tell(Lost(lost))

    def _fail(self, error: ClientError) -> None:
        self._tell(Failed(error))
        self._forget(Phase.FAILED)

    def _refused(self, now: Instant, error: ClientError) -> None:
        """The search for the coordinator has ended for good."""
        if self.phase is Phase.LEAVING:
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
        self._retry_at = Instant(now + backoff(self._failures, self._dice))
        self._failures += 1
        self._prepare()

    # --- joining -------------------------------------------------------------------------------------------

    def _join(self) -> None:
        to = self._coordinator.address()
        if to is None or self.subscription is None:
            return
        reason, self._rejoin_reason = self._rejoin_reason, None
        self._joined_topics = self._chosen(self.subscription)
        self._leadership = None
        question = JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout_ms=int(self._settings.session_timeout_s * 1000),
            rebalance_timeout_ms=int(self._settings.max_poll_interval_s * 1000),
            member_id=self.generation.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=write_subscription(
                        assignor,
                        topics=self._joined_topics,
                        owned=self.owned,
                        generation=self.generation.id,
                        last=self._last,
                        rack=self._settings.rack,
                    ),
                )
                for assignor in self._settings.assignors
            ],
            reason=reason,
        )
        number = self._begin_round()
        self._awaits_answer = True

        def then(now: Instant, answer: Answer) -> None:
            if number == self._round:
                self._awaits_answer = False
                self._joined(now, to, answer)

        timeout_s = max(self._settings.request_timeout_s, self._settings.max_poll_interval_s + JOIN_GRACE_S)
        self._mailbox.post(to, question, then, timeout_s=timeout_s)

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
                self._forget(Phase.PREPARING)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._retry_at = Instant(now + backoff(0, self._dice))
            case code:
                self._setback(now, to, self._error(code), coordinator_failed=code in _NOT_THE_ONE)

    def _enter(self, now: Instant, answer: JoinGroupResponse) -> None:
        protocol = answer.protocol_name or ""
        if protocol not in self._assignors:
            self._fail(BadResponse(f"the group uses the assignor {protocol!r}, which we did not offer"))
            return
        self.generation = Generation(answer.generation_id, answer.member_id, protocol)
        self._failures = 0
        self._pulse.start(now)
        self._shares = []
        if answer.leader != answer.member_id:
            self.phase = Phase.SYNCING
            return
        try:
            self._leadership = Leadership(answer.members, skips_assignment=answer.skip_assignment)
        except MalformedMessage as error:
            self._fail(BadResponse(f"the subscription of another member cannot be read: {error}"))
            return
        self.phase = Phase.GATHERING

    def _share_out(self) -> None:
        assert self._leadership is not None
        if not self._topics.was_told(self._leadership.topics):
            return
        assignor = self._assignors[self.generation.protocol]
        try:
            self._shares = self._leadership.shares(assignor, self._topics.partitions)
        except InvalidInput as error:
            self._fail(error)
            return
        self.phase = Phase.SYNCING

    def _sync(self) -> None:
        to = self._coordinator.address()
        if to is None:
            return
        question = SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=self.generation.id,
            member_id=self.generation.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.generation.protocol,
            assignments=self._shares,
        )
        number = self._begin_round()
        self._awaits_answer = True

        def then(now: Instant, answer: Answer) -> None:
            if number == self._round:
                self._awaits_answer = False
                self._synced(now, to, answer)

        timeout_s = max(self._settings.request_timeout_s, self._settings.max_poll_interval_s + JOIN_GRACE_S)
        self._mailbox.post(to, question, then, timeout_s=timeout_s)

    def _synced(self, now: Instant, to: Address, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self._setback(now, to, answer, coordinator_failed=True)
            return
        assert isinstance(answer, SyncGroupResponse)
        match answer.error_code:
            case ErrorCode.NONE:
                try:
                    self._settle(read_assignment(answer.assignment))
                except MalformedMessage as error:
                    self._fail(BadResponse(f"the assignment cannot be read: {error}"))
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin_reason = "the group began another rebalance"
                self._prepare()
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._forget(Phase.PREPARING)
            case ErrorCode.ILLEGAL_GENERATION:
                self._forget(Phase.PREPARING, keeps_id=True)
            case code:
                self._setback(now, to, self._error(code), coordinator_failed=code in _NOT_THE_ONE)

    def _settle(self, assigned: Partitions) -> None:
        """The rebalance is over for us: what we keep, what is new, and what has to go."""
        assert self.subscription is not None
        self.phase = Phase.STABLE
        selects = self.subscription.selects
        if not all(selects(at.topic) for at in assigned):
            self._rejoin_reason = "the subscription has changed"
            return  # what we own stays ours; the next rebalance will be about the topics wanted now
        self._last = LastAssignment(assigned, self.generation.id)
        gone, new = self.owned - assigned, assigned - self.owned
        if gone:
            self._adding = new
            self._rejoin_reason = f"gave up {len(gone)} partitions"
            self._revoke(gone)
        else:
            self.owned = assigned
            self._tell(Assigned(new))

    def _error(self, code: int) -> KafkaError:
        return KafkaError(code, subject=f"group {self._settings.group_id!r}")

    # --- living --------------------------------------------------------------------------------------------

    @property
    def _beats(self) -> bool:
        """Nobody asks for a heartbeat while our JoinGroup waits at the broker."""
        if self.generation.id == NO_GENERATION or self.phase in _AT_REST:
            return False
        return self.phase is not Phase.JOINING or not self._awaits_answer

    def _beat(self, now: Instant) -> None:
        if not self._beats:
            return
        to = self._coordinator.address()
        if to is None:
            return
        if now >= self._pulse.session_until:
            self._coordinator.failed(to)  # it may be another's by now: Java, too, looks for it anew
            self._pulse.start(now)
            return
        if now < self._pulse.beat_at():
            return
        self._pulse.sent(now)
        generation = self.generation
        question = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=generation.id,
            member_id=generation.member_id,
            group_instance_id=self._settings.instance_id,
        )

        def then(now: Instant, answer: Answer) -> None:
            self._heard(now, to, generation, answer)

        timeout_s = min(self._settings.request_timeout_s, self._settings.session_timeout_s)
        self._mailbox.post(to, question, then, timeout_s=timeout_s)

    def _heard(self, now: Instant, to: Address, generation: Generation, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self._pulse.missed(now)
            self._coordinator.failed(to)
            return
        assert isinstance(answer, HeartbeatResponse)
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._pulse.heard(now)
        else:
            self._pulse.missed(now)
            if code in _NOT_THE_ONE:
                self._coordinator.failed(to)
        if code != ErrorCode.NONE and generation == self.generation:
            self.refused(now, code)

    def refused(self, now: Instant, code: int) -> None:
        """A heartbeat or a commit of this very generation was answered with an error."""
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                if self.phase is Phase.STABLE and self._rejoin_reason is None:
                    self._rejoin_reason = "the group is rebalancing"
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._forget(Phase.PREPARING)
            case ErrorCode.ILLEGAL_GENERATION:
                self._forget(Phase.PREPARING, keeps_id=True)
            case _:
                error = self._error(code)
                if not error.is_retriable:
                    self._fail(error)

    # --- leaving -------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        number = self._begin_round()
        self._awaits_answer = True

        def then(now: Instant, answer: Answer) -> None:
            # whatever the answer is: the group forgets us now, or when the session ends
            if number == self._round:
                self._awaits_answer = False
                self._depart()

        if not self._say_goodbye("the consumer was closed or unsubscribed", then):
            self._awaits_answer = False
            self._depart()

    def _depart(self) -> None:
        self.generation = Generation()
        self._leadership = None
        self.owned, self._revoking, self._adding = NONE, None, None
        if self.phase is not Phase.OUT:
            self.phase = Phase.OUT
        self._topics.watch(())
        self._tell(Left())
        if self.subscription is not None:  # subscribed again while we were leaving
            self.phase = Phase.PREPARING

    def _say_goodbye(self, reason: str, then: Callable[[Instant, Answer], None]) -> bool:
        """Whether there is anything to say: a static member's place is kept for it until its session ends."""
        member_id, group_id = self.generation.member_id, self._settings.group_id
        if not member_id or self._settings.instance_id is not None or not self._coordinator.is_known:
            return False

        def make(version: int) -> LeaveGroupRequest:
            if version < LEAVE_MANY_SINCE:
                return LeaveGroupRequest(group_id=group_id, member_id=member_id)
            return LeaveGroupRequest(
                group_id=group_id, members=[MemberIdentity(member_id=member_id, reason=reason)]
            )

        self._mailbox.post(
            self._coordinator.address(),
            ByVersion(LeaveGroupRequest, make),
            then,
            timeout_s=self._settings.request_timeout_s,
        )
        return True


_NOT_THE_ONE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
