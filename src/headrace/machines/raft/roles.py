"""The roles of a voter, one class each.

    unattached ── majority votes for us ──▶ leader ── higher epoch seen ──▶ unattached

With one voter, which is what there is now, its own vote is the majority: it becomes leader at every start, in
an epoch above all before it. More voters bring candidates and followers; what a leader may call committed is
the same.
"""

from collections.abc import Collection
from dataclasses import dataclass

from headrace.machines.raft.majority import majority_offset
from headrace.machines.raft.quorum_state import QuorumState


@dataclass(slots=True, frozen=True)
class Unattached:
    """Knows an epoch and no leader in it: where every voter begins."""

    epoch: int

    def stand(self, local: int, voters: Collection[int], end_offset: int) -> "Leader":
        """Ask for votes. The sole voter grants its own and leads at once; `end_offset` is its log's end.

        The quorum state of the result must be durable before anything is appended in its epoch.
        """
        assert set(voters) == {local}, "elections among several voters are not built yet"
        return Leader(local, self.epoch + 1, voters, end_offset)


class Leader:
    """Appends to the log, and knows what is committed.

    Invariant: high_watermark is either where it was before this epoch or past the first record of this epoch,
    for entries of earlier epochs are committed only together with one of ours (Raft §5.4.2). It never falls.
    """

    __slots__ = ("epoch", "epoch_start_offset", "high_watermark", "id", "voters")

    def __init__(self, local: int, epoch: int, voters: Collection[int], end_offset: int) -> None:
        self.id = local
        self.epoch = epoch
        self.epoch_start_offset = end_offset
        self.voters: dict[int, int] = dict.fromkeys(voters, 0)  # durable end offset of each
        self.high_watermark = 0

    def quorum_state(self) -> QuorumState:
        return QuorumState(leader_id=self.id, leader_epoch=self.epoch)

    def held_by(self, voter: int, end_offset: int) -> bool:
        """A voter holds the log durably up to `end_offset`; True when the high watermark rose."""
        self.voters[voter] = max(self.voters[voter], end_offset)
        held = majority_offset(self.voters.values())
        if held <= self.epoch_start_offset or held <= self.high_watermark:
            return False
        self.high_watermark = held
        return True


def recovered(state: QuorumState, last_epoch_in_log: int) -> Unattached:
    """A voter that comes back: the highest epoch of what it wrote down and what it had appended."""
    return Unattached(max(state.leader_epoch, last_epoch_in_log, 0))
