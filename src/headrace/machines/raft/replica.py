"""What a node of the quorum knows in any role: its log, the epoch, the leader and its vote; and its orders.

Every order passes `emit`, which orders the epoch and the vote to be durable first, if they have changed.
So nothing that depends on them can leave before.
"""

from headrace.machines.raft.messages import (
    AdvanceHighWatermark,
    Answer,
    Effect,
    Message,
    PersistQuorumState,
    Reply,
    Send,
)
from headrace.machines.raft.quorum_state import NOBODY, QuorumState
from headrace.machines.raft.replica_log import ReplicaLog
from headrace.machines.raft.voters import VoterKey, Voters


class Replica:
    """Invariants: the high watermark never falls and is never past the flushed end; no entry of the log has a
    later epoch.
    """

    def __init__(self, local: VoterKey, configured: Voters, log: ReplicaLog, state: QuorumState) -> None:
        """`configured` are the voters as settings name them; what the log says about them counts more."""
        self.local = local
        self.log = log
        # a snapshot is made of committed entries only
        self.high_watermark = log.snapshot.end_offset if log.snapshot is not None else 0
        self.epoch = max(state.leader_epoch, log.last_epoch)
        self.leader_id = NOBODY  # of this epoch, if it is known
        self.voted: VoterKey | None = None  # in this epoch
        self.is_caught_up = False  # since the start: all that was committed at some moment is known here
        # A snapshot is whole, and the driver replaces the log by it. Whoever leads meanwhile, nothing is
        # fetched: that would be lost with the log, and a leader would count on it.
        self.is_installing = False
        self._configured = configured
        self._persisted = state
        self._effects: list[Effect] = []
        if state.leader_epoch == self.epoch:
            if state.voted_id != NOBODY:
                self.voted = VoterKey(state.voted_id, state.voted_directory_id)
            if state.leader_id != local.id:
                self.leader_id = state.leader_id

    @property
    def voters(self) -> Voters:
        return self.log.voters[-1][1] if self.log.voters else self._configured

    @property
    def is_voter(self) -> bool:
        return self.voters.has(self.local)

    @property
    def other_voters(self) -> tuple[VoterKey, ...]:
        return self.voters.but(self.local.id)

    def enter(self, epoch: int) -> None:
        self.epoch = epoch
        self.leader_id = NOBODY
        self.voted = None

    def advance(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.emit(AdvanceHighWatermark(offset))

    # --- orders --------------------------------------------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        self._persist()
        self._effects.append(effect)

    def send(self, peer: int, request: Message) -> None:
        self.emit(Send(peer, request))

    def reply(self, ticket: int, answer: Answer) -> None:
        self.emit(Reply(ticket, answer))

    def take_effects(self) -> list[Effect]:
        self._persist()
        effects, self._effects = self._effects, []
        return effects

    def _persist(self) -> None:
        """Order to write the epoch and the vote, if they are not written yet. The leader of an epoch goes
        along, but alone it is not worth a sync: it can be asked for again.
        """
        voted = self.voted or VoterKey(NOBODY)
        before = self._persisted
        if (before.leader_epoch, before.voted_id, before.voted_directory_id) != (self.epoch, *voted):
            self._persisted = QuorumState(self.leader_id, self.epoch, voted.id, voted.directory_id)
            self._effects.append(PersistQuorumState(self._persisted))

    def check(self) -> None:
        self.log.check()
        assert self.high_watermark <= self.log.flushed_offset
        assert self.epoch >= self.log.last_epoch
        assert self._persisted.leader_epoch == self.epoch
        assert self._persisted.voted_id == (self.voted.id if self.voted is not None else NOBODY)
