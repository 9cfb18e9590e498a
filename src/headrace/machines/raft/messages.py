"""Events and effects of the quorum, and the requests that voters and observers send to each other.

Events are facts that the driver reports to `Quorum.step`; effects are orders that it carries out, one after
the other. What follows a `PersistQuorumState` in the list waits until the file is durable: a vote, an epoch.

Requests and answers are Kafka's (Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot), without
topics and addresses. An answer always says the leader and the epoch that its sender knows.
"""

from typing import Any

from headrace.base.values import Value
from headrace.machines.raft.quorum_state import QuorumState
from headrace.machines.raft.replica_log import LogPoint
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.protocol.errors import ErrorCode

# --- requests and answers ----------------------------------------------------------------------------------


class Vote(Value):
    voter: VoterKey  # who is asked
    candidate: VoterKey
    epoch: int  # of a pre-vote: the present one, which asking does not change (KIP-996)
    end: LogPoint  # of the candidate's log
    is_pre_vote: bool


class VoteAnswer(Value):
    error: ErrorCode
    leader_id: int
    epoch: int
    is_granted: bool = False


class BeginEpoch(Value):
    voter: VoterKey
    leader_id: int
    epoch: int


class EndEpoch(Value):
    leader_id: int
    epoch: int
    successors: tuple[VoterKey, ...]  # the best first


class EpochAnswer(Value):
    """The answer to BeginEpoch and EndEpoch."""

    error: ErrorCode
    leader_id: int
    epoch: int


class Fetch(Value):
    replica: VoterKey
    epoch: int
    end: LogPoint  # of the replica's flushed log: where the fetch begins, and the epoch before
    high_watermark: int  # that the replica knows: a higher one is told at once
    wait_ms: int


class FetchAnswer(Value):
    """Without an error it is a point of divergence, or a snapshot to fetch first, or records."""

    error: ErrorCode
    leader_id: int
    epoch: int
    high_watermark: int = -1
    divergence: LogPoint | None = None
    snapshot: LogPoint | None = None
    records: Any = None  # filled in by the driver of the leader, from `Fetch.end` on; none: nothing is new


class FetchSnapshot(Value):
    replica: VoterKey
    epoch: int
    snapshot: LogPoint
    position: int  # in bytes


class SnapshotAnswer(Value):
    error: ErrorCode
    leader_id: int
    epoch: int
    size: int = 0  # of the whole snapshot, in bytes; this and the piece are filled in by the leader's driver
    piece: Any = None


Message = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot
Answer = VoteAnswer | EpochAnswer | FetchAnswer | SnapshotAnswer


# --- events ------------------------------------------------------------------------------------------------


class Started(Value):
    """The first event."""


class Woke(Value):
    """The moment of `deadline` has come."""


class Asked(Value):
    """A request arrived. Its answer is a `Reply` with the same ticket, now or later."""

    ticket: int
    request: Message


class Answered(Value):
    peer: int
    request: Message  # as it was sent
    answer: Answer


class Unanswered(Value):
    peer: int
    request: Message
    is_refused: bool  # nobody listens there: the process is gone. Otherwise it may have got the request


class Appended(Value):
    """Records were appended to the log of this node."""

    end_offset: int
    epochs: tuple[tuple[int, int], ...]  # of the records: each epoch, and the offset at which it begins
    voters: tuple[tuple[int, Voters], ...] = ()  # records among them that say who votes, with their offsets


class AppendFailed(Value):
    """The disk did not take the records of the last order to append; the log is as it was."""


class Flushed(Value):
    end_offset: int


class SnapshotMade(Value):
    """This node made a snapshot of its own log, which now begins at `start_offset`."""

    snapshot: LogPoint
    start_offset: int


class SnapshotInstalled(Value):
    """The leader's snapshot is whole and durable, and the log begins again at its end."""

    snapshot: LogPoint
    voters: Voters | None


class SnapshotFailed(Value):
    """A piece of the leader's snapshot could not be written, or the whole of it cannot be read."""


class ShutdownBegan(Value):
    """The node stops: a leader hands over to the voter that is the furthest."""


Event = (
    Started
    | Woke
    | Asked
    | Answered
    | Unanswered
    | Appended
    | AppendFailed
    | Flushed
    | SnapshotMade
    | SnapshotInstalled
    | SnapshotFailed
    | ShutdownBegan
)


# --- effects -----------------------------------------------------------------------------------------------


class PersistQuorumState(Value):
    """Write and sync the file before anything that follows is carried out."""

    state: QuorumState


class Send(Value):
    """Ends as `Answered` or `Unanswered`."""

    peer: int
    request: Message


class Reply(Value):
    ticket: int
    answer: Answer


class AppendLeaderChange(Value):
    """Append the first record of an epoch, at the end of the log; it ends as `Appended`."""

    epoch: int
    voters: Voters
    granting: tuple[int, ...]


class AppendVoters(Value):
    """Append who votes, now that the directory of every voter is known; it ends as `Appended`."""

    epoch: int
    voters: Voters


class AppendFetched(Value):
    """Append the leader's records, and flush them; it ends as `Appended` and then `Flushed`."""

    records: Any


class Truncate(Value):
    """Cut off the log at `end_offset`; what is behind was never committed."""

    end_offset: int


class WriteSnapshot(Value):
    """Write a piece of the leader's snapshot. After the last one, replace the log by it: it ends as
    `SnapshotInstalled`.
    """

    snapshot: LogPoint
    position: int
    piece: Any
    is_last: bool


class AdvanceHighWatermark(Value):
    """Everything before `offset` is committed: apply it."""

    offset: int


class Lead(Value):
    """This node leads in `epoch`: decide, and append. Nothing may be answered before it is committed."""

    epoch: int


class StepDown(Value):
    """This node leads no more: whoever waits for a commit is told so."""

    epoch: int


class Fail(Value):
    """Two nodes contradict each other about what is committed: this one must not go on."""

    reason: str


Effect = (
    PersistQuorumState
    | Send
    | Reply
    | AppendLeaderChange
    | AppendVoters
    | AppendFetched
    | Truncate
    | WriteSnapshot
    | AdvanceHighWatermark
    | Lead
    | StepDown
    | Fail
)
