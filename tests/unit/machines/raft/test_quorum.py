"""The steps of one voter or observer, as lists of effects."""

from __future__ import annotations

from headrace.base.time import Instant
from headrace.machines.raft.leader import OBSERVER_EXPIRY, OBSERVERS_MAX, Leader
from headrace.machines.raft.messages import (
    AdvanceHighWatermark,
    Answered,
    Appended,
    AppendFailed,
    AppendFetched,
    AppendLeaderChange,
    AppendVoters,
    Asked,
    BeginEpoch,
    Effect,
    EndEpoch,
    EpochAnswer,
    Event,
    Fail,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Flushed,
    Lead,
    PersistQuorumState,
    Reply,
    Send,
    ShutdownBegan,
    SnapshotAnswer,
    SnapshotFailed,
    SnapshotInstalled,
    Started,
    StepDown,
    Truncate,
    Unanswered,
    Vote,
    VoteAnswer,
    Woke,
    WriteSnapshot,
)
from headrace.machines.raft.quorum import Quorum
from headrace.machines.raft.quorum_state import NOBODY, QuorumState
from headrace.machines.raft.replica_log import LogPoint, ReplicaLog
from headrace.machines.raft.times import QuorumTimes
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
A, B, C = (VoterKey(id, bytes([id]) * 16) for id in (1, 2, 3))
OBSERVER = VoterKey(4, bytes([4]) * 16)
THREE = Voters.of((A, B, C))
NAMED = Voters.of(VoterKey(id) for id in (1, 2, 3))  # as settings name them
ENTRIES = LogPoint(5, 2)


class Lowest:
    """Randomness that always gives the smallest number."""

    def randbytes(self, n: int) -> bytes:
        return bytes(n)

    def randrange(self, stop: int) -> int:
        return 0


class Node:
    """A quorum machine whose invariants are checked after every step."""

    def __init__(
        self,
        local: VoterKey = A,
        voters: Voters = THREE,
        log: ReplicaLog | None = None,
        state: QuorumState | None = None,
        times: QuorumTimes | None = None,
    ) -> None:
        if log is None:  # five entries; the second says who votes
            log = ReplicaLog(end_offset=5, epochs=[(1, 0), (2, 3)], voters=[(1, voters)])
        state = state or QuorumState(leader_epoch=log.last_epoch)
        self.quorum = Quorum(local, voters, log, state, times or QuorumTimes(), Lowest())
        self.now = Instant(0.0)

    def step(self, *events: Event) -> list[Effect]:
        effects = []
        for event in events:
            effects += self.quorum.step(self.now, event)
            self.quorum.check()
        return effects

    def wake(self) -> list[Effect]:
        deadline = self.quorum.deadline()
        assert deadline is not None
        self.now = deadline
        return self.step(Woke())

    # --- how it gets into a role ---------------------------------------------------------------------------

    def elected(self) -> Node:
        """Leads epoch 3, with its first entry at offset 5, which is flushed."""
        self.step(Started())
        effects = self.wake()
        for _ in range(2):
            vote = next(one for one in effects if isinstance(one, Send) and one.peer == 2)
            granted = VoteAnswer(NONE, NOBODY, self.quorum.epoch, is_granted=True)
            effects = self.step(Answered(2, vote.request, granted))
        self.step(Appended(6, ((3, 5),)), Flushed(6))
        return self

    def following(self, leader_id: int = 2, epoch: int = 3) -> Fetch:
        """Follows a leader; its first fetch is under way."""
        self.step(Started())
        effects = self.step(Asked(1, BeginEpoch(self.quorum.local, leader_id, epoch)))
        return fetch_in(effects)


def fetch_in(effects: list[Effect]) -> Fetch:
    (fetch,) = [one.request for one in effects if isinstance(one, Send) and isinstance(one.request, Fetch)]
    return fetch


def fetch(
    replica: VoterKey, end: LogPoint, *, epoch: int = 3, high_watermark: int = 0, wait_ms: int = 500
) -> Fetch:
    return Fetch(replica, epoch, end, high_watermark, wait_ms)


# --- starts ------------------------------------------------------------------------------------------------


def test_a_sole_voter_leads_at_once_and_says_who_votes() -> None:
    node = Node(voters=Voters.of((VoterKey(1),)), log=ReplicaLog())
    sole = Voters.of((VoterKey(1),))
    assert node.step(Started()) == [
        PersistQuorumState(QuorumState(1, 1, A.id, A.directory_id)),
        AppendLeaderChange(1, sole, (1,)),
        AppendVoters(1, Voters.of((A,))),
        Lead(1),
    ]
    assert node.quorum.deadline() is None
    assert node.quorum.may_decide
    assert node.step(Appended(1, ((1, 0),)), Appended(2, ((1, 1),), ((1, Voters.of((A,))),))) == []
    assert not node.quorum.is_active
    assert node.step(Flushed(2)) == [AdvanceHighWatermark(2)]
    assert node.quorum.is_active


def test_all_that_a_sole_voter_has_flushed_is_committed() -> None:
    sole = Voters.of((A,))
    log = ReplicaLog(end_offset=3, epochs=[(7, 0)], voters=[(1, sole)])
    assert Node(voters=sole, log=log).step(Started()) == [
        PersistQuorumState(QuorumState(1, 8, A.id, A.directory_id)),
        AdvanceHighWatermark(3),
        AppendLeaderChange(8, sole, (1,)),
        Lead(8),
    ]


def test_a_sole_voter_never_uses_an_epoch_twice() -> None:
    sole = Voters.of((A,))
    log = ReplicaLog(end_offset=2, epochs=[(7, 0)], voters=[(1, sole)])
    assert Node(voters=sole, log=log, state=QuorumState(1, 4)).step(Started())[0] == PersistQuorumState(
        QuorumState(1, 8, A.id, A.directory_id)
    ), "the log may know more than the file, when the file was lost"


def test_a_voter_that_comes_back_fetches_from_the_leader_that_it_knew() -> None:
    node = Node(state=QuorumState(leader_id=2, leader_epoch=3))
    assert node.step(Started()) == [Send(2, fetch(A, ENTRIES))]


def test_a_leader_that_comes_back_is_an_ordinary_voter() -> None:
    node = Node(state=QuorumState(1, 3, 1, A.directory_id))
    assert node.step(Started()) == []
    assert node.quorum.role.name == "unattached"


# --- elections ---------------------------------------------------------------------------------------------


def test_an_election() -> None:
    node = Node()
    assert node.step(Started()) == []
    asked = node.wake()
    assert asked == [
        Send(2, Vote(B, A, 2, ENTRIES, is_pre_vote=True)),
        Send(3, Vote(C, A, 2, ENTRIES, is_pre_vote=True)),
    ], "a pre-vote changes no epoch"
    assert isinstance(asked[0], Send)
    asked = node.step(Answered(2, asked[0].request, VoteAnswer(NONE, NOBODY, 2, is_granted=True)))
    assert asked == [
        PersistQuorumState(QuorumState(NOBODY, 3, A.id, A.directory_id)),
        Send(2, Vote(B, A, 3, ENTRIES, is_pre_vote=False)),
        Send(3, Vote(C, A, 3, ENTRIES, is_pre_vote=False)),
    ]
    assert isinstance(asked[2], Send)
    assert node.step(Answered(3, asked[2].request, VoteAnswer(NONE, NOBODY, 3, is_granted=True))) == [
        AppendLeaderChange(3, THREE, (1, 3)),
        Lead(3),
        Send(2, BeginEpoch(B, 1, 3)),
        Send(3, BeginEpoch(C, 1, 3)),
    ]


def test_a_vote_is_durable_before_it_is_told_and_is_given_once() -> None:
    node = Node()
    node.step(Started())
    assert node.step(Asked(7, Vote(A, B, 3, ENTRIES, is_pre_vote=False))) == [
        PersistQuorumState(QuorumState(NOBODY, 3, B.id, B.directory_id)),
        Reply(7, VoteAnswer(NONE, NOBODY, 3, is_granted=True)),
    ]
    assert node.step(Asked(8, Vote(A, C, 3, ENTRIES, is_pre_vote=False))) == [
        Reply(8, VoteAnswer(NONE, NOBODY, 3, is_granted=False))
    ]
    assert node.step(Asked(9, Vote(A, B, 3, ENTRIES, is_pre_vote=False))) == [
        Reply(9, VoteAnswer(NONE, NOBODY, 3, is_granted=True))
    ], "the first answer may have been lost"
    assert node.step(Asked(10, Vote(A, C, 2, ENTRIES, is_pre_vote=False))) == [
        Reply(10, VoteAnswer(ErrorCode.FENCED_LEADER_EPOCH, NOBODY, 3))
    ]


def test_a_vote_survives_a_restart() -> None:
    node = Node(state=QuorumState(NOBODY, 3, B.id, B.directory_id))
    node.step(Started())
    assert node.step(Asked(1, Vote(A, C, 3, ENTRIES, is_pre_vote=False))) == [
        Reply(1, VoteAnswer(NONE, NOBODY, 3, is_granted=False))
    ]


def test_nobody_votes_for_an_older_log() -> None:
    node = Node()
    node.step(Started())
    for end in (LogPoint(4, 2), LogPoint(9, 1)):
        assert node.step(Asked(1, Vote(A, B, 2, end, is_pre_vote=True))) == [
            Reply(1, VoteAnswer(NONE, NOBODY, 2, is_granted=False))
        ]
    assert node.step(Asked(2, Vote(A, B, 3, LogPoint(4, 2), is_pre_vote=False))) == [
        PersistQuorumState(QuorumState(leader_epoch=3)),
        Reply(2, VoteAnswer(NONE, NOBODY, 3, is_granted=False)),
    ]


def test_a_voter_that_lost_its_disk_is_not_that_voter() -> None:
    node = Node()
    node.step(Started())
    new_disk = VoterKey(2, b"\7" * 16)
    assert node.step(Asked(1, Vote(A, new_disk, 2, ENTRIES, is_pre_vote=True))) == [
        Reply(1, VoteAnswer(NONE, NOBODY, 2, is_granted=False))
    ]
    itself = Node(local=VoterKey(1, b"\7" * 16), log=ReplicaLog(), voters=NAMED)
    itself.step(Started())
    assert itself.step(Asked(1, Vote(A, B, 2, ENTRIES, is_pre_vote=False))) == [
        Reply(1, VoteAnswer(ErrorCode.INVALID_VOTER_KEY, NOBODY, 0))
    ]


def test_a_follower_that_hears_its_leader_grants_no_pre_vote() -> None:
    node = Node()
    under_way = node.following()
    assert node.step(Asked(2, Vote(A, C, 3, ENTRIES, is_pre_vote=True))) == [
        Reply(2, VoteAnswer(NONE, 2, 3, is_granted=False))
    ]
    node.step(Unanswered(2, under_way, is_refused=True))
    assert node.step(Asked(3, Vote(A, C, 3, ENTRIES, is_pre_vote=True))) == [
        Reply(3, VoteAnswer(NONE, 2, 3, is_granted=True))
    ], "it doubts its leader, too"


def test_the_first_election_needs_every_voter() -> None:
    node = Node(voters=NAMED, log=ReplicaLog())
    node.step(Started())
    asked = [one for one in node.wake() if isinstance(one, Send)]
    granted = VoteAnswer(NONE, NOBODY, 0, is_granted=True)
    assert node.step(Answered(2, asked[0].request, granted)) == []
    effects = node.step(Answered(3, asked[1].request, granted))
    assert effects[0] == PersistQuorumState(QuorumState(NOBODY, 1, A.id, A.directory_id))


def test_a_candidate_that_lost_waits_and_asks_for_pre_votes_again() -> None:
    node = Node()
    node.step(Started())
    asked = [one for one in node.wake() if isinstance(one, Send)]
    asked = [
        one
        for one in node.step(Answered(2, asked[0].request, VoteAnswer(NONE, NOBODY, 2, is_granted=True)))
        if isinstance(one, Send)
    ]
    assert node.step(Unanswered(2, asked[0].request, is_refused=True)) == []
    assert node.quorum.role.name == "candidate"
    assert node.step(Answered(3, asked[1].request, VoteAnswer(NONE, NOBODY, 3))) == []
    assert node.quorum.role.name == "unattached", "of those that can be reached, none is left"
    assert node.quorum.deadline() == node.now + 0.020
    assert node.wake()[0] == Send(2, Vote(B, A, 3, ENTRIES, is_pre_vote=True))


def test_a_candidate_follows_whoever_won() -> None:
    node = Node()
    node.step(Started())
    asked = [one for one in node.wake() if isinstance(one, Send)]
    node.step(Answered(2, asked[0].request, VoteAnswer(NONE, NOBODY, 2, is_granted=True)))
    assert node.quorum.role.name == "candidate"
    assert node.step(Asked(1, BeginEpoch(A, 3, 3))) == [
        Send(3, fetch(A, ENTRIES)),
        Reply(1, EpochAnswer(NONE, 3, 3)),
    ]


# --- the leader --------------------------------------------------------------------------------------------


def test_entries_of_earlier_epochs_are_committed_with_one_of_this_epoch() -> None:
    node = Node().elected()
    assert node.step(Asked(1, fetch(B, ENTRIES))) == [Reply(1, FetchAnswer(NONE, 1, 3, 0))]
    assert node.quorum.high_watermark == 0, "two of three have five entries, but none of epoch 3"
    assert node.step(Asked(2, fetch(B, LogPoint(6, 3)))) == [
        AdvanceHighWatermark(6),
        Reply(2, FetchAnswer(NONE, 1, 3, 6)),
    ]
    assert node.quorum.is_active


def test_a_fetch_waits_for_entries_or_for_the_high_watermark() -> None:
    node = Node().elected()
    assert node.step(Asked(1, fetch(B, LogPoint(6, 3)))) == [
        AdvanceHighWatermark(6),
        Reply(1, FetchAnswer(NONE, 1, 3, 6)),
    ]
    assert node.step(Asked(2, fetch(B, LogPoint(6, 3), high_watermark=6))) == []
    assert node.step(Asked(3, fetch(C, LogPoint(6, 3), high_watermark=6))) == []
    assert node.step(Appended(7, ((3, 6),))) == [
        Reply(2, FetchAnswer(NONE, 1, 3, 6)),
        Reply(3, FetchAnswer(NONE, 1, 3, 6)),
    ], "before the leader has flushed it"
    assert node.step(Asked(4, fetch(B, LogPoint(7, 3), high_watermark=6))) == []
    assert node.step(Flushed(7)) == [AdvanceHighWatermark(7), Reply(4, FetchAnswer(NONE, 1, 3, 7))]
    assert node.step(Asked(5, fetch(B, LogPoint(7, 3), high_watermark=7))) == []
    assert node.quorum.deadline() == node.now + 0.5
    assert node.wake() == [Reply(5, FetchAnswer(NONE, 1, 3, 7))]


def test_observers_are_served_and_never_counted() -> None:
    node = Node().elected()
    assert node.step(Asked(1, fetch(OBSERVER, LogPoint(6, 3), wait_ms=0))) == [
        Reply(1, FetchAnswer(NONE, 1, 3, 0))
    ]
    lost_disk = VoterKey(2, b"\7" * 16)
    node.step(Asked(2, fetch(lost_disk, LogPoint(6, 3), wait_ms=0)))
    assert node.quorum.high_watermark == 0


def test_only_so_many_observers_are_remembered() -> None:
    """Whoever reaches a controller may call itself by any id; consumers have none."""
    node = Node().elected()
    role = node.quorum.role
    assert isinstance(role, Leader)
    strangers = [VoterKey(100 + number, b"\7" * 16) for number in range(OBSERVERS_MAX)]
    for ticket, stranger in enumerate([OBSERVER, *strangers[:-1], OBSERVER, strangers[-1]]):
        node.step(Asked(ticket, fetch(stranger, LogPoint(6, 3), wait_ms=0)))
    assert list(role.observers) == [*strangers[1:-1], OBSERVER, strangers[-1]]
    node.step(Asked(0, fetch(VoterKey(-1), LogPoint(6, 3), wait_ms=0)))
    assert VoterKey(-1) not in role.observers
    node.now = Instant(node.now + OBSERVER_EXPIRY + 1)
    node.step(Asked(0, fetch(OBSERVER, LogPoint(6, 3), wait_ms=0)))
    assert list(role.observers) == [OBSERVER]


def test_fetches_of_another_epoch_are_refused() -> None:
    node = Node().elected()
    fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
    assert node.step(Asked(1, fetch(B, ENTRIES, epoch=2))) == [Reply(1, FetchAnswer(fenced, 1, 3, 0))]
    assert node.step(Asked(2, fetch(B, ENTRIES, epoch=4))) == [Reply(2, FetchAnswer(unknown, 1, 3, 0))]
    follower = Node()
    follower.following()
    assert follower.step(Asked(3, fetch(C, ENTRIES))) == [
        Reply(3, FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 3, 0))
    ]


def test_a_follower_that_diverged_is_told_where_and_does_not_count() -> None:
    node = Node().elected()
    assert node.step(Asked(1, fetch(B, LogPoint(9, 2)))) == [
        Reply(1, FetchAnswer(NONE, 1, 3, 0, divergence=LogPoint(5, 2)))
    ]
    assert node.quorum.high_watermark == 0


def test_a_follower_before_the_log_start_is_told_the_snapshot() -> None:
    log = ReplicaLog(
        start_offset=4,
        end_offset=5,
        epochs=[(2, 3)],
        snapshot=LogPoint(4, 2),
        voters=[(3, THREE)],
    )
    node = Node(log=log).elected()
    assert node.step(Asked(1, fetch(B, LogPoint(0, 0)))) == [
        Reply(1, FetchAnswer(NONE, 1, 3, 4, snapshot=LogPoint(4, 2)))
    ]
    assert node.step(Asked(2, FetchSnapshot(B, 3, LogPoint(4, 2), 0))) == [
        Reply(2, SnapshotAnswer(NONE, 1, 3))
    ]
    assert node.step(Asked(3, FetchSnapshot(B, 3, LogPoint(3, 2), 0))) == [
        Reply(3, SnapshotAnswer(ErrorCode.SNAPSHOT_NOT_FOUND, 1, 3))
    ]


def test_no_fetch_waits_for_days() -> None:
    """Whoever sent it may be gone."""
    node = Node().elected()
    node.step(Asked(1, fetch(B, LogPoint(6, 3))))
    asked = fetch(OBSERVER, LogPoint(6, 3), high_watermark=6, wait_ms=2**31 - 1)
    assert node.step(Asked(2, asked)) == []
    node.now = Instant(node.now + 10)
    effects = node.step(Asked(3, fetch(B, LogPoint(6, 3), high_watermark=6)))  # it goes on fetching
    assert effects == [Reply(2, FetchAnswer(NONE, 1, 3, 6))]


def test_the_first_leader_records_who_votes_when_all_have_fetched() -> None:
    node = Node(voters=NAMED, log=ReplicaLog())
    node.step(Started())
    asked = [one for one in node.wake() if isinstance(one, Send)]
    for epoch in (0, 1):
        granted = VoteAnswer(NONE, NOBODY, epoch, is_granted=True)
        effects = node.step(*(Answered(one.peer, one.request, granted) for one in asked))
        asked = [one for one in effects if isinstance(one, Send)]
    node.step(Appended(1, ((1, 0),)), Flushed(1))
    assert node.step(Asked(1, fetch(B, LogPoint(1, 1), epoch=1))) == []
    assert node.quorum.high_watermark == 0, "nothing is committed before"
    assert node.step(Asked(2, fetch(C, LogPoint(1, 1), epoch=1))) == [AppendVoters(1, THREE)]
    answers = node.step(Appended(2, ((1, 1),), ((1, THREE),)))
    assert answers == [Reply(1, FetchAnswer(NONE, 1, 1, 0)), Reply(2, FetchAnswer(NONE, 1, 1, 0))]
    node.step(Flushed(2))
    assert node.step(Asked(3, fetch(B, LogPoint(2, 1), epoch=1)))[0] == AdvanceHighWatermark(2)


def test_voters_that_do_not_fetch_are_told_again() -> None:
    node = Node().elected()
    node.step(Asked(1, fetch(B, LogPoint(6, 3), high_watermark=6)))
    node.now = Instant(node.now + 0.5)
    node.step(Asked(2, fetch(B, LogPoint(6, 3), high_watermark=6)))
    deadline = node.quorum.deadline()
    while node.now < 1.02:
        effects = node.wake()
    assert [one for one in effects if isinstance(one, Send)] == [Send(3, BeginEpoch(C, 1, 3))], deadline


def test_a_leader_without_a_majority_resigns() -> None:
    node = Node().elected()
    node.step(Asked(1, fetch(B, LogPoint(6, 3), high_watermark=6)))
    effects: list[Effect] = []
    while node.quorum.is_leader:
        effects = node.wake()
    assert node.now == 3.02
    assert effects == [
        StepDown(3),
        Send(2, EndEpoch(1, 3, (B, C))),
        Send(3, EndEpoch(1, 3, (B, C))),
    ]
    assert node.quorum.leader_id == NOBODY


def test_a_leader_that_sees_a_higher_epoch_steps_down_and_answers_who_waits() -> None:
    node = Node().elected()
    node.step(Asked(1, fetch(B, LogPoint(6, 3), high_watermark=6)))
    node.step(Asked(2, fetch(B, LogPoint(6, 3), high_watermark=6)))
    assert node.step(Asked(3, Vote(A, C, 5, LogPoint(6, 3), is_pre_vote=False))) == [
        StepDown(3),
        Reply(2, FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOBODY, 3, 6)),
        PersistQuorumState(QuorumState(NOBODY, 5, C.id, C.directory_id)),
        Reply(3, VoteAnswer(NONE, NOBODY, 5, is_granted=True)),
    ]


def test_a_leader_whose_disk_is_full_resigns() -> None:
    node = Node().elected()
    assert node.step(AppendFailed())[0] == StepDown(3)
    assert node.quorum.role.name == "resigned"


# --- followers ---------------------------------------------------------------------------------------------


def test_a_fetch_is_sent_when_what_was_fetched_before_is_durable() -> None:
    node = Node()
    under_way = node.following()
    answer = FetchAnswer(NONE, 2, 3, high_watermark=6, records=b"records")
    assert node.step(Answered(2, under_way, answer)) == [AppendFetched(b"records")]
    assert node.step(Appended(7, ((3, 5),))) == []
    assert node.step(Flushed(7)) == [
        AdvanceHighWatermark(6),
        Send(2, fetch(A, LogPoint(7, 3), high_watermark=6)),
    ]


def test_a_follower_truncates_where_it_parts_from_its_leader() -> None:
    node = Node(log=ReplicaLog(end_offset=8, epochs=[(1, 0), (2, 3)], voters=[(1, THREE)]))
    under_way = node.following()
    answer = FetchAnswer(NONE, 2, 3, 4, divergence=LogPoint(5, 2))
    assert node.step(Answered(2, under_way, answer)) == [Truncate(5), Send(2, fetch(A, ENTRIES))]


def test_nothing_committed_is_truncated() -> None:
    node = Node()
    under_way = node.following()
    effects = node.step(Answered(2, under_way, FetchAnswer(NONE, 2, 3, high_watermark=5)))
    answer = FetchAnswer(NONE, 2, 3, 4, divergence=LogPoint(3, 1))
    (failure,) = node.step(Answered(2, fetch_in(effects), answer))
    assert isinstance(failure, Fail)


def test_what_a_snapshot_holds_is_committed_from_the_start_on() -> None:
    snapshot = LogPoint(4, 2)
    node = Node(log=ReplicaLog(start_offset=4, end_offset=5, epochs=[(2, 3)], snapshot=snapshot))
    assert node.quorum.high_watermark == 4
    under_way = node.following()
    assert under_way.high_watermark == 4
    answer = FetchAnswer(NONE, 2, 3, 4, divergence=LogPoint(3, 1))
    (failure,) = node.step(Answered(2, under_way, answer))
    assert isinstance(failure, Fail)


def test_a_follower_fetches_a_snapshot_piece_by_piece() -> None:
    node = Node(log=ReplicaLog(), voters=NAMED)
    under_way = node.following()
    snapshot = LogPoint(20, 2)
    first = FetchSnapshot(A, 3, snapshot, 0)
    answer = FetchAnswer(NONE, 2, 3, 25, snapshot=snapshot)
    effects = node.step(Answered(2, under_way, answer))
    assert effects == [Send(2, first)]
    assert isinstance(effects[0], Send)
    effects = node.step(Answered(2, effects[0].request, SnapshotAnswer(NONE, 2, 3, 5, b"abc")))
    assert effects == [
        WriteSnapshot(snapshot, 0, b"abc", is_last=False),
        Send(2, FetchSnapshot(A, 3, snapshot, 3)),
    ]
    assert isinstance(effects[1], Send)
    effects = node.step(Answered(2, effects[1].request, SnapshotAnswer(NONE, 2, 3, 5, b"de")))
    assert effects == [WriteSnapshot(snapshot, 3, b"de", is_last=True)]
    assert node.step(SnapshotInstalled(snapshot, THREE)) == [
        AdvanceHighWatermark(20),
        Send(2, fetch(A, snapshot, high_watermark=20)),
    ]
    assert node.quorum.voters == THREE


def downloaded(node: Node, snapshot: LogPoint) -> None:
    """Follows node 2 in epoch 3, and has all of its snapshot."""
    effects = node.step(Answered(2, node.following(), FetchAnswer(NONE, 2, 3, 25, snapshot=snapshot)))
    assert isinstance(effects[0], Send)
    effects = node.step(Answered(2, effects[0].request, SnapshotAnswer(NONE, 2, 3, 3, b"abc")))
    assert effects == [WriteSnapshot(snapshot, 0, b"abc", is_last=True)]


def test_nothing_is_fetched_from_the_next_leader_while_a_snapshot_replaces_the_log() -> None:
    node, snapshot = Node(), LogPoint(20, 3)
    downloaded(node, snapshot)
    effects = node.step(Asked(1, BeginEpoch(A, 3, 4)))
    assert not any(isinstance(one, Send) for one in effects), "what it fetched would be lost with the log"
    assert node.step(SnapshotInstalled(snapshot, THREE)) == [
        AdvanceHighWatermark(20),
        Send(3, fetch(A, snapshot, epoch=4, high_watermark=20)),
    ]


def test_a_snapshot_that_cannot_be_installed_is_asked_for_again_whoever_leads() -> None:
    node, snapshot = Node(), LogPoint(20, 3)
    downloaded(node, snapshot)
    node.step(Asked(1, BeginEpoch(A, 3, 4)))
    assert node.step(SnapshotFailed()) == []
    assert node.wake() == [Send(3, fetch(A, ENTRIES, epoch=4))]


def test_a_piece_that_arrives_after_the_one_before_it_could_not_be_written_is_ignored() -> None:
    node, snapshot = Node(), LogPoint(20, 3)
    effects = node.step(Answered(2, node.following(), FetchAnswer(NONE, 2, 3, 25, snapshot=snapshot)))
    assert isinstance(effects[0], Send)
    _, again = node.step(Answered(2, effects[0].request, SnapshotAnswer(NONE, 2, 3, 6, b"abc")))
    assert isinstance(again, Send)
    node.step(SnapshotFailed())  # the disk is full
    assert node.step(Answered(2, again.request, SnapshotAnswer(NONE, 2, 3, 6, b"def"))) == []
    assert node.wake() == [Send(2, fetch(A, ENTRIES))]


def test_a_follower_whose_leader_is_gone_asks_for_pre_votes_after_20_ms() -> None:
    node = Node()
    under_way = node.following()
    again = node.step(Unanswered(2, under_way, is_refused=False))
    assert again == [Send(2, fetch(A, ENTRIES))], "the connection broke: is the process there?"
    assert node.step(Unanswered(2, fetch_in(again), is_refused=True)) == []
    assert node.quorum.deadline() == node.now + 0.020
    assert node.wake() == [
        Send(2, Vote(B, A, 3, ENTRIES, is_pre_vote=True)),
        Send(3, Vote(C, A, 3, ENTRIES, is_pre_vote=True)),
    ]


def test_a_follower_that_hears_nothing_asks_after_the_fetch_timeout() -> None:
    node = Node()
    node.following()
    assert node.quorum.deadline() == node.now + 2.0
    effects = node.wake()
    assert effects[0] == Send(2, Vote(B, A, 3, ENTRIES, is_pre_vote=True))
    asked = [one for one in effects if isinstance(one, Send)]
    refused = VoteAnswer(NONE, 2, 3)
    effects = node.step(*(Answered(one.peer, one.request, refused) for one in asked))
    assert effects == [Send(2, fetch(A, ENTRIES))], "the others hear the leader: it follows again"


def test_the_first_successor_stands_at_once_and_the_second_waits() -> None:
    node = Node()
    node.following()
    effects = node.step(Asked(5, EndEpoch(2, 3, (A, C))))
    assert effects == [
        Reply(5, EpochAnswer(NONE, 2, 3)),
        PersistQuorumState(QuorumState(NOBODY, 4, A.id, A.directory_id)),
        Send(2, Vote(B, A, 4, ENTRIES, is_pre_vote=False)),
        Send(3, Vote(C, A, 4, ENTRIES, is_pre_vote=False)),
    ]
    second = Node()
    second.following()
    assert second.step(Asked(5, EndEpoch(2, 3, (C, A)))) == [Reply(5, EpochAnswer(NONE, 2, 3))]
    assert second.quorum.deadline() == second.now + 0.120


def test_a_leader_that_stops_hands_over() -> None:
    node = Node().elected()
    node.step(Asked(1, fetch(C, LogPoint(6, 3), wait_ms=0)))
    effects = node.step(ShutdownBegan())
    assert effects == [
        StepDown(3),
        Send(3, EndEpoch(1, 3, (C, B))),
        Send(2, EndEpoch(1, 3, (C, B))),
    ]
    assert not node.quorum.has_handed_over
    asked = [one for one in effects if isinstance(one, Send)]
    node.step(Answered(3, asked[0].request, EpochAnswer(NONE, NOBODY, 3)))
    assert not node.quorum.has_handed_over
    node.step(Unanswered(2, asked[1].request, is_refused=True))
    assert node.quorum.has_handed_over
    while node.quorum.deadline() is not None:
        assert node.wake() == [], "it does not stand again"


# --- observers ---------------------------------------------------------------------------------------------


def test_an_observer_asks_the_voters_who_leads() -> None:
    node = Node(local=OBSERVER)
    effects = node.step(Started())
    assert effects == [Send(1, fetch(OBSERVER, ENTRIES, epoch=2))]
    nobody = FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOBODY, 2)
    assert node.step(Answered(1, fetch_in(effects), nobody)) == []
    effects = node.wake()
    assert effects == [Send(2, fetch(OBSERVER, ENTRIES, epoch=2))]
    told = FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 4)
    assert node.step(Answered(2, fetch_in(effects), told)) == [
        PersistQuorumState(QuorumState(3, 4)),
        Send(3, fetch(OBSERVER, ENTRIES, epoch=4)),
    ]
    assert node.quorum.role.name == "observer"
    assert node.step(Asked(1, Vote(OBSERVER, A, 5, ENTRIES, is_pre_vote=False)))[-1] == Reply(
        1, VoteAnswer(NONE, NOBODY, 5, is_granted=False)
    ), "it never votes"


def test_an_observer_asks_on_where_fetches_time_out_sooner_than_it_pauses() -> None:
    node = Node(local=OBSERVER, times=QuorumTimes(fetch_timeout_ms=500))
    effects = node.step(Started())
    asked = []
    for _ in range(12):
        asked.append(next(one for one in effects if isinstance(one, Send)))
        node.step(Unanswered(asked[-1].peer, asked[-1].request, is_refused=True))
        effects = node.wake()
    assert [one.peer for one in asked] == [1, 2, 3] * 4


def test_a_voter_that_lost_its_disk_becomes_an_observer() -> None:
    node = Node(local=VoterKey(1, b"\7" * 16), voters=NAMED, log=ReplicaLog())
    under_way = node.following()
    assert node.quorum.role.name == "follower"
    node.step(Answered(2, under_way, FetchAnswer(NONE, 2, 3, high_watermark=2, records=b"records")))
    node.step(Appended(2, ((1, 0),), ((1, THREE),)))
    assert node.quorum.role.name == "observer"
    assert node.step(Flushed(2))[0] == AdvanceHighWatermark(2)
