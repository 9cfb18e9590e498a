"""Mistakes made on purpose in groups and transactions. Each must be caught within a few seeds."""

from __future__ import annotations

from typing import Any

import pytest

from harness.single_judge import ask_only
from headrace.machines.groups import commits
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.consumer import reconciliation
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.groups import Groups
from headrace.machines.transactions import transactions
from headrace.machines.transactions.ending import end_version_2
from headrace.node.coordinators import shard as shards
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.markers import MarkersUnderWay
from headrace.node.partition import Partition
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.simulator.clients.polling import READ_COMMITTED
from headrace.simulator.judges.committed_offsets_never_go_back import CommittedOffsetsNeverGoBack
from headrace.simulator.judges.coordinators_rebuilt import CoordinatorsRebuilt
from headrace.simulator.judges.one_holder_per_partition import OneHolderPerPartition
from headrace.simulator.judges.one_owner_per_generation import OneOwnerPerGeneration
from headrace.simulator.run import Options, simulate
from headrace.storage.log import PartitionLog

SEEDS = range(1, 31)
OFFSETS_TOPIC = "__consumer_offsets"
COORDINATORS = Options(play="coordinators")


def caught_by() -> str:
    for seed in SEEDS:
        failure = simulate(seed, COORDINATORS).failure
        if failure is not None:
            return failure.judge
    raise AssertionError(f"no judge has noticed in {len(SEEDS)} seeds")


def test_read_committed_sees_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "visible_end", lambda self, isolation: self.leader.high_watermark)
    assert caught_by() in ("no_uncommitted_reads", "open_records_stay_unstable")


def test_aborted_transactions_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLog, "aborted_transactions", lambda self, start, end: [])
    assert caught_by() in ("no_uncommitted_reads", "transactions_all_or_nothing")


def test_an_answer_that_leaves_before_its_turn(
    monkeypatch: pytest.MonkeyPatch, misplaced_answers: list[str]
) -> None:
    """A handler settles an earlier request of its own connection, and its own answer is sent first."""
    monkeypatch.setattr(Waiting, "in_turn", lambda self, connection, parts: parts)
    assert caught_by() == "answers_in_request_order"
    misplaced_answers.clear()


def test_a_transaction_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each transaction the first partition gets no marker."""
    write = MarkersUnderWay._write

    def forgetful(self: MarkersUnderWay, now: Any, partition: Partition) -> bool:
        first = self.order.partitions[0]
        return first == (partition.topic, partition.index) or write(self, now, partition)

    monkeypatch.setattr(MarkersUnderWay, "_write", forgetful)
    assert caught_by() in ("progress_after_healing", "coordinators_rebuilt", "stable_offset_never_stuck")


def test_a_stable_offset_that_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no consumer reads, and nobody waits for it."""
    visible_end = Partition.visible_end

    def late(self: Partition, isolation: int) -> int:
        end = visible_end(self, isolation)
        return end - 1 if self.topic == OFFSETS_TOPIC and end and isolation == READ_COMMITTED else end

    monkeypatch.setattr(Partition, "visible_end", late)
    assert caught_by() == "stable_offset_never_stuck"


def test_groups_that_never_hear_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupCoordinator, "marker_appended", lambda *_: None)
    assert caught_by() in ("coordinators_rebuilt", "progress_after_healing")


def test_a_coordinator_that_lives_in_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwritten(self: shards.Shard[Any], now: Any, decision: Any) -> bool:
        for record in decision.records:
            self.machine.replay(record, decision.writer)
        return True

    monkeypatch.setattr(shards.Shard, "_append", unwritten)
    assert caught_by() in (
        "coordinators_rebuilt",
        "committed_offsets_never_go_back",  # they went with the memory
        "one_owner_per_generation",  # a group that was forgotten counts its generations from the beginning
    )
    for judge in (CoordinatorsRebuilt, CommittedOffsetsNeverGoBack, OneOwnerPerGeneration):
        ask_only(monkeypatch, judge)
        assert caught_by() == judge.name


def test_transactional_offsets_that_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Groups.replay

    def hasty(self: Groups, record: Any, writer: Any = None) -> None:
        replay(self, record)

    monkeypatch.setattr(Groups, "replay", hasty)
    # what an aborted transaction had read is never read again
    assert caught_by() in (
        "copied_exactly_once",
        "committed_offsets_never_go_back",
        "coordinators_rebuilt",
        "progress_after_healing",
    )


def test_a_late_end_ends_the_next_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    end = end_version_2

    def careless(transaction: Any, now_ms: int, request: Any, fresh_id: Any) -> Any:
        if transaction.is_open:
            owner = {"producer_id": transaction.producer_id, "producer_epoch": transaction.producer_epoch}
            request = request._replace(**owner)
        return end(transaction, now_ms, request, fresh_id)

    monkeypatch.setattr(transactions, "end_version_2", careless)
    assert caught_by() in (
        "transactions_all_or_nothing",
        "no_uncommitted_reads",
        "copied_exactly_once",
        "open_records_stay_unstable",
    )


def test_a_fenced_member_that_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (ClassicGroup, ConsumerGroup):
        monkeypatch.setattr(kind, "check_commit", lambda *_, **__: ErrorCode.NONE)
    assert caught_by() == "fenced_members_cannot_commit"


def test_a_partition_is_given_away_before_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    towards = reconciliation._towards

    def hasty(member: Any, epoch: int, target: Any, subscribed: Any, owned: Any, owners: Any) -> Any:
        return towards(member, epoch, target, subscribed, owned, {})

    monkeypatch.setattr(reconciliation, "_towards", hasty)
    # the coordinator's own invariants object first, as soon as its memory gives a partition to two
    assert caught_by() in ("coordinators_sound", "one_holder_per_partition")
    ask_only(monkeypatch, OneHolderPerPartition)
    assert caught_by() == "one_holder_per_partition"


def test_a_group_that_is_told_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never read what lies between."""
    fetch_offsets = Groups.fetch_offsets

    def hasty(self: Groups, *asked: Any, **more: Any) -> Any:
        told = fetch_offsets(self, *asked, **more)
        assert not isinstance(told, ErrorCode)
        return [(topic, [one._replace(offset=one.offset + 1) for one in ones]) for topic, ones in told]

    monkeypatch.setattr(Groups, "fetch_offsets", hasty)
    assert caught_by() == "polls_follow_each_other"


def test_a_downgraded_group_is_made_from_its_record_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has joined in between is forgotten, and counted for ever."""

    def adopt(shard: Any, now: Any, group: ClassicGroup, decision: Any) -> None:
        rebalance.take_charge(shard, now, group, decision)
        rebalance.prepare(shard, now, group, decision)

    monkeypatch.setattr(rebalance, "adopt", adopt)
    assert caught_by() == "coordinators_sound"


def test_offsets_of_a_topic_that_is_gone_are_told_for_its_namesake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that is not loaded when a topic goes never hears of it, and nobody compares the ids."""
    monkeypatch.setattr(GroupCoordinator, "shard_loaded", lambda self, now, shard: None)
    monkeypatch.setattr(commits, "_are_different", lambda committed, asked: False)
    assert caught_by() == "offsets_stay_with_their_topic"
