"""Leader, ISR and ELR of one partition, by KIP-966's rules; replicas 1, 2, 3, min.insync.replicas 2."""

from __future__ import annotations

import pytest

from headrace.machines.metadata.controller.leadership import (
    RECOVERING,
    Preference,
    change_record,
    settled,
)
from headrace.machines.metadata.controller.topic_rules import TopicRules
from headrace.machines.metadata.image import NO_LEADER, PartitionState, changed_partition
from headrace.protocol.metadata_records import PartitionChangeRecord

TOPIC = b"t" * 16


def partition(
    leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), last: tuple[int, ...] = ()
) -> PartitionState:
    return PartitionState(
        replicas=(1, 2, 3),
        isr=isr,
        leader=leader,
        leader_epoch=5,
        partition_epoch=9,
        directories=(bytes(16),) * 3,
        eligible_leader_replicas=elr,
        last_known_elr=last,
    )


def settle(
    before: PartitionState,
    isr: tuple[int, ...],
    live: set[int],
    *,
    lost: tuple[int, ...] = (),
    min_isr: int = 2,
    unclean: bool = False,
    tracks: bool = True,
    preference: Preference = Preference.PRESENT,
) -> tuple[PartitionState, bool]:
    rules = TopicRules(min_isr, allows_unclean=unclean, tracks_eligible=tracks)
    after, is_unclean = settled(before, isr, rules, live.__contains__, lost=lost, preference=preference)
    replayed = changed_partition(before, change_record(TOPIC, 0, before, after))
    after.partition_epoch += 1
    assert replayed == after, "the record says all of it"
    return after, is_unclean


def summary(state: PartitionState) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return state.leader, state.isr, state.eligible_leader_replicas, state.last_known_elr


@pytest.mark.parametrize(
    ("before", "isr", "live", "then"),
    [
        # the leader goes on
        (partition(2, (1, 2, 3)), (2, 3), {2, 3}, (2, (2, 3), (), ())),
        # the leader is gone: the first replica in sync
        (partition(1, (1, 2, 3)), (2, 3), {2, 3}, (2, (2, 3), (), ())),
        # too few in sync: who leaves is eligible
        (partition(1, (1, 2)), (2,), {2, 3}, (2, (2,), (1,), ())),
        # none in sync: both are eligible, the last leader is remembered
        (partition(2, (2,), (1,)), (), {3}, (NO_LEADER, (), (1, 2), (2,))),
        # one that is eligible comes back
        (partition(NO_LEADER, (), (1, 2), (2,)), (), {1, 3}, (1, (1,), (2,), ())),
        # enough in sync: nobody is eligible only
        (partition(1, (1,), (2,)), (1, 3), {1, 3}, (1, (1, 3), (), ())),
        # a replica that was never in sync leads nothing
        (partition(NO_LEADER, (), (1, 2), (2,)), (), {3}, (NO_LEADER, (), (1, 2), (2,))),
    ],
)
def test_clean_elections(
    before: PartitionState, isr: tuple[int, ...], live: set[int], then: tuple[object, ...]
) -> None:
    after, is_unclean = settle(before, isr, live)
    assert summary(after) == then
    assert not is_unclean
    assert after.leader_epoch == 5 + (after.leader != before.leader)


def test_a_replica_that_may_have_lost_records_is_not_eligible() -> None:
    after, _ = settle(partition(2, (2,), (1,)), (), {1, 3}, lost=(1, 2))
    assert summary(after) == (NO_LEADER, (), (), (2,))


def test_the_last_known_leader_is_taken_when_nobody_is_eligible_and_that_is_unclean() -> None:
    after, is_unclean = settle(partition(NO_LEADER, (), (), (2,)), (), {1, 2})
    assert is_unclean
    assert summary(after) == (2, (2,), (), ())
    assert after.leader_recovery_state == RECOVERING


def test_an_unclean_election_needs_the_topics_permission() -> None:
    before = partition(NO_LEADER, (), (2,), (2,))
    assert settle(before, (), {1, 3})[0].leader == NO_LEADER
    after, is_unclean = settle(before, (), {1, 3}, unclean=True)
    assert is_unclean
    assert summary(after) == (1, (1,), (), ())
    assert after.leader_recovery_state == RECOVERING


def test_a_clean_leader_is_preferred_to_an_unclean_one() -> None:
    after, is_unclean = settle(partition(NO_LEADER, (), (3,), (3,)), (), {1, 3}, unclean=True)
    assert (after.leader, is_unclean) == (3, False)


def test_without_the_feature_the_last_in_sync_stays_in_sync() -> None:
    after, _ = settle(partition(1, (1,)), (), {2, 3}, tracks=False)
    assert summary(after) == (NO_LEADER, (1,), (), ())
    again, _ = settle(after, (1,), {1, 2}, tracks=False)
    assert summary(again) == (1, (1,), (), ())


def test_min_insync_replicas_above_the_number_of_replicas_counts_as_all() -> None:
    after, _ = settle(partition(1, (1, 2, 3)), (1, 2), {1, 2}, min_isr=9)
    assert after.eligible_leader_replicas == (3,)
    after, _ = settle(after, (1, 2, 3), {1, 2, 3}, min_isr=9)
    assert after.eligible_leader_replicas == ()


def test_the_preferred_leader() -> None:
    before = partition(2, (2, 1))
    assert settle(before, (2, 1), {1, 2}, preference=Preference.FIRST)[0].leader == 1
    assert settle(before, (2, 1), {2}, preference=Preference.FIRST)[0].leader == 2


def test_a_record_names_only_what_changed() -> None:
    before = partition(1, (1, 2, 3))
    after, _ = settled(
        before, (1, 2), TopicRules(2, allows_unclean=False, tracks_eligible=True), {1, 2}.__contains__
    )
    assert change_record(TOPIC, 4, before, after) == PartitionChangeRecord(
        partition_id=4, topic_id=TOPIC, isr=[1, 2]
    )
