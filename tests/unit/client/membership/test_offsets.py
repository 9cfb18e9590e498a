"""Commits and what is read of them, around the node itself: nothing acknowledged is lost, order is kept."""

from __future__ import annotations

from typing import Any

import pytest

from harness.group_simulation import Application, Faults, GroupSimulation, Member, partitions
from headrace.client.assignors import ASSIGNORS
from headrace.client.cluster import TopicPartition
from headrace.client.errors import KafkaError, TimedOut
from headrace.client.membership.events import CommittedOffset, OffsetsFetched
from headrace.client.settings.consumer import GroupProtocol
from headrace.protocol.messages.offset_commit import OffsetCommitRequest

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
each_protocol = pytest.mark.parametrize(
    "way",
    [
        {"assignors": (ASSIGNORS["range"],)},
        {"assignors": (ASSIGNORS["cooperative-sticky"],)},
        {"protocol": GroupProtocol.CONSUMER},
    ],
    ids=["eager", "cooperative", "consumer"],
)


def settled(way: dict[str, Any], **settings: Any) -> tuple[GroupSimulation, Member]:
    simulation = GroupSimulation()
    simulation.create_topic("a", 2)
    member = simulation.member("a", **way, **settings)
    simulation.settle()
    return simulation, member


def commit_requests(simulation: GroupSimulation) -> list[OffsetCommitRequest]:
    return [request for _, request in simulation.requests if isinstance(request, OffsetCommitRequest)]


def fetched(simulation: GroupSimulation, member: Member, *wanted: TopicPartition) -> OffsetsFetched:
    """What a lookup finds, heard by nobody else."""
    number = member.group.fetch_committed(simulation.now, wanted)
    found: list[OffsetsFetched] = []
    resume = member._resume
    member._resume = lambda event: found.append(event) if event.number == number else resume(event)  # type: ignore[method-assign]
    simulation.touch(member)
    assert simulation.run(40.0, lambda: bool(found))
    return found[0]


@each_protocol
def test_what_is_committed_is_found_again(way: dict[str, Any]) -> None:
    simulation, member = settled(way)
    number = member.group.commit(simulation.now, {A0: CommittedOffset(7, 3, "note")})
    simulation.run(1.0)
    assert [(ended.number, ended.error) for ended in member.ended] == [(number, None)]
    assert fetched(simulation, member, A0, A1).offsets == {A0: CommittedOffset(7, 3, "note"), A1: None}


@each_protocol
def test_the_next_owner_goes_on_where_the_last_one_was(way: dict[str, Any]) -> None:
    simulation, member = settled(way)
    member.commit({A0: 7, A1: 9})
    simulation.run(1.0)
    member.crash()
    simulation.forbids_overlap = False
    heir = simulation.member("a", **way)
    simulation.settle()
    simulation.run(1.0, lambda: len(heir.positions) == 2)
    assert heir.positions[A0] >= 7
    assert heir.positions[A1] >= 9


@each_protocol
def test_what_waits_travels_together_and_ends_in_order(way: dict[str, Any]) -> None:
    simulation, member = settled(way)
    numbers = [member.commit({A0: offset}) for offset in range(10)]
    simulation.run(1.0)
    assert [ended.number for ended in member.ended] == numbers
    sent = [request.topics[0].partitions[0].committed_offset for request in commit_requests(simulation)]
    assert sent == [0, 9]


def test_order_holds_on_a_bad_network() -> None:
    simulation, member = settled({"assignors": (ASSIGNORS["range"],)}, api_timeout_s=1000.0)
    simulation.faults = Faults(jitter_s=0.2, loss=0.2)
    simulation.forbids_overlap = False
    numbers = []
    for offset in range(40):
        if A0 in member.owned:
            numbers.append(member.commit({A0: offset}))
        simulation.run(0.3)
    simulation.faults = Faults()
    simulation.run(30.0, lambda: len(member.ended) == len(numbers))
    assert [ended.number for ended in member.ended] == numbers


@each_protocol
def test_a_commit_of_what_is_not_ours_is_refused(way: dict[str, Any]) -> None:
    simulation, member = settled(way)
    member.commit({A0: 1, TopicPartition("b", 0): 1})
    (ended,) = member.ended
    assert isinstance(ended.error, KafkaError)
    assert ended.error.name == "ILLEGAL_GENERATION"
    assert not commit_requests(simulation)


@each_protocol
def test_a_commit_that_was_under_way_when_its_partitions_were_lost_is_not_repeated(
    way: dict[str, Any],
) -> None:
    """In a later generation it would overwrite what the new owner has committed."""
    simulation, member = settled(way)
    simulation.forbids_overlap = False
    simulation.faults.loss = 1.0
    member.commit({A0: 5}, timeout_s=1000.0)
    simulation.run(15.0)
    simulation.faults.loss = 0.0
    assert simulation.run(30.0, lambda: bool(member.ended))
    assert member.ended[0].error is not None
    simulation.settle()
    assert fetched(simulation, member, A0).offsets == {A0: None}


@each_protocol
def test_a_commit_that_cannot_be_made_in_time_fails(way: dict[str, Any]) -> None:
    simulation, member = settled(way)
    simulation.faults.loss = 1.0
    asked_at = simulation.now
    number = member.commit({A0: 5}, timeout_s=2.0)
    patient = member.commit({A0: 6}, timeout_s=1000.0)
    assert simulation.run(10.0, lambda: bool(member.ended))
    assert [(ended.number, type(ended.error)) for ended in member.ended] == [(number, TimedOut)]
    assert simulation.now - asked_at == pytest.approx(2.0)
    simulation.faults.loss = 0.0
    assert simulation.run(10.0, lambda: len(member.ended) == 2)
    assert (member.ended[1].number, member.ended[1].error) == (patient, None)


@pytest.mark.parametrize(
    "way",
    [{"assignors": (ASSIGNORS["cooperative-sticky"],)}, {"protocol": GroupProtocol.CONSUMER}],
    ids=["cooperative", "consumer"],
)
def test_who_keeps_a_partition_commits_through_a_rebalance(way: dict[str, Any]) -> None:
    """The application knows nothing of generations: for what it keeps, no commit fails."""
    simulation = GroupSimulation()
    simulation.create_topic("a", 6)
    first = simulation.member("a", application=Application(commits=True, poll_every_s=0.02), **way)
    simulation.settle()
    for _ in range(3):
        simulation.member("a", application=Application(commits=True, poll_every_s=0.02), **way)
        simulation.run(2.0)
    simulation.settle()
    kept = first.owned
    failed = [ended for ended in first.ended if ended.error is not None and ended.offsets.keys() <= kept]
    assert first.ended
    assert failed == []


def test_a_consumer_without_a_membership_commits_in_nobodys_name() -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 2)
    reader = simulation.member(group_id="alone")
    reader.commit({A0: 3})
    simulation.run(2.0)
    assert [ended.error for ended in reader.ended] == [None]
    (request,) = commit_requests(simulation)
    assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)
    assert fetched(simulation, reader, A0).offsets == {A0: CommittedOffset(3)}


@each_protocol
def test_auto_commit_keeps_positions_every_interval(way: dict[str, Any]) -> None:
    simulation, member = settled(way, auto_commit_interval_s=5.0)
    member.application.polls = False
    member.group.consumed(simulation.now, {A0: CommittedOffset(4)})
    simulation.touch(member)
    simulation.run(4.0)
    before = len(commit_requests(simulation))
    member.group.consumed(simulation.now, {A0: CommittedOffset(11)})
    simulation.run(3.0)
    assert before == 0
    assert fetched(simulation, member, A0).offsets == {A0: CommittedOffset(11)}
    simulation.run(10.0)
    assert len(commit_requests(simulation)) == 1, "what is saved is not saved again"


@each_protocol
def test_auto_commit_comes_before_partitions_are_given_up(way: dict[str, Any]) -> None:
    """Otherwise the next owner reads again what was read."""
    simulation, member = settled(way, auto_commit_interval_s=1000.0)
    member.application.polls = False
    member.group.consumed(simulation.now, {A0: CommittedOffset(40), A1: CommittedOffset(41)})
    heir = simulation.member("a", **way)
    assert simulation.run(10.0, lambda: bool(member.group.membership.revoking))
    member.acknowledge()
    member.application.polls = True
    simulation.settle()
    assert member.unsaved == []
    (at,) = heir.owned
    assert simulation.run(5.0, lambda: at in heir.positions)
    assert heir.positions[at] >= 40


@each_protocol
def test_who_leaves_saves_its_positions(way: dict[str, Any]) -> None:
    simulation, member = settled(way, auto_commit_interval_s=1000.0)
    member.application.polls = False
    member.group.consumed(simulation.now, {A0: CommittedOffset(40)})
    member.leave()
    member.acknowledge()
    assert not member.group.has_committed
    assert simulation.run(5.0, lambda: member.group.membership.is_out)
    assert member.group.has_committed
    assert fetched(simulation, member, A0).offsets == {A0: CommittedOffset(40)}


def test_a_lookup_ends_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, member = settled({"assignors": (ASSIGNORS["range"],)})
    simulation.faults.loss = 1.0
    asked_at = simulation.now
    number = member.group.fetch_committed(simulation.now, partitions("a", 0), timeout_s=2.0)
    found: list[OffsetsFetched] = []
    monkeypatch.setattr(member, "_resume", found.append)
    simulation.touch(member)
    assert simulation.run(20.0, lambda: bool(found))
    assert found[0].number == number
    assert isinstance(found[0].error, TimedOut)
    assert simulation.now - asked_at == pytest.approx(2.0)
