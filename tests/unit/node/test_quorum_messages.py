"""Responses of the quorum's requests, as the machine gets them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.machines.raft import messages as raft
from headrace.machines.raft.quorum_state import NOBODY
from headrace.machines.raft.replica_log import LogPoint
from headrace.node.quorum_messages import UNKNOWN_EPOCH, answer_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote

TOPIC = "__cluster_metadata"
FENCED = ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (vote.VoteResponse, raft.VoteAnswer),
        (begin_quorum_epoch.BeginQuorumEpochResponse, raft.EpochAnswer),
        (end_quorum_epoch.EndQuorumEpochResponse, raft.EpochAnswer),
        (fetch.FetchResponse, raft.FetchAnswer),
        (fetch_snapshot.FetchSnapshotResponse, raft.SnapshotAnswer),
    ],
)
def test_an_error_of_the_whole_response_tells_neither_leader_nor_epoch(response: Any, kind: Any) -> None:
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer_of(response(error_code=refused)) == kind(refused, NOBODY, UNKNOWN_EPOCH)


def test_each_field_of_a_vote_and_of_an_epoch() -> None:
    voted = vote.PartitionResult(error_code=FENCED, leader_id=2, leader_epoch=5, vote_granted=True)
    response = vote.VoteResponse(topics=[vote.TopicResult(topic_name=TOPIC, partitions=[voted])])
    assert answer_of(response) == raft.VoteAnswer(FENCED, 2, 5, is_granted=True)
    for module, kind in (
        (begin_quorum_epoch, begin_quorum_epoch.BeginQuorumEpochResponse),
        (end_quorum_epoch, end_quorum_epoch.EndQuorumEpochResponse),
    ):
        told = module.PartitionResult(error_code=FENCED, leader_id=2, leader_epoch=5)
        topic = module.TopicResult(topic_name=TOPIC, partitions=[told])
        assert answer_of(kind(topics=[topic])) == raft.EpochAnswer(FENCED, 2, 5)


def test_each_field_of_a_snapshots_piece() -> None:
    leader = fetch_snapshot.LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
    piece = fetch_snapshot.PartitionSnapshotResult(size=10, unaligned_records=b"piece", current_leader=leader)
    topic = fetch_snapshot.TopicSnapshotResult(name=TOPIC, partitions=[piece])
    response = fetch_snapshot.FetchSnapshotResponse(topics=[topic])
    assert answer_of(response) == raft.SnapshotAnswer(ErrorCode.NONE, 2, 5, 10, b"piece")
    piece.current_leader = None
    assert answer_of(response) == raft.SnapshotAnswer(ErrorCode.NONE, NOBODY, UNKNOWN_EPOCH, 10, b"piece")


def test_each_field_of_a_fetch() -> None:
    data = fetch.PartitionData(
        high_watermark=7,
        records=b"records",
        current_leader=fetch.LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
    )

    def answer() -> raft.Answer:
        topic = fetch.FetchableTopicResponse(topic=TOPIC, partitions=[data])
        return answer_of(fetch.FetchResponse(responses=[topic]))

    assert answer() == raft.FetchAnswer(ErrorCode.NONE, 2, 5, 7, records=b"records")
    data.records = b""
    data.diverging_epoch = fetch.EpochEndOffset(epoch=3, end_offset=4)
    assert answer() == raft.FetchAnswer(ErrorCode.NONE, 2, 5, 7, divergence=LogPoint(4, 3), records=b"")
    data.diverging_epoch = None
    data.snapshot_id = fetch.SnapshotId(end_offset=20, epoch=4)
    assert answer() == raft.FetchAnswer(ErrorCode.NONE, 2, 5, 7, snapshot=LogPoint(20, 4), records=b"")
