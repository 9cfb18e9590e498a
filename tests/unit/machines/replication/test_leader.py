"""The leader's rules one by one: what raises the high watermark, who is in sync, what is proposed when."""

from __future__ import annotations

from headrace.base.ids import BrokerId, Epoch, Offset
from headrace.base.time import Instant
from headrace.machines.replication.leader import (
    Fact,
    IsrCommitted,
    IsrOutdated,
    IsrRejected,
    LocalEndMoved,
    LogDamaged,
    Order,
    PartitionChanged,
    PartitionLeader,
    ProposeIsr,
    RaiseHighWatermark,
    ReplicaFetched,
    Woke,
)

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH = Epoch(3)


class LeaderFixture:
    """Broker 1 leads; brokers 1, 2 and 3 are registered with epochs 11, 12 and 13."""

    def __init__(
        self,
        isr: tuple[int, ...] = (1, 2, 3),
        *,
        replicas: tuple[int, ...] = (1, 2, 3),
        high_watermark: int = 0,
        end: int = 0,
        min_insync_replicas: int = 1,
    ) -> None:
        self.live = {ONE: 11, TWO: 12, THREE: 13}
        self.now = 100.0
        self.leader = PartitionLeader(
            ONE,
            EPOCH,
            map(BrokerId, isr),
            Offset(high_watermark),
            start_offset=end,
            replicas=map(BrokerId, replicas),
            partition_epoch=5,
            min_insync_replicas=min_insync_replicas,
            lag_seconds=30.0,
            live=self.live,
            now=Instant(self.now),
        )
        self.step(LocalEndMoved(end))

    def step(self, fact: Fact, *, after: float = 0.0) -> list[Order]:
        self.now += after
        orders = self.leader.step(Instant(self.now), fact)
        self.leader.check()
        return orders

    def fetch(
        self,
        replica: BrokerId,
        offset: int,
        *,
        broker_epoch: int | None = None,
        leader_epoch: int = EPOCH,
        diverges: bool = False,
        log_start: int = 0,
        after: float = 0.0,
    ) -> list[Order]:
        epoch = self.live[replica] if broker_epoch is None else broker_epoch
        fetched = ReplicaFetched(replica, epoch, leader_epoch, offset, diverges, log_start)
        return self.step(fetched, after=after)


def raised(offset: int) -> RaiseHighWatermark:
    return RaiseHighWatermark(Offset(offset))


def proposed(partition_epoch: int, *isr: tuple[BrokerId, int]) -> ProposeIsr:
    return ProposeIsr(partition_epoch, isr)


def test_alone_the_own_end_is_the_high_watermark() -> None:
    fixture = LeaderFixture((1,), replicas=(1,))
    assert fixture.step(LocalEndMoved(7)) == [raised(7)]
    assert fixture.step(LocalEndMoved(7)) == []


def test_the_high_watermark_is_the_lowest_end_of_the_in_sync_replicas() -> None:
    fixture = LeaderFixture()
    assert fixture.step(LocalEndMoved(10)) == []
    assert fixture.fetch(TWO, 10) == []
    assert fixture.fetch(THREE, 4) == [raised(4)]
    assert fixture.fetch(THREE, 10) == [raised(10)]


def test_a_new_leader_starts_from_what_it_knows_as_committed_not_from_its_log_end() -> None:
    fixture = LeaderFixture(high_watermark=4, end=10)
    assert fixture.leader.high_watermark == 4
    assert not fixture.leader.has_reached_epoch_start
    fixture.fetch(TWO, 10)
    assert fixture.fetch(THREE, 10) == [raised(10)]
    assert fixture.leader.has_reached_epoch_start


def test_nothing_is_committed_while_fewer_than_min_insync_replicas_are_in_sync() -> None:
    fixture = LeaderFixture((1,), min_insync_replicas=2)
    assert fixture.step(LocalEndMoved(5)) == []
    assert fixture.fetch(TWO, 5) == [proposed(5, (ONE, 11), (TWO, 12))]
    assert fixture.step(IsrCommitted(5, 6, (ONE, TWO))) == [raised(5)]


class TestWhichFetchesCount:
    def test_not_one_of_another_leader_epoch(self) -> None:
        fixture = LeaderFixture((1, 2), replicas=(1, 2), end=5)
        assert fixture.fetch(TWO, 5, leader_epoch=2) == []
        assert fixture.fetch(TWO, 5, leader_epoch=-1) == []
        assert fixture.fetch(TWO, 5) == [raised(5)]

    def test_not_one_that_diverges(self) -> None:
        fixture = LeaderFixture((1, 2), replicas=(1, 2), end=5)
        assert fixture.fetch(TWO, 5, diverges=True) == []

    def test_not_one_of_a_broker_that_is_no_replica(self) -> None:
        fixture = LeaderFixture((1, 2), replicas=(1, 2), end=5)
        assert fixture.fetch(THREE, 5) == []

    def test_not_one_of_an_earlier_life(self) -> None:
        """Broker 2 lost power, and its records. A fetch from before arrives late."""
        fixture = LeaderFixture((1,), replicas=(1, 2), end=5)
        fixture.live[TWO] = 20
        assert fixture.fetch(TWO, 5, broker_epoch=12) == []
        assert fixture.fetch(TWO, 2, broker_epoch=20) == []
        assert fixture.fetch(TWO, 5, broker_epoch=12) == []

    def test_one_of_a_later_life_than_the_metadata_know_counts_but_joins_nothing(self) -> None:
        fixture = LeaderFixture((1,), replicas=(1, 2), end=5)
        assert fixture.fetch(TWO, 5, broker_epoch=20) == []
        fixture.live[TWO] = 20
        assert fixture.fetch(TWO, 5) == [proposed(5, (ONE, 11), (TWO, 20))]


class TestJoining:
    def test_at_the_high_watermark(self) -> None:
        fixture = LeaderFixture((1, 3), end=0)
        fixture.step(LocalEndMoved(10))
        fixture.fetch(THREE, 8)
        assert fixture.fetch(TWO, 7) == []
        assert fixture.fetch(TWO, 8) == [proposed(5, (ONE, 11), (TWO, 12), (THREE, 13))]

    def test_not_below_the_epochs_start(self) -> None:
        """The leader before may have committed up to there, and this one does not know it yet."""
        fixture = LeaderFixture((1, 3), high_watermark=4, end=10)
        assert fixture.fetch(TWO, 9) == []
        # of broker 3, which has not fetched yet, the leader knows no life
        assert fixture.fetch(TWO, 10) == [proposed(5, (ONE, 11), (TWO, 12), (THREE, -1))]

    def test_not_while_it_has_what_a_client_was_told_to_be_deleted(self) -> None:
        """It was down then. If it led next, the records would be there again."""
        fixture = LeaderFixture((1,), replicas=(1, 2), end=10)
        fixture.leader.deleted_before = 4
        assert fixture.fetch(TWO, 10, log_start=3) == []
        assert fixture.fetch(TWO, 10, log_start=4) == [proposed(5, (ONE, 11), (TWO, 12))]

    def test_not_while_it_is_fenced(self) -> None:
        fixture = LeaderFixture((1,), end=3)
        del fixture.live[TWO]
        assert fixture.fetch(TWO, 3, broker_epoch=12) == []

    def test_a_follower_that_is_about_to_join_holds_the_high_watermark_back(self) -> None:
        """Or it would never reach it under a steady load: alone, the leader commits what it appends."""
        fixture = LeaderFixture((1,), replicas=(1, 2), end=0)
        fixture.fetch(TWO, 0)
        fixture.step(IsrRejected(5))
        fixture.step(LocalEndMoved(5))
        assert fixture.fetch(TWO, 3) == [raised(3)]
        assert fixture.step(LocalEndMoved(8)) == []
        # it has stopped fetching: nobody waits for it for ever
        assert fixture.step(Woke(), after=31.0) == [raised(8)]


class TestLeaving:
    def test_after_the_time_in_which_it_did_not_catch_up(self) -> None:
        fixture = LeaderFixture(end=5)
        fixture.fetch(TWO, 5)
        fixture.fetch(THREE, 5)
        fixture.step(LocalEndMoved(9))
        assert fixture.leader.deadline() == 130.0
        fixture.fetch(THREE, 9, after=20.0)
        assert fixture.step(Woke()) == []
        assert fixture.step(Woke(), after=10.1) == [proposed(5, (ONE, 11), (THREE, 13))]
        assert fixture.step(Woke(), after=10.1) == []  # one proposal at a time

    def test_not_while_there_is_nothing_to_fetch(self) -> None:
        fixture = LeaderFixture(end=5)
        fixture.fetch(TWO, 5)
        fixture.fetch(THREE, 5)
        assert fixture.leader.deadline() is None
        assert fixture.step(Woke(), after=100.0) == []

    def test_not_one_that_is_always_a_little_behind_a_busy_leader(self) -> None:
        fixture = LeaderFixture((1, 2), replicas=(1, 2), end=0)
        for end in range(1, 200):
            fixture.fetch(TWO, end - 1, after=1.0)
            fixture.step(LocalEndMoved(end))
            fixture.fetch(TWO, end - 1)
            assert fixture.step(Woke()) == []

    def test_counts_until_the_controller_has_committed_it(self) -> None:
        fixture = LeaderFixture(end=5)
        fixture.fetch(TWO, 5)
        fixture.step(LocalEndMoved(9))
        fixture.fetch(TWO, 9, after=31.0)
        assert fixture.step(Woke()) == [proposed(5, (ONE, 11), (TWO, 12))]
        assert fixture.leader.high_watermark == 0
        assert fixture.step(IsrCommitted(5, 6, (ONE, TWO))) == [raised(9)]


class TestProposals:
    def joining(self) -> LeaderFixture:
        """Brokers 1 and 3 are in sync up to offset 9; broker 2 was proposed at offset 5."""
        fixture = LeaderFixture((1, 3), end=0)
        fixture.step(LocalEndMoved(9))
        fixture.fetch(THREE, 5)
        assert fixture.fetch(TWO, 5) == [proposed(5, (ONE, 11), (TWO, 12), (THREE, 13))]
        return fixture

    def test_a_proposed_replica_counts_at_once(self) -> None:
        fixture = self.joining()
        assert fixture.fetch(THREE, 9) == []
        assert fixture.fetch(TWO, 8) == [raised(8)]

    def test_committed_by_the_answer_and_then_told_by_the_metadata(self) -> None:
        fixture = self.joining()
        assert fixture.step(IsrCommitted(5, 6, (ONE, TWO, THREE))) == []
        assert fixture.leader.isr == {ONE, TWO, THREE}
        assert fixture.step(PartitionChanged(6, (ONE, TWO, THREE), (ONE, TWO, THREE))) == []

    def test_told_by_the_metadata_and_then_answered(self) -> None:
        fixture = self.joining()
        fixture.step(PartitionChanged(6, (ONE, TWO, THREE), (ONE, TWO, THREE)))
        assert fixture.leader.proposed is None
        fixture.step(IsrRejected(5))
        fixture.step(IsrCommitted(5, 6, (ONE, TWO, THREE)))
        assert fixture.leader.isr == {ONE, TWO, THREE}

    def test_rejected(self) -> None:
        fixture = self.joining()
        fixture.fetch(THREE, 9)
        del fixture.live[TWO]
        assert fixture.step(IsrRejected(5)) == [raised(9)]
        assert fixture.leader.maximal_isr == {ONE, THREE}

    def test_after_a_rejection_the_next_proposal_waits_a_little(self) -> None:
        fixture = self.joining()
        fixture.step(IsrRejected(5))
        assert fixture.fetch(TWO, 9) == []
        assert fixture.fetch(TWO, 9, after=0.6) == [proposed(5, (ONE, 11), (TWO, 12), (THREE, 13))]

    def test_outdated_it_counts_until_the_metadata_tell(self) -> None:
        """It may have been committed: the answer to the first attempt was lost, and this is the second's."""
        fixture = self.joining()
        fixture.fetch(THREE, 9)
        del fixture.live[TWO]  # nothing but the proposal makes it count
        assert fixture.step(IsrOutdated(5)) == []
        assert fixture.leader.maximal_isr == {ONE, TWO, THREE}
        assert fixture.step(PartitionChanged(7, (ONE, THREE), (ONE, TWO, THREE))) == [raised(9)]

    def test_a_rejection_is_not_final_while_another_copy_may_arrive(self) -> None:
        """The leader asks for what is committed already: that changes the partition epoch alone, and the copy
        is worth nothing after it.
        """
        fixture = self.joining()
        fixture.fetch(THREE, 9)
        del fixture.live[TWO]
        assert fixture.step(IsrRejected(5, is_final=False)) == [proposed(5, (ONE, 11), (THREE, 13))]
        assert fixture.leader.maximal_isr == {ONE, TWO, THREE}
        assert fixture.step(IsrCommitted(5, 6, (ONE, THREE))) == [raised(9)]

    def test_the_controllers_own_change_replaces_it(self) -> None:
        fixture = self.joining()
        fixture.fetch(THREE, 9)
        del fixture.live[TWO]
        assert fixture.step(PartitionChanged(6, (ONE, THREE), (ONE, THREE))) == [raised(9)]
        assert fixture.leader.proposed is None
        assert fixture.leader.followers.keys() == {THREE}


def test_the_high_watermark_never_falls() -> None:
    """A broker that comes back with a shorter log does not undo what was committed."""
    fixture = LeaderFixture((1, 2), replicas=(1, 2), end=9)
    assert fixture.fetch(TWO, 9) == [raised(9)]
    assert fixture.fetch(TWO, 3, broker_epoch=20) == []
    assert fixture.leader.high_watermark == 9


def test_a_leader_whose_log_is_damaged_proposes_the_others() -> None:
    fixture = LeaderFixture((1, 2), end=10)
    assert fixture.step(LogDamaged()) == [ProposeIsr(5, ((TWO, -1),))]
    assert fixture.leader.maximal_isr == {ONE, TWO}


def test_a_leader_whose_log_is_damaged_waits_for_somebody_who_can_lead() -> None:
    fixture = LeaderFixture((1,), end=10)
    assert fixture.step(LogDamaged()) == []
    assert fixture.step(ReplicaFetched(TWO, 12, EPOCH, 9)) == []
    assert ProposeIsr(5, ((TWO, 12),)) in fixture.step(ReplicaFetched(TWO, 12, EPOCH, 10))
