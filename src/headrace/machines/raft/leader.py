"""The leader of the quorum: how far every replica has fetched, what is committed, and fetches that wait.

A replica's fetch says what it holds durably. An offset is committed when a majority of the voters holds it
and the leader's own log is flushed up to there; entries of earlier epochs are committed only together with
one of this epoch (Raft §5.4.2), and nothing before the log says who votes (`voters.py`). A fetch that finds
nothing new waits here until something is appended, the high watermark rises, or its time is over.
"""

from headrace.base.time import NEVER, Duration, Instant
from headrace.base.values import Value
from headrace.machines.raft.majority import majority_of, majority_offset
from headrace.machines.raft.messages import (
    AppendLeaderChange,
    AppendVoters,
    BeginEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Lead,
    SnapshotAnswer,
    StepDown,
)
from headrace.machines.raft.quorum_state import NO_DIRECTORY
from headrace.machines.raft.replica import Replica
from headrace.machines.raft.replica_log import LogPoint
from headrace.machines.raft.times import DOUBT_MS_MAX, FETCH_WAIT_MS_MAX, QuorumTimes, after
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.protocol.errors import ErrorCode

# An observer that has not fetched for so long is gone: it is not described any more.
OBSERVER_EXPIRY = Duration(300.0)

# Observers that are described, each some 500 bytes. A cluster has as many as it has brokers, but whoever
# reaches a controller may call itself by any id. At the limit the one that was silent for longest goes.
OBSERVERS_MAX = 2_000


class Progress(Value):
    """How far a replica has fetched."""

    directory_id: bytes
    fetched_at: Instant  # its last fetch; of a voter that has not fetched yet, when the epoch began
    end_offset: int = 0  # what it holds durably; it never falls
    high_watermark: int = 0  # what it has applied, as it told in its last fetch
    has_fetched: bool = False  # in this epoch
    caught_up_at: Instant | None = None  # when it last had all that the leader had
    leader_end: int = 0  # the leader's end at its last fetch


class WaitingFetch(Value):
    ticket: int
    request: Fetch
    high_watermark: int  # that its sender knows
    until: Instant


def fetch_answer(
    replica: Replica,
    error: ErrorCode,
    divergence: LogPoint | None = None,
    snapshot: LogPoint | None = None,
) -> FetchAnswer:
    """With the leader, the epoch and the high watermark that this node knows."""
    return FetchAnswer(error, replica.leader_id, replica.epoch, replica.high_watermark, divergence, snapshot)


class Leader:
    """Invariant: with other voters, the high watermark is either where it was before this epoch or past its
    first record. It never falls, and a majority of the voters holds everything below it.
    """

    name = "leader"
    grants_pre_votes = False

    def __init__(self, now: Instant, replica: Replica, times: QuorumTimes) -> None:
        self._replica = replica
        self._times = times
        self.epoch_start_offset = replica.log.end_offset
        self.followers: dict[int, Progress] = {
            key.id: Progress(key.directory_id, now) for key in replica.other_voters
        }
        self.observers: dict[VoterKey, Progress] = {}  # those that fetched last come last
        self._heard_last: dict[int, Progress] = {}  # by node, whichever directory it fetched with
        self.waiting: dict[VoterKey, WaitingFetch] = {}
        self._begin_at = NEVER  # when voters that do not fetch are told about the epoch again
        self._is_recording_voters = False

    def begin(self, now: Instant, granting: tuple[int, ...]) -> None:
        """Write the first record of the epoch, and make it known."""
        replica = self._replica
        self.commit(now)  # what a sole voter has flushed
        replica.emit(AppendLeaderChange(replica.epoch, replica.voters, granting))
        self._record_voters()
        replica.emit(Lead(replica.epoch))
        self._tell_epoch(now, list(self.followers))

    @property
    def is_active(self) -> bool:
        """Whether an entry of this epoch is committed."""
        return self._replica.high_watermark > self.epoch_start_offset

    @property
    def may_decide(self) -> bool:
        """Whether everything before this epoch is known to be committed."""
        return self._replica.high_watermark >= self.epoch_start_offset

    # --- time ----------------------------------------------------------------------------------------------

    def deadline(self) -> Instant:
        expiry = min((one.until for one in self.waiting.values()), default=NEVER)
        return min(self._begin_at, expiry, self.loses_majority_at())

    def loses_majority_at(self) -> Instant:
        """When a majority will not have fetched for too long, unless it does."""
        needed = majority_of(len(self.followers) + 1) - 1  # without ourselves
        if needed == 0:
            return NEVER
        last = sorted((one.fetched_at for one in self.followers.values()), reverse=True)
        return after(last[needed - 1], self._times.leader_patience_ms)

    def woke(self, now: Instant) -> None:
        if self._begin_at <= now:
            silent_ms = self._times.fetch_timeout_ms / 2
            self._tell_epoch(
                now,
                [
                    id
                    for id, one in self.followers.items()
                    if not one.has_fetched or after(one.fetched_at, silent_ms) <= now
                ],
            )
        self.answer_due(now)

    def _tell_epoch(self, now: Instant, voters: list[int]) -> None:
        replica = self._replica
        for id in voters:
            key = VoterKey(id, replica.voters.directories[id])
            replica.send(id, BeginEpoch(key, replica.local.id, replica.epoch))
        if self.followers:
            self._begin_at = after(now, self._times.fetch_timeout_ms // 2)

    def epoch_not_told(self, now: Instant) -> None:
        """A voter may not have heard of the epoch, because a connection broke."""
        self._begin_at = min(self._begin_at, after(now, DOUBT_MS_MAX))

    # --- fetches -------------------------------------------------------------------------------------------

    def fetch_asked(self, now: Instant, ticket: int, fetch: Fetch) -> None:
        replica, log = self._replica, self._replica.log
        if log.starts_after(fetch.end):
            self._heard(now, fetch.replica)
            replica.reply(ticket, self._answer(snapshot=log.snapshot))
        elif (divergence := log.divergence(fetch.end)) is not None:
            self._heard(now, fetch.replica)
            replica.reply(ticket, self._answer(divergence=divergence))
        else:
            progress = self._fetched(now, fetch.replica, fetch.end.end_offset)
            self._record_voters()
            self.commit(now)
            known = min(fetch.high_watermark, replica.high_watermark)
            progress.high_watermark = known
            earlier = self.waiting.get(fetch.replica)  # its connection is gone
            until = after(now, min(fetch.wait_ms, FETCH_WAIT_MS_MAX))
            self.waiting[fetch.replica] = WaitingFetch(ticket, fetch, known, until)
            if earlier is not None:
                replica.reply(earlier.ticket, self._answer())
            self.answer_due(now)

    def snapshot_asked(self, now: Instant, ticket: int, fetch: FetchSnapshot) -> None:
        replica = self._replica
        self._heard(now, fetch.replica)
        is_there = fetch.snapshot == replica.log.snapshot
        error = ErrorCode.NONE if is_there else ErrorCode.SNAPSHOT_NOT_FOUND
        replica.reply(ticket, SnapshotAnswer(error, replica.leader_id, replica.epoch))

    def answer_due(self, now: Instant) -> None:
        """Answer fetches that have waited for this, or long enough."""
        replica = self._replica
        due = {
            key: one
            for key, one in self.waiting.items()
            if one.request.end.end_offset < replica.log.end_offset
            or one.high_watermark < replica.high_watermark
            or one.until <= now
        }
        for key, one in due.items():
            del self.waiting[key]
            replica.reply(one.ticket, self._answer())

    def _answer(self, divergence: LogPoint | None = None, snapshot: LogPoint | None = None) -> FetchAnswer:
        return fetch_answer(self._replica, ErrorCode.NONE, divergence, snapshot)

    def step_down(self) -> None:
        """Whoever waits for this leader is told that it leads no more."""
        replica = self._replica
        replica.emit(StepDown(replica.epoch))
        for one in self.waiting.values():
            replica.reply(one.ticket, fetch_answer(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # --- replicas ------------------------------------------------------------------------------------------

    def applied_offset(self, id: int) -> int | None:
        """What the replica of that node has applied, as its last fetch told; None: it has not fetched."""
        progress = self._heard_last.get(id)
        return progress.high_watermark if progress is not None and progress.has_fetched else None

    def _fetched(self, now: Instant, replica: VoterKey, end_offset: int) -> Progress:
        """A replica holds the log durably up to `end_offset`, and its log is a beginning of ours."""
        before, progress = self._heard(now, replica)
        end = self._replica.log.end_offset
        if end_offset >= end:
            progress.caught_up_at = now
        elif progress.has_fetched and end_offset >= progress.leader_end:
            progress.caught_up_at = before
        progress.end_offset = max(progress.end_offset, end_offset)
        progress.leader_end = end
        progress.has_fetched = True
        return progress

    def _heard(self, now: Instant, replica: VoterKey) -> tuple[Instant, Progress]:
        """A replica is alive and follows this epoch, wherever its log ends; when it was heard before."""
        if replica.id not in self.followers or not self._replica.voters.has(replica):
            progress = self.observers.pop(replica, None) or Progress(replica.directory_id, now)
            if replica.id >= 0:  # else a consumer
                self.observers[replica] = progress
        else:
            progress = self.followers[replica.id]
            if progress.directory_id != replica.directory_id:  # nothing is committed by a voter before that
                progress = self.followers[replica.id] = Progress(replica.directory_id, now)
        before, progress.fetched_at = progress.fetched_at, now
        if replica.id >= 0:
            self._heard_last[replica.id] = progress
        self._forget_observers(now)
        return before, progress

    def _forget_observers(self, now: Instant) -> None:
        observers = self.observers
        while observers:
            longest_silent = next(iter(observers))
            is_gone = observers[longest_silent].fetched_at + OBSERVER_EXPIRY < now
            if not is_gone and len(observers) <= OBSERVERS_MAX:
                break
            progress = observers.pop(longest_silent)
            if self._heard_last.get(longest_silent.id) is progress:
                del self._heard_last[longest_silent.id]

    def successors(self) -> tuple[VoterKey, ...]:
        """The voters, those first that have the most."""
        order = sorted(self.followers.items(), key=lambda item: (-item[1].end_offset, item[0]))
        return tuple(VoterKey(id, one.directory_id) for id, one in order)

    def _record_voters(self) -> None:
        """Once the directories of all voters are known."""
        replica = self._replica
        keys = [replica.local, *(VoterKey(id, one.directory_id) for id, one in self.followers.items())]
        are_known = all(key.directory_id != NO_DIRECTORY for key in keys)
        if are_known and not replica.log.voters and not self._is_recording_voters:
            self._is_recording_voters = True
            replica.emit(AppendVoters(replica.epoch, Voters.of(keys)))

    # --- commits -------------------------------------------------------------------------------------------

    def commit(self, now: Instant) -> None:
        """More may be held by a majority than before."""
        offset = self.committed_offset()
        if offset is not None and offset > self._replica.high_watermark:
            self._replica.advance(offset)
            self.answer_due(now)
        self._replica.is_caught_up |= self.may_decide

    def committed_offset(self) -> int | None:
        """Where the committed part ends, as far as this epoch can tell; None while it cannot."""
        log = self._replica.log
        if not self.followers:
            return log.flushed_offset  # no other voter can have another log
        if not log.voters:
            return None
        ends = [log.flushed_offset, *(one.end_offset for one in self.followers.values())]
        # what is applied here must be on the disk of this node, too
        held = min(majority_offset(ends), log.flushed_offset)
        floor = max(self.epoch_start_offset, log.voters[0][0])
        return held if held > floor else None
