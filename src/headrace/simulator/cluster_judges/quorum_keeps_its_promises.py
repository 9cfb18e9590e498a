"""Promises of Raft about the metadata quorum: votes, what a leader has, what it commits and when it decides.

The committed offset that is compared is the highest that any node has known.
"""

from bisect import bisect_right

from headrace.machines.raft.leader import Leader
from headrace.machines.raft.majority import majority_of
from headrace.machines.raft.replica_log import ReplicaLog
from headrace.machines.raft.voters import VoterKey
from headrace.node.metadata_files import METADATA_DIRECTORY
from headrace.node.node import Node
from headrace.simulator.history import PartitionKey, Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes

METADATA = PartitionKey(METADATA_DIRECTORY.rpartition("-")[0], bytes(16), 0)


class OneVotePerEpoch:
    """A voter that has told its vote gives no other one in the same epoch, whatever happens to it."""

    name = "one_vote_per_epoch"

    def __init__(self) -> None:
        self._votes: dict[tuple[VoterKey, int], VoterKey] = {}

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        metadata = node.controller.metadata
        quorum = metadata.quorum
        if not changes.has_quorum or quorum.voted is None or not metadata.is_settled:
            return  # what is not durable yet was not told
        first = self._votes.setdefault((quorum.local, quorum.epoch), quorum.voted)
        if first != quorum.voted:
            raise Violation(
                f"it votes for {quorum.voted.id} in epoch {quorum.epoch}, after one for {first.id}"
            )


class CommittedEntriesStay:
    """The leader of the newest epoch has every entry that is committed, with the same epoch; and a majority
    of the voters has each of them on its disk.
    """

    name = "committed_entries_stay"

    def __init__(self) -> None:
        self._end = 0  # of what is committed
        self._last_epoch = 0  # of the entry before
        self._newest_epoch = 0  # that has a leader
        self._notes = 0  # how often one of these has changed
        self._looked: dict[int, int] = {}  # by node: how often they had when it was looked at
        self._hosts: dict[int, Host] = {}

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        self._hosts[host.id] = host
        if not changes.has_quorum and self._looked.get(host.id) == self._notes:
            return
        known = (self._end, self._last_epoch, self._newest_epoch)
        self._look(node)
        self._notes += known != (self._end, self._last_epoch, self._newest_epoch)
        self._looked[host.id] = self._notes

    def _look(self, node: Node) -> None:
        quorum = node.controller.metadata.quorum
        log, end = quorum.log, quorum.high_watermark
        if end > self._end:
            self._check_durable(node, end)
            self._end, self._last_epoch = end, _epoch_before(log, end)
        elif end == self._end and end and _epoch_before(log, end) != self._last_epoch:
            raise Violation(
                f"its entry before {end} is committed with epoch {_epoch_before(log, end)}, and was with "
                f"epoch {self._last_epoch}"
            )
        if not quorum.is_leader or quorum.epoch < self._newest_epoch:
            return
        self._newest_epoch = quorum.epoch
        if log.end_offset < self._end or _epoch_before(log, self._end) != self._last_epoch:
            raise Violation(
                f"it leads the quorum in epoch {quorum.epoch} with a log that ends at {log.end}, but entries "
                f"are committed up to {self._end}, the last one of epoch {self._last_epoch}"
            )

    def _check_durable(self, node: Node, end: int) -> None:
        ids = node.controller.metadata.voter_ids
        holders = [id for id in ids if id in self._hosts and self._hosts[id].durable_end(METADATA) >= end]
        if len(holders) < majority_of(len(ids)):
            raise Violation(f"entries are committed up to {end}, which only {holders} of {ids} have on disk")


class LeadersCommitTheirOwnEpoch:
    """A quorum leader commits entries of earlier epochs only together with one of its own (Raft §5.4.2)."""

    name = "leaders_commit_their_own_epoch"

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, int]] = {}  # by node: its role, and its committed offset

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        if not changes.has_quorum:
            return
        quorum = node.controller.metadata.quorum
        role, end = quorum.role, quorum.high_watermark
        before, known_end = self._known.get(host.id, (None, 0))
        self._known[host.id] = (role, end)
        if not isinstance(role, Leader) or role is not before or end == known_end:
            return
        if end <= role.epoch_start_offset and role.followers:
            raise Violation(
                f"as the leader of epoch {quorum.epoch}, which begins at {role.epoch_start_offset}, it "
                f"commits entries up to {end}"
            )


class ControllersKnowAll:
    """A controller decides only when all that earlier ones may have decided is committed."""

    name = "controllers_know_all"

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        if not changes.has_quorum:
            return
        metadata = node.controller.metadata
        role = metadata.quorum.role
        if metadata.deciding_epoch < 0 or len(metadata.voter_ids) < 2:
            return
        if not isinstance(role, Leader):
            raise Violation(f"it decides in epoch {metadata.deciding_epoch}, but does not lead the quorum")
        if metadata.committed_offset < role.epoch_start_offset:
            raise Violation(
                f"it decides in epoch {metadata.deciding_epoch}, which begins at {role.epoch_start_offset}, "
                f"and knows entries only up to {metadata.committed_offset} as committed"
            )


def _epoch_before(log: ReplicaLog, offset: int) -> int:
    """The epoch of the entry before this offset; 0 where there is none."""
    number = bisect_right(log.epochs, offset - 1, key=lambda entry: entry[1])
    return log.epochs[number - 1][0] if number else 0
