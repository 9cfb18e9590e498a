"""Requests of the metadata quorum on the wire, and what the machine in `machines/raft` makes of them.

Kafka's messages name topics and partitions; the quorum has one of each, partition 0 of `__cluster_metadata`.
A request that names anything else is malformed, and so is an answer. Answers with an error of the whole
request (another cluster, no right) tell nothing about epochs.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from headrace.base.ids import METADATA_TOPIC_ID
from headrace.machines.raft import messages as raft
from headrace.machines.raft.quorum_state import NOBODY
from headrace.machines.raft.replica_log import LogPoint
from headrace.machines.raft.voters import VoterKey
from headrace.node.metadata_files import METADATA_TOPIC
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote
from headrace.protocol.notation import Request

UNKNOWN_EPOCH = -1

P = TypeVar("P")


class Malformed(Exception):
    """The message does not name the one partition of the quorum, or leaves something out."""


class Topic(Protocol[P]):
    @property
    def partitions(self) -> list[P]: ...


def the_partition(topics: Sequence[Topic[P]]) -> P:
    """The only partition of the only topic; which topic it is says its name or id."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise Malformed("one topic with one partition is expected")
    topic = topics[0]
    named = (
        getattr(topic, "topic_name", None) or getattr(topic, "name", None) or getattr(topic, "topic", None)
    )
    if (named or METADATA_TOPIC) != METADATA_TOPIC:
        raise Malformed(f"topic {named} does not belong to the quorum")
    if getattr(topic, "topic_id", METADATA_TOPIC_ID) not in (METADATA_TOPIC_ID, bytes(16)):
        raise Malformed("the topic id is not that of the metadata log")
    return topic.partitions[0]


# --- what this node sends ----------------------------------------------------------------------------------


def request_of(
    message: raft.Message, cluster_id: str, *, fetch_bytes_max: int, piece_bytes_max: int
) -> Request:
    match message:
        case raft.Vote(voter, candidate, epoch, end, is_pre_vote):
            return vote.VoteRequest(
                cluster_id=cluster_id,
                voter_id=voter.id,
                topics=[
                    vote.TopicData(
                        topic_name=METADATA_TOPIC,
                        partitions=[
                            vote.PartitionData(
                                replica_epoch=epoch,
                                replica_id=candidate.id,
                                replica_directory_id=candidate.directory_id,
                                voter_directory_id=voter.directory_id,
                                last_offset_epoch=end.epoch,
                                last_offset=end.end_offset,
                                pre_vote=is_pre_vote,
                            )
                        ],
                    )
                ],
            )
        case raft.BeginEpoch(voter, leader_id, epoch):
            begun = begin_quorum_epoch.PartitionData(
                voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
            )
            return begin_quorum_epoch.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=voter.id,
                topics=[begin_quorum_epoch.TopicData(topic_name=METADATA_TOPIC, partitions=[begun])],
            )
        case raft.EndEpoch(leader_id, epoch, successors):
            ended = end_quorum_epoch.PartitionData(
                leader_id=leader_id,
                leader_epoch=epoch,
                preferred_candidates=[
                    end_quorum_epoch.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                    for key in successors
                ],
            )
            return end_quorum_epoch.EndQuorumEpochRequest(
                cluster_id=cluster_id,
                topics=[end_quorum_epoch.TopicData(topic_name=METADATA_TOPIC, partitions=[ended])],
            )
        case raft.Fetch(replica, epoch, end, high_watermark, wait_ms):
            return fetch.FetchRequest(
                cluster_id=cluster_id,
                replica_state=fetch.ReplicaState(replica_id=replica.id),
                max_wait_ms=wait_ms,
                max_bytes=fetch_bytes_max,
                topics=[
                    fetch.FetchTopic(
                        topic_id=METADATA_TOPIC_ID,
                        partitions=[
                            fetch.FetchPartition(
                                current_leader_epoch=epoch,
                                fetch_offset=end.end_offset,
                                last_fetched_epoch=end.epoch,
                                partition_max_bytes=fetch_bytes_max,
                                replica_directory_id=replica.directory_id,
                                high_watermark=high_watermark,
                            )
                        ],
                    )
                ],
            )
        case raft.FetchSnapshot(replica, epoch, snapshot, position):
            piece = fetch_snapshot.PartitionSnapshot(
                current_leader_epoch=epoch,
                snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
                position=position,
                replica_directory_id=replica.directory_id,
            )
            return fetch_snapshot.FetchSnapshotRequest(
                cluster_id=cluster_id,
                replica_id=replica.id,
                max_bytes=piece_bytes_max,
                topics=[fetch_snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=[piece])],
            )


def answer_of(response: Any) -> raft.Answer:
    """What a response says. Malformed: it is not one that a node of the quorum gives."""
    if response.error_code != ErrorCode.NONE:
        return _failed(response, ErrorCode(response.error_code))
    match response:
        case vote.VoteResponse():
            voted = the_partition(response.topics)
            return raft.VoteAnswer(
                ErrorCode(voted.error_code), voted.leader_id, voted.leader_epoch, voted.vote_granted
            )
        case begin_quorum_epoch.BeginQuorumEpochResponse() | end_quorum_epoch.EndQuorumEpochResponse():
            told = the_partition(response.topics)  # type: ignore[misc]
            return raft.EpochAnswer(ErrorCode(told.error_code), told.leader_id, told.leader_epoch)
        case fetch.FetchResponse():
            return _fetched(the_partition(response.responses))
        case fetch_snapshot.FetchSnapshotResponse():
            piece = the_partition(response.topics)
            leader = piece.current_leader
            return raft.SnapshotAnswer(
                ErrorCode(piece.error_code),
                leader.leader_id if leader is not None else NOBODY,
                leader.leader_epoch if leader is not None else UNKNOWN_EPOCH,
                piece.size,
                _copied(piece.unaligned_records),
            )
        case _:
            raise Malformed(f"{type(response).__name__} is not an answer in the quorum")


def _failed(response: Any, error: ErrorCode) -> raft.Answer:
    match response:
        case vote.VoteResponse():
            return raft.VoteAnswer(error, NOBODY, UNKNOWN_EPOCH)
        case fetch.FetchResponse():
            return raft.FetchAnswer(error, NOBODY, UNKNOWN_EPOCH)
        case fetch_snapshot.FetchSnapshotResponse():
            return raft.SnapshotAnswer(error, NOBODY, UNKNOWN_EPOCH)
        case _:
            return raft.EpochAnswer(error, NOBODY, UNKNOWN_EPOCH)


def _fetched(data: fetch.PartitionData) -> raft.FetchAnswer:
    leader, diverging, snapshot = data.current_leader, data.diverging_epoch, data.snapshot_id
    return raft.FetchAnswer(
        ErrorCode(data.error_code),
        leader.leader_id if leader is not None else NOBODY,
        leader.leader_epoch if leader is not None else UNKNOWN_EPOCH,
        data.high_watermark,
        LogPoint(diverging.end_offset, diverging.epoch)
        if diverging is not None and diverging.epoch >= 0
        else None,
        LogPoint(snapshot.end_offset, snapshot.epoch)
        if snapshot is not None and snapshot.end_offset >= 0
        else None,
        _copied(data.records),
    )


def _copied(records: Any) -> bytes:
    """They are views of a buffer that is used again."""
    return b"" if records is None else bytes(records)


# --- what this node receives -------------------------------------------------------------------------------


def vote_of(body: vote.VoteRequest, local_id: int) -> raft.Vote:
    asked = the_partition(body.topics)
    voter_id = body.voter_id if body.voter_id >= 0 else local_id  # version 0 does not say
    return raft.Vote(
        VoterKey(voter_id, asked.voter_directory_id),
        VoterKey(asked.replica_id, asked.replica_directory_id),
        asked.replica_epoch,
        LogPoint(asked.last_offset, asked.last_offset_epoch),
        asked.pre_vote,
    )


def begin_of(body: begin_quorum_epoch.BeginQuorumEpochRequest, local_id: int) -> raft.BeginEpoch:
    begun = the_partition(body.topics)
    voter_id = body.voter_id if body.voter_id >= 0 else local_id
    return raft.BeginEpoch(VoterKey(voter_id, begun.voter_directory_id), begun.leader_id, begun.leader_epoch)


def end_of(body: end_quorum_epoch.EndQuorumEpochRequest) -> raft.EndEpoch:
    ended = the_partition(body.topics)
    successors = [
        VoterKey(one.candidate_id, one.candidate_directory_id) for one in ended.preferred_candidates
    ]
    return raft.EndEpoch(ended.leader_id, ended.leader_epoch, tuple(successors))


def fetch_of(body: fetch.FetchRequest) -> raft.Fetch:
    asked = the_partition(body.topics)
    replica_id = body.replica_state.replica_id if body.replica_state is not None else body.replica_id
    return raft.Fetch(
        VoterKey(replica_id, asked.replica_directory_id),
        asked.current_leader_epoch,
        LogPoint(asked.fetch_offset, max(asked.last_fetched_epoch, 0)),
        asked.high_watermark,
        max(body.max_wait_ms, 0),
    )


def fetch_snapshot_of(body: fetch_snapshot.FetchSnapshotRequest) -> raft.FetchSnapshot:
    asked = the_partition(body.topics)
    return raft.FetchSnapshot(
        VoterKey(body.replica_id, asked.replica_directory_id),
        asked.current_leader_epoch,
        LogPoint(asked.snapshot_id.end_offset, asked.snapshot_id.epoch),
        asked.position,
    )
