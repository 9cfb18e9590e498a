"""Judges of the play `quorum`: they look at what leaves a node, and at what it holds."""

from typing import TYPE_CHECKING, NoReturn

from headrace.machines.raft.voters import VoterKey
from headrace.simulator.history import History, JudgedWrong
from headrace.simulator.quorum.entries import Entry

if TYPE_CHECKING:
    from headrace.simulator.quorum.host import QuorumHost


class Judges:
    def __init__(self, history: History) -> None:
        self._history = history
        self.leaders: dict[int, int] = {}  # by epoch
        self.votes: dict[tuple[VoterKey, int], VoterKey] = {}  # by voter and epoch
        self.committed: list[Entry] = []
        self.high_watermarks: dict[int, int] = {}  # of each node's present life

    def led(self, host: "QuorumHost", epoch: int) -> None:
        other = self.leaders.setdefault(epoch, host.id)
        if other != host.id:
            self._object("one_leader_per_epoch", f"{other} and {host.id} lead epoch {epoch}")
        if host.entries[: len(self.committed)] != self.committed:
            self._object("committed_never_lost", f"leader {host.id} of epoch {epoch} lacks committed entries")

    def voted(self, voter: VoterKey, epoch: int, candidate: VoterKey) -> None:
        other = self.votes.setdefault((voter, epoch), candidate)
        if other != candidate:
            self._object(
                "one_vote_per_epoch", f"{voter.id} votes for {other.id} and {candidate.id} in {epoch}"
            )

    def advanced(self, host: "QuorumHost", offset: int) -> None:
        if offset < self.high_watermarks.get(host.id, 0):
            self._object("high_watermark_monotonic", f"of {host.id}, to {offset}")
        self.high_watermarks[host.id] = offset
        known = len(self.committed)
        if host.entries[: min(known, offset)] != self.committed[: min(known, offset)]:
            self._object("committed_never_lost", f"{host.id} has other entries before {offset}")
        self.committed += host.entries[known:offset]

    def failed(self, host: "QuorumHost", reason: str) -> None:
        """It found out by itself that its log contradicts that of others."""
        self._object("committed_never_lost", f"{host.id} fails: {reason}")

    def _object(self, judge: str, sentence: str) -> NoReturn:
        line = self._history.last_lines[-1] if self._history.last_lines else ""
        raise JudgedWrong(judge, sentence, self._history.count, line)
