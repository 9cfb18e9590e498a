"""The verdict of `headrace cluster describe`, from what an admin client was told."""

from __future__ import annotations

from headrace.cli.cluster_health import ClusterHealth, health_of_partitions
from headrace.client.admin.cluster import Broker, Quorum, QuorumReplica
from headrace.client.admin.topics import PartitionDescription, TopicDescription
from headrace.client.cluster import Address

NOW_MS = 1_700_000_000_000


def topic(name: str, *partitions: tuple[int | None, list[int], list[int]]) -> TopicDescription:
    """A topic of (leader, replicas, ISR)."""
    described = [
        PartitionDescription(number, leader, 0, replicas, isr, [], [], [])
        for number, (leader, replicas, isr) in enumerate(partitions)
    ]
    return TopicDescription(name, "id", False, described)


def quorum(*silent: int) -> Quorum:
    voters = [
        QuorumReplica(id, "dir", 100 - 7 * (id in silent), NOW_MS - 60_000 * (id in silent), None)
        for id in (1, 2, 3)
    ]
    return Quorum(1, 5, 100, voters, [], {})


def health(
    *topics: TopicDescription,
    fenced: tuple[int, ...] = (),
    quorum: Quorum | None,
    adding: dict[tuple[str, int], int] | None = None,
) -> ClusterHealth:
    brokers = [Broker(id, Address("host", 9092), None, id in fenced) for id in (1, 2, 3)]
    live = [broker.broker_id for broker in brokers if not broker.is_fenced]
    partitions = health_of_partitions(topics, {"t": 2, "single": 2}, live, adding or {})
    return ClusterHealth("c", 1, quorum, brokers, partitions)


def test_everything_is_in_order() -> None:
    found = health(topic("t", (1, [1, 2, 3], [1, 2, 3])), quorum=quorum())
    assert (found.state, found.verdict) == ("healthy", "3 brokers, 1 partition, all replicas in sync")


def test_one_of_three_brokers_is_down() -> None:
    """Everything still works, so the cluster is degraded and not failing."""
    found = health(
        topic("t", (1, [1, 2, 3], [1, 3]), (3, [2, 3, 1], [3, 1])),
        fenced=(2,),
        quorum=quorum(2),
    )
    assert found.state == "degraded"
    assert found.verdict == (
        "2 of 2 partitions are under-replicated; "
        "broker 2 is fenced (stopped, or out of touch with the controller); "
        "voter 2 is not following the quorum's leader"
    )
    assert [one.states for one in found.partitions] == [["at min ISR", "under-replicated"]] * 2
    assert [found.lag(voter) for voter in quorum(2).voters] == [0, 7, 0]


def test_a_voter_whose_disk_was_replaced() -> None:
    """The node runs and follows, but the quorum knows it by its old directory."""
    told = quorum(2)
    told.observers.append(QuorumReplica(2, "new", 100, NOW_MS, None))
    found = health(quorum=told)
    assert found.state == "degraded"
    assert found.verdict == "voter 2 cannot vote: the metadata directory is new"


def test_writes_are_refused() -> None:
    found = health(topic("t", (1, [1, 2, 3], [1]), (None, [2, 3], [])), fenced=(2, 3), quorum=quorum())
    assert found.state == "failing"
    assert found.verdict.startswith(
        "1 of 2 partitions are without a leader; 2 of 2 partitions are under min ISR (acks=all writes are "
        "refused)"
    )


def test_a_leader_that_is_gone_does_not_lead() -> None:
    """The controller could not be reached to say so."""
    found = health(topic("t", (2, [2, 3], [2, 3])), fenced=(2,), quorum=None)
    assert found.state == "failing"
    assert found.partitions[0].is_offline


def test_a_topic_with_fewer_replicas_than_its_minimum_takes_writes() -> None:
    """The minimum is at most the number of replicas, as the broker itself takes it."""
    found = health(topic("single", (1, [1], [1])), quorum=quorum())
    assert found.state == "healthy"
    assert found.partitions[0].states == ["at min ISR"]


def test_a_replica_that_a_reassignment_adds_is_not_missing_yet() -> None:
    moving = topic("t", (1, [1, 2, 3], [1, 2]))
    assert health(moving, quorum=quorum(), adding={("t", 0): 1}).state == "healthy"
    assert health(moving, quorum=quorum()).state == "degraded"


def test_no_leader_of_the_quorum() -> None:
    found = health(topic("t", (1, [1, 2, 3], [1, 2, 3])), quorum=None)
    assert found.state == "failing"
    assert "no leader of the quorum answers" in found.verdict
