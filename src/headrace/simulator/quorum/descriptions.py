"""Effects of a node of the quorum as text, for the trace of a run."""

from collections.abc import Iterable

from headrace.machines.raft.messages import (
    AdvanceHighWatermark,
    Answer,
    AppendFetched,
    AppendLeaderChange,
    AppendVoters,
    BeginEpoch,
    Effect,
    EndEpoch,
    EpochAnswer,
    Fail,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Lead,
    Message,
    PersistQuorumState,
    Reply,
    Send,
    SnapshotAnswer,
    StepDown,
    Truncate,
    Vote,
    VoteAnswer,
    WriteSnapshot,
)
from headrace.machines.raft.quorum_state import NOBODY
from headrace.machines.raft.replica_log import LogPoint
from headrace.protocol.errors import ErrorCode


def describe(effect: Effect) -> str:
    match effect:
        case PersistQuorumState(state):
            leader = f", leader {state.leader_id}" if state.leader_id != NOBODY else ""
            vote = f", vote for {state.voted_id}" if state.voted_id != NOBODY else ""
            return f"persists epoch {state.leader_epoch}{leader}{vote}"
        case Send(peer, request):
            return f"to {peer}: {_asked(request)}"
        case Reply(ticket, answer):
            return f"answers {ticket}: {_answered(answer)}"
        case AppendLeaderChange(epoch, voters, granting):
            return f"begins epoch {epoch} of {_ids(voters.ids)}, granted by {_ids(granting)}"
        case AppendVoters(_, voters):
            return f"records the voters {_ids(voters.ids)}"
        case AppendFetched(records):
            return f"appends {len(records)} fetched"
        case Truncate(end_offset):
            return f"truncates to {end_offset}"
        case WriteSnapshot(snapshot, position, _, is_last):
            return f"writes snapshot {snapshot.end_offset} from {position}{', the end' if is_last else ''}"
        case AdvanceHighWatermark(offset):
            return f"high watermark {offset}"
        case Lead(epoch):
            return f"leads epoch {epoch}"
        case StepDown(epoch):
            return f"steps down from epoch {epoch}"
        case Fail(reason):
            return f"fails: {reason}"


def _asked(request: Message) -> str:
    match request:
        case Vote(voter, candidate, epoch, end, is_pre_vote):
            kind = "pre-vote" if is_pre_vote else "vote"
            return f"a {kind} of {voter.id} for {candidate.id} in epoch {epoch}, log to {_point(end)}?"
        case BeginEpoch(voter, leader_id, epoch):
            return f"{voter.id}, {leader_id} leads epoch {epoch}"
        case EndEpoch(leader_id, epoch, successors):
            return f"{leader_id} leads epoch {epoch} no more, then {_ids(key.id for key in successors)}"
        case Fetch(_, epoch, end, high_watermark, wait_ms):
            return f"in epoch {epoch}, what follows {_point(end)} or {high_watermark}, within {wait_ms} ms?"
        case FetchSnapshot(_, epoch, snapshot, position):
            return f"in epoch {epoch}, snapshot {_point(snapshot)} from {position}?"


def _answered(answer: Answer) -> str:
    error = f"{answer.error.name}, " if answer.error is not ErrorCode.NONE else ""
    leader = "nobody" if answer.leader_id == NOBODY else str(answer.leader_id)
    told = f"{error}{leader} leads epoch {answer.epoch}"
    match answer:
        case VoteAnswer():
            return f"{'yes' if answer.is_granted else 'no'}, {told}"
        case EpochAnswer() | SnapshotAnswer():
            return told
        case FetchAnswer():
            told += f", high watermark {answer.high_watermark}"
            if answer.divergence is not None:
                told += f", same up to {_point(answer.divergence)}"
            if answer.snapshot is not None:
                told += f", first snapshot {_point(answer.snapshot)}"
            return told


def _point(point: LogPoint) -> str:
    return f"{point.end_offset} of epoch {point.epoch}"


def _ids(ids: Iterable[int]) -> str:
    return " ".join(map(str, ids))
