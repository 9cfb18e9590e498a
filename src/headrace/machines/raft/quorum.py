"""The quorum of the metadata log: one voter or observer of it, as a machine, in the way of Kafka's KRaft.

    unattached ── time ──▶ prospective ── pre-votes of a majority ──▶ candidate ── votes ──▶ leader
        ▲                   ▲      │                                     │                     │
        │    leader silent, │      │ others hear the leader         lost │      stops, or the  │
        │           or gone │      ▼                                     │   majority is gone  ▼
        │                 follower ◀── somebody tells the leader         │                 resigned
        └──────── a higher epoch, from any role ◀────────────────────────┴─────────── time ────┘

A node that does not vote is an observer. The log is pulled (KIP-595): followers and observers fetch, and the
fetches say what they hold. `step` takes an event and returns the effects in the order in which they must
be carried out; `deadline` says when the machine wants to be woken. A sole voter leads from its first step on.
"""

from typing import assert_never

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.machines.raft.election import Candidate, Poll, Prospective, Resigned, Unattached
from headrace.machines.raft.follower import FetchLoop, Follower, Observer
from headrace.machines.raft.leader import Leader, fetch_answer
from headrace.machines.raft.messages import (
    Answer,
    Answered,
    Appended,
    AppendFailed,
    Asked,
    BeginEpoch,
    Effect,
    EndEpoch,
    EpochAnswer,
    Event,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Flushed,
    Message,
    ShutdownBegan,
    SnapshotAnswer,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotMade,
    Started,
    Unanswered,
    Vote,
    VoteAnswer,
    Woke,
)
from headrace.machines.raft.quorum_state import NO_DIRECTORY, NOBODY, QuorumState
from headrace.machines.raft.replica import Replica
from headrace.machines.raft.replica_log import LogPoint, ReplicaLog
from headrace.machines.raft.times import DOUBT_MS_MAX, QuorumTimes, after, hesitation_ms
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.protocol.errors import ErrorCode

Role = Unattached | Prospective | Candidate | Leader | Resigned | Follower | Observer


class Quorum:
    """Invariants are those of its parts (`check`). The epoch and the vote in it are ordered to be durable
    before anything that depends on them.
    """

    def __init__(
        self,
        local: VoterKey,
        configured: Voters,
        log: ReplicaLog,
        state: QuorumState,
        times: QuorumTimes,
        rng: Randomness,
    ) -> None:
        """`configured` are the voters as settings name them; what the log says about them counts more."""
        self._replica = Replica(local, configured, log, state)
        self._times = times
        self._rng = rng
        self._elections_lost = 0  # since a leader was known
        self._doubts = 0  # about a leader that turned out to live
        self.is_stopping = False  # it still votes, but it does not stand
        self.role: Role = Unattached(NEVER)

    # --- questions -----------------------------------------------------------------------------------------

    @property
    def local(self) -> VoterKey:
        return self._replica.local

    @property
    def log(self) -> ReplicaLog:
        return self._replica.log

    @property
    def epoch(self) -> int:
        return self._replica.epoch

    @property
    def leader_id(self) -> int:
        """Of this epoch; NOBODY: not known."""
        return self._replica.leader_id

    @property
    def voted(self) -> VoterKey | None:
        """In this epoch."""
        return self._replica.voted

    @property
    def high_watermark(self) -> int:
        return self._replica.high_watermark

    @property
    def voters(self) -> Voters:
        return self._replica.voters

    @property
    def is_caught_up(self) -> bool:
        """Whether all that was committed at some moment since the start is known here."""
        return self._replica.is_caught_up

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    def applied_offset(self, id: int) -> int | None:
        """What another node has applied of the log; None: this one does not know."""
        return self.role.applied_offset(id) if isinstance(self.role, Leader) else None

    @property
    def is_active(self) -> bool:
        """Whether this node leads, and an entry of its epoch is committed: what it knows is not outdated."""
        return isinstance(self.role, Leader) and self.role.is_active

    @property
    def may_decide(self) -> bool:
        """Whether this node leads, and everything before its epoch is known to be committed."""
        return isinstance(self.role, Leader) and self.role.may_decide

    @property
    def has_handed_over(self) -> bool:
        """After `ShutdownBegan`: nobody has to be told any more."""
        role = self.role
        return not isinstance(role, Leader) and not (isinstance(role, Resigned) and role.farewells)

    def deadline(self) -> Instant | None:
        at = self.role.deadline()
        return at if at != NEVER else None

    def check(self) -> None:
        replica, role = self._replica, self.role
        replica.check()
        if isinstance(role, Leader | Candidate | Prospective | Resigned | Follower):
            assert replica.is_voter
        if isinstance(role, Leader):
            assert replica.leader_id == replica.local.id
            assert not role.is_active or replica.log.last_epoch == replica.epoch
        if isinstance(role, Candidate):
            assert replica.voted == replica.local

    # --- events --------------------------------------------------------------------------------------------

    def step(self, now: Instant, event: Event) -> list[Effect]:
        role = self.role
        match event:
            case Woke():
                self._woke(now)
            case Asked(ticket, request):
                self._asked(now, ticket, request)
            case Answered(peer, request, answer):
                self._answered(now, peer, request, answer)
            case Unanswered(peer, request, is_refused):
                self._unanswered(now, peer, request, is_refused=is_refused)
            case Appended():
                self._appended(now, event)
            case Flushed(end_offset):
                self._flushed(now, end_offset)
            case AppendFailed():
                if isinstance(role, Leader):
                    self._resign(now, role)
                elif isinstance(role, Follower | Observer):
                    role.loop.append_failed(now)
            case SnapshotMade(snapshot, start_offset):
                self.log.drop_before(start_offset, snapshot)
            case SnapshotInstalled(snapshot, voters):
                self._installed(snapshot, voters)
            case SnapshotFailed():
                self._replica.is_installing = False
                if isinstance(role, Follower | Observer):
                    role.loop.end_download()
                    role.loop.append_failed(now)
            case ShutdownBegan():
                self.is_stopping = True
                if isinstance(role, Leader):
                    self._resign(now, role)
            case Started():
                self._start(now)
            case _:
                assert_never(event)
        return self._replica.take_effects()

    def _start(self, now: Instant) -> None:
        replica = self._replica
        if replica.voters.ids == (replica.local.id,) and replica.is_voter:
            self._stand(now)
        elif not replica.is_voter:
            self._observe(now)
        elif replica.leader_id != NOBODY:
            self._follow(now, replica.leader_id)
        else:
            self._wait_as_unattached(now, hesitation_ms(self._rng))

    def _woke(self, now: Instant) -> None:
        role = self.role
        match role:
            case Leader():
                if role.loses_majority_at() <= now:
                    self._resign(now, role)
                else:
                    role.woke(now)
            case Unattached():
                if role.until <= now:
                    self._ask_for_pre_votes(now)
            case Prospective() | Candidate():
                if role.until <= now:
                    self._ask_for_pre_votes(now)
                else:
                    self._ask_again(now, role)
            case Resigned():
                if role.until <= now:
                    self._wait_as_unattached(now, hesitation_ms(self._rng))
            case Follower():
                if role.leader_until <= now or role.doubts_at <= now:
                    self._doubts += 1
                    self._ask_for_pre_votes(now)
                elif role.loop.retry_at <= now:
                    role.loop.fetch()
            case Observer():
                if role.leader_until <= now:
                    self._observe(now)
                elif role.loop.retry_at <= now:
                    role.loop.fetch()
            case _:
                assert_never(role)

    def _appended(self, now: Instant, event: Appended) -> None:
        self.log.append(event.end_offset, event.epochs, event.voters)
        if event.voters:
            self._voters_changed()
        if isinstance(self.role, Leader):
            self.role.answer_due(now)

    def _flushed(self, now: Instant, end_offset: int) -> None:
        self.log.flushed_offset = min(end_offset, self.log.end_offset)
        if isinstance(self.role, Leader):
            self.role.commit(now)
        elif isinstance(self.role, Follower | Observer):
            self.role.loop.flushed()

    def _installed(self, snapshot: LogPoint, voters: Voters | None) -> None:
        self._replica.is_installing = False
        self.log.begin_at(snapshot, voters)
        self._replica.advance(snapshot.end_offset)
        self._voters_changed()
        if isinstance(self.role, Follower | Observer):
            self.role.loop.end_download()
            self.role.loop.fetch()

    def _voters_changed(self) -> None:
        """The log says who votes: a follower may learn that it does not, and the other way round."""
        role, is_voter = self.role, self._replica.is_voter
        if isinstance(role, Follower) and not is_voter:
            self.role = Observer(role.loop, role.leader_until)
        elif isinstance(role, Observer) and is_voter:
            self.role = Follower(role.loop, role.leader_until)

    # --- requests of others --------------------------------------------------------------------------------

    def _asked(self, now: Instant, ticket: int, request: Message) -> None:
        match request:
            case Vote():
                self._vote_asked(now, ticket, request)
            case BeginEpoch():
                self._epoch_began(now, ticket, request)
            case EndEpoch():
                self._epoch_ended(now, ticket, request)
            case Fetch() | FetchSnapshot():
                self._log_asked(now, ticket, request)
            case _:
                assert_never(request)

    def _vote_asked(self, now: Instant, ticket: int, vote: Vote) -> None:
        replica = self._replica
        error = ErrorCode.NONE
        is_granted = False
        if not self._is_meant(vote.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        elif vote.epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            self._heed(now, vote.epoch, NOBODY)
            is_granted = self._would_vote_for(vote)
            if is_granted and not vote.is_pre_vote and replica.voted is None:
                replica.voted = vote.candidate
                self._wait_as_unattached(now, self._times.election_ms(self._rng))
        replica.reply(ticket, VoteAnswer(error, replica.leader_id, replica.epoch, is_granted))

    def _would_vote_for(self, vote: Vote) -> bool:
        replica = self._replica
        if not replica.is_voter or not replica.voters.has(vote.candidate):
            return False
        if replica.log.is_newer_than(vote.end):
            return False
        if vote.is_pre_vote:
            return self.role.grants_pre_votes
        if replica.voted is not None:
            return replica.voted == vote.candidate
        return replica.leader_id == NOBODY and isinstance(self.role, Unattached | Prospective)

    def _is_meant(self, voter: VoterKey) -> bool:
        """Whether a request for this voter is for us, and not for one whose disk was lost."""
        return voter.id == self.local.id and voter.directory_id in (NO_DIRECTORY, self.local.directory_id)

    def _epoch_began(self, now: Instant, ticket: int, begin: BeginEpoch) -> None:
        replica = self._replica
        error = ErrorCode.NONE
        if not self._is_meant(begin.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        elif begin.epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            self._heed(now, begin.epoch, begin.leader_id)
            if begin.leader_id == replica.leader_id and isinstance(self.role, Prospective):
                self._follow(now, begin.leader_id)  # it lives
        replica.reply(ticket, EpochAnswer(error, replica.leader_id, replica.epoch))

    def _epoch_ended(self, now: Instant, ticket: int, end: EndEpoch) -> None:
        replica = self._replica
        error = ErrorCode.NONE
        may_stand = False
        if end.epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            self._heed(now, end.epoch, NOBODY)
            may_stand = replica.leader_id in (NOBODY, end.leader_id)
        replica.reply(ticket, EpochAnswer(error, replica.leader_id, replica.epoch))
        if not may_stand or not isinstance(self.role, Unattached | Prospective | Follower):
            return
        replica.leader_id = NOBODY
        if replica.local not in end.successors:
            self._wait_as_unattached(now, self._times.election_ms(self._rng))
        elif place := end.successors.index(replica.local):
            self._wait_as_unattached(now, place * DOUBT_MS_MAX + hesitation_ms(self._rng))
        elif not self.is_stopping:
            self._stand(now)  # without pre-votes: others may not know yet that their leader resigned

    def _log_asked(self, now: Instant, ticket: int, fetch: Fetch | FetchSnapshot) -> None:
        role, replica = self.role, self._replica
        error = ErrorCode.NONE
        if not isinstance(role, Leader):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif fetch.epoch < replica.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif fetch.epoch > replica.epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif isinstance(fetch, Fetch):
            role.fetch_asked(now, ticket, fetch)
            return
        else:
            role.snapshot_asked(now, ticket, fetch)
            return
        if isinstance(fetch, Fetch):
            replica.reply(ticket, fetch_answer(replica, error))
        else:
            replica.reply(ticket, SnapshotAnswer(error, replica.leader_id, replica.epoch))

    # --- what others tell about the epoch ------------------------------------------------------------------

    def _heed(self, now: Instant, epoch: int, leader_id: int) -> None:
        """Somebody knows this epoch, and perhaps its leader."""
        replica = self._replica
        is_other = leader_id not in (NOBODY, replica.local.id)
        if epoch > replica.epoch:
            self._leave_leadership()
            replica.enter(epoch)
            if not is_other:
                self._lose_leader(now)
        if epoch == replica.epoch and is_other and replica.leader_id == NOBODY:
            self._follow(now, leader_id)

    def _lose_leader(self, now: Instant) -> None:
        if self._replica.is_voter:
            self._wait_as_unattached(now, self._times.election_ms(self._rng))
        else:
            self._observe(now)

    def _leave_leadership(self) -> None:
        """The caller gives this node another role."""
        if isinstance(self.role, Leader):
            self._replica.leader_id = NOBODY
            self.role.step_down()

    # --- answers -------------------------------------------------------------------------------------------

    def _answered(self, now: Instant, peer: int, request: Message, answer: Answer) -> None:
        self._heed(now, answer.epoch, answer.leader_id)
        role = self.role
        match answer:
            case VoteAnswer():
                if isinstance(role, Prospective | Candidate) and role.poll.asked.get(peer) is request:
                    self._voted(now, role, peer, is_granted=answer.is_granted)
            case EpochAnswer():
                if isinstance(role, Resigned) and role.farewells.get(peer) is request:
                    del role.farewells[peer]
            case FetchAnswer() | SnapshotAnswer():
                if isinstance(role, Follower | Observer) and role.loop.under_way is request:
                    self._fetched(now, role, answer)
            case _:
                assert_never(answer)

    def _unanswered(self, now: Instant, peer: int, request: Message, *, is_refused: bool) -> None:
        role = self.role
        match role:
            case Prospective() | Candidate():
                if role.poll.asked.get(peer) is request:
                    self._not_voted(now, role, peer)
            case Resigned():
                if role.farewells.get(peer) is request:
                    del role.farewells[peer]
            case Follower() | Observer():
                if role.loop.under_way is request:
                    self._fetch_failed(now, role, is_refused=is_refused)
            case Leader():
                if isinstance(request, BeginEpoch) and not is_refused:
                    role.epoch_not_told(now)
            case Unattached():
                pass
            case _:
                assert_never(role)

    def _fetched(self, now: Instant, role: Follower | Observer, answer: FetchAnswer | SnapshotAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            if isinstance(answer, SnapshotAnswer):
                role.loop.end_download()
            # a leader that says that it is none is as good as gone
            self._fetch_failed(now, role, is_refused=answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        role.leader_until = after(now, self._times.fetch_timeout_ms)
        if isinstance(role, Follower):
            role.doubts_at = NEVER
            self._doubts = 0
        if isinstance(answer, FetchAnswer):
            role.loop.fetched(answer)
        else:
            role.loop.piece_fetched(answer)

    def _fetch_failed(self, now: Instant, role: Follower | Observer, *, is_refused: bool) -> None:
        role.loop.failed(now)
        if isinstance(role, Observer):
            self._observe(now)
        elif is_refused and role.doubts_at == NEVER:
            longer = 1 << min(self._doubts, 5)  # the others hear this leader: do not ask them all the time
            role.doubts_at = after(now, hesitation_ms(self._rng) * longer)
        elif not is_refused and role.loop.failures == 1:
            role.loop.fetch()  # the connection broke: is it refused now?

    # --- elections -----------------------------------------------------------------------------------------

    def _wait_as_unattached(self, now: Instant, wait_ms: int) -> None:
        self.role = Unattached(after(now, wait_ms))

    def _ask_for_pre_votes(self, now: Instant) -> None:
        if self.is_stopping:
            self.role = Unattached(NEVER)
            return
        role = self.role = Prospective(self._poll(), self._election_ends_at(now))
        self._ask(role, self._replica.other_voters)
        if role.poll.is_won:
            self._stand(now)

    def _stand(self, now: Instant) -> None:
        replica = self._replica
        replica.enter(replica.epoch + 1)
        replica.voted = replica.local
        role = self.role = Candidate(self._poll(), self._election_ends_at(now))
        self._ask(role, replica.other_voters)
        if role.poll.is_won:
            self._lead(now, granting=(replica.local.id,))

    def _poll(self) -> Poll:
        return Poll(self.local.id, self.voters)

    def _election_ends_at(self, now: Instant) -> Instant:
        return after(now, self._times.election_ms(self._rng))

    def _ask(self, role: Prospective | Candidate, voters: tuple[VoterKey, ...]) -> None:
        replica = self._replica
        is_pre_vote = isinstance(role, Prospective)
        for voter in voters:
            vote = Vote(voter, replica.local, replica.epoch, replica.log.end, is_pre_vote)
            role.poll.asked[voter.id] = vote
            role.poll.ask_again.pop(voter.id, None)
            replica.send(voter.id, vote)

    def _ask_again(self, now: Instant, role: Prospective | Candidate) -> None:
        due = [voter for voter in self.voters.keys if role.poll.ask_again.get(voter.id, NEVER) <= now]
        self._ask(role, tuple(due))

    def _voted(self, now: Instant, role: Prospective | Candidate, voter: int, *, is_granted: bool) -> None:
        poll = role.poll
        poll.count(voter, is_granted=is_granted)
        if isinstance(role, Prospective):
            if poll.is_won:
                self._stand(now)
            elif poll.is_lost and self.leader_id != NOBODY:
                self._follow(now, self.leader_id)
            elif poll.is_lost:
                self._give_up(now)
            elif not is_granted:  # it may hear the leader that we do not hear, and soon not any more
                poll.ask_again[voter] = after(now, DOUBT_MS_MAX)
        elif poll.is_won:
            self._lead(now, granting=tuple(sorted(poll.granted)))
        elif poll.is_hopeless:
            self._give_up(now)

    def _not_voted(self, now: Instant, role: Prospective | Candidate, voter: int) -> None:
        """There was no answer: ask again, soon."""
        poll = role.poll
        poll.ask_again[voter] = after(now, self._times.retry_ms(poll.failed(voter), DOUBT_MS_MAX))
        if isinstance(role, Candidate) and poll.is_hopeless:
            self._give_up(now)

    def _give_up(self, now: Instant) -> None:
        self._elections_lost += 1
        self._wait_as_unattached(now, self._times.backoff_ms(self._rng, self._elections_lost))

    # --- leaders -------------------------------------------------------------------------------------------

    def _lead(self, now: Instant, granting: tuple[int, ...]) -> None:
        self._replica.leader_id = self.local.id
        self._elections_lost = 0
        role = self.role = Leader(now, self._replica, self._times)
        role.begin(now, granting)

    def _resign(self, now: Instant, role: Leader) -> None:
        replica = self._replica
        successors = role.successors()
        self._leave_leadership()
        farewells = {key.id: EndEpoch(replica.local.id, replica.epoch, successors) for key in successors}
        self.role = Resigned(farewells, self._election_ends_at(now))
        for id, farewell in farewells.items():
            replica.send(id, farewell)

    def _follow(self, now: Instant, leader_id: int) -> None:
        self._replica.leader_id = leader_id
        self._elections_lost = 0
        loop = FetchLoop(self._replica, self._times, leader_id)
        until = after(now, self._times.fetch_timeout_ms)
        self.role = Follower(loop, until) if self._replica.is_voter else Observer(loop, until)
        loop.fetch()

    def _observe(self, now: Instant) -> None:
        """Look for the leader: ask the next voter."""
        before = self.role.loop if isinstance(self.role, Observer) else None
        others = [key.id for key in self._replica.other_voters]
        self._replica.leader_id = NOBODY
        if not others:
            self.role = Unattached(NEVER)
            return
        if before is None or before.source not in others:
            source = others[self._rng.randrange(len(others))]
        else:
            source = others[(others.index(before.source) + 1) % len(others)]
        failures = before.failures if before is not None else 0
        loop = FetchLoop(self._replica, self._times, source, failures)
        pause_ms = self._times.retry_ms(failures) if failures else 0
        # its time to answer begins when it is asked
        self.role = Observer(loop, after(now, pause_ms + self._times.fetch_timeout_ms))
        if failures:
            loop.fetch_later(now, pause_ms)
        else:
            loop.fetch()
