"""A vote is kept: a voter that died after its answer votes for no other candidate of the same epoch."""

from __future__ import annotations

import pytest

from harness.cluster_bugs import voter_forgets_its_vote
from harness.controllers import CLUSTER_ID, Controller, Controllers
from headrace.protocol.messages.vote import PartitionData, TopicData, VoteRequest


def directory_id(one: Controller) -> bytes:
    return one.metadata.quorum.local.directory_id


def asks(cluster: Controllers, voter: Controller, candidate: Controller, epoch: int) -> bool:
    """A candidate with a longer log than all others asks this voter, in an epoch."""
    asked = PartitionData(
        replica_epoch=epoch,
        replica_id=candidate.id,
        replica_directory_id=directory_id(candidate),
        voter_directory_id=directory_id(voter),
        last_offset_epoch=epoch - 1,
        last_offset=1_000_000,
    )
    topics = [TopicData(topic_name="__cluster_metadata", partitions=[asked])]
    request = VoteRequest(cluster_id=CLUSTER_ID, voter_id=voter.id, topics=topics)
    response = cluster.ask(voter, request, 2, seconds=0.01)
    return bool(response.topics[0].partitions[0].vote_granted)


def votes_after(how: str) -> list[bool]:
    """Votes of one voter in one epoch: for a candidate, for it again and for another one after a restart."""
    cluster = Controllers().start()
    epoch = cluster.elected().metadata.leader_epoch + 5
    voter, first, second = cluster.nodes.values()
    votes = [asks(cluster, voter, first, epoch)]
    voter.kill(how=how)
    voter.start()
    return [*votes, asks(cluster, voter, second, epoch), asks(cluster, voter, first, epoch)]


@pytest.mark.parametrize("how", ["killed", "lost"])
def test_a_vote_outlives_the_process_and_the_host(how: str) -> None:
    assert votes_after(how) == [True, False, True]


def test_a_planted_bug_is_caught() -> None:
    with voter_forgets_its_vote():
        assert votes_after("killed") == [True, True, False]
