"""Who may lead when somebody asks for an election; one partition with three replicas."""

from __future__ import annotations

import pytest

from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.elect_leaders import ElectedPartition, Election
from headrace.machines.metadata.image import NO_LEADER
from headrace.protocol.errors import ErrorCode
from unit.machines.metadata.cluster import Cluster

PREFERRED, UNCLEAN = Election


def cluster_with_partition(*, leader: int, isr: tuple[int, ...], fenced: tuple[int, ...] = ()) -> Cluster:
    cluster = Cluster(3, features={})
    cluster.apply(cluster.controller.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})]))
    cluster.change(leader=leader, isr=list(isr))
    cluster.mark_fenced(*fenced)
    return cluster


def elect(cluster: Cluster, election: Election) -> ElectedPartition:
    (result,) = cluster.apply(cluster.controller.elect_leaders(election, [("t", 0)]))
    return result


@pytest.mark.parametrize(
    ("election", "leader", "isr", "fenced", "code", "then"),
    [
        (PREFERRED, 1, (1, 2, 3), (), ErrorCode.ELECTION_NOT_NEEDED, 1),
        (PREFERRED, 2, (1, 2, 3), (), ErrorCode.NONE, 1),
        (PREFERRED, 2, (2, 3), (), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
        (PREFERRED, 2, (1, 2), (1,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
        (UNCLEAN, 2, (2,), (), ErrorCode.ELECTION_NOT_NEEDED, 2),
        (UNCLEAN, NO_LEADER, (3,), (), ErrorCode.NONE, 3),
        (UNCLEAN, NO_LEADER, (3,), (1, 3), ErrorCode.NONE, 2),
        (UNCLEAN, NO_LEADER, (3,), (1, 2, 3), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_LEADER),
    ],
)
def test_elections(
    election: Election, leader: int, isr: tuple[int, ...], fenced: tuple[int, ...], code: int, then: int
) -> None:
    cluster = cluster_with_partition(leader=leader, isr=isr, fenced=fenced)
    epoch = cluster.partition().leader_epoch
    assert elect(cluster, election).error == code
    assert cluster.partition().leader == then
    assert cluster.partition().leader_epoch == epoch + (then != leader)


def test_who_was_not_in_sync_and_leads_is_all_of_the_isr_and_recovers() -> None:
    cluster = cluster_with_partition(leader=NO_LEADER, isr=(3,), fenced=(3,))
    elect(cluster, UNCLEAN)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 1)
    assert cluster.unclean == ["t-0"]


def test_asked_for_twice_it_is_elected_once() -> None:
    cluster = cluster_with_partition(leader=2, isr=(1, 2, 3))
    epoch = cluster.partition().leader_epoch
    results = cluster.apply(cluster.controller.elect_leaders(PREFERRED, [("t", 0), ("t", 0)]))
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.NONE]
    assert cluster.partition().leader_epoch == epoch + 1
