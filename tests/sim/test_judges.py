"""What judges let pass and what they object to, by hand: cases that a seed has shown."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.records.builder import build_batch
from headrace.simulator.clients.topics import Topic
from headrace.simulator.cluster_judges.truncation_spares_the_committed import TruncationSparesTheCommitted
from headrace.simulator.history import (
    Assigned,
    BatchSent,
    Fetched,
    Finished,
    History,
    JoinAsked,
    PartitionKey,
    TopicCreated,
    Violation,
)
from headrace.simulator.host import Host
from headrace.simulator.judges.one_owner_per_generation import OneOwnerPerGeneration
from headrace.simulator.judges.order_per_producer import OrderPerProducer
from headrace.simulator.judges.whole_batches_below_high_watermark import WholeBatchesBelowHighWatermark
from headrace.simulator.node_changes import Changes
from headrace.simulator.operator import Operator
from headrace.simulator.world import World
from headrace.storage.disk import write_atomically

SOURCE = PartitionKey("source", bytes(16), 2)


def test_a_group_that_may_have_changed_its_protocol_may_count_its_generations_again() -> None:
    """All members were fenced, a classic one began to join, and nobody heard of its generation: the next
    member of the new protocol got generation 2 once more.
    """
    judge = OneOwnerPerGeneration()
    judge.see(JoinAsked("plain", is_classic=False))
    judge.see(Assigned("plain", "first", 2, (SOURCE,), is_classic=False))
    judge.see(JoinAsked("plain", is_classic=True))
    judge.see(Assigned("plain", "second", 2, (SOURCE,), is_classic=False))
    judge.see(Assigned("steady", "first", 2, (SOURCE,), is_classic=False))
    with pytest.raises(Violation):
        judge.see(Assigned("steady", "second", 2, (SOURCE,), is_classic=False))


def test_a_partition_has_one_owner_in_a_generation() -> None:
    judge = OneOwnerPerGeneration()
    judge.see(JoinAsked("plain", is_classic=False))
    judge.see(Assigned("plain", "first", 2, (SOURCE,), is_classic=False))
    with pytest.raises(Violation):
        judge.see(Assigned("plain", "second", 2, (SOURCE,), is_classic=False))


class Replica:
    """One node with a log, as the judge of truncation looks at it."""

    def __init__(self, end: int, *, broker_epoch: int, high_watermark: int | None = None) -> None:
        self.log = SimpleNamespace(log_end_offset=end)
        leader = SimpleNamespace(high_watermark=high_watermark) if high_watermark is not None else None
        partition = SimpleNamespace(topic="t", topic_id=b"t" * 16, index=0, log=self.log, leader=leader)
        state = SimpleNamespace(isr=(1,), eligible_leader_replicas=(2,))
        image = SimpleNamespace(
            topics_by_id={b"t" * 16: SimpleNamespace(partitions={0: state})},
            brokers={2: SimpleNamespace(epoch=7)},
        )
        self.changes = Changes([cast(Any, partition)], has_quorum=True)
        self.node: Any = SimpleNamespace(
            controller=SimpleNamespace(metadata=SimpleNamespace(committed_offset=1, image=image)),
            broker=SimpleNamespace(
                partitions=SimpleNamespace(all=lambda: [partition]),
                lifecycle=SimpleNamespace(epoch=broker_epoch),
            ),
        )


@pytest.mark.parametrize(("end", "is_wrong"), [(174, True), (165, False)])
def test_a_replica_that_lacks_records_from_its_start_may_be_cut(end: int, is_wrong: bool) -> None:
    """Its disk was replaced by an older copy, and its broker has not registered yet: nobody elects it, and
    the registration takes it out of the eligible ones. One that had everything is not to be cut.
    """
    judge = TruncationSparesTheCommitted()
    leading, following = Replica(180, broker_epoch=6, high_watermark=174), Replica(end, broker_epoch=-1)
    first: Any = SimpleNamespace(id=1)
    second: Any = SimpleNamespace(id=2)
    judge.look(first, leading.node, leading.changes)
    judge.look(second, following.node, following.changes)
    following.log.log_end_offset = 147
    if is_wrong:
        with pytest.raises(Violation, match="cuts t-0 from 174 to 147"):
            judge.look(second, following.node, following.changes)
    else:
        judge.look(second, following.node, following.changes)
    following.node.broker.lifecycle.epoch = 7
    with pytest.raises(Violation, match="its log ends at 147"):
        judge.look(second, following.node, following.changes)


def test_a_replica_that_has_not_changed_lacks_what_others_commit() -> None:
    """Judges look at partitions that have changed. One that stays as it is becomes wrong by what its leader
    commits, and must be looked at again.
    """
    judge = TruncationSparesTheCommitted()
    leading, following = Replica(180, broker_epoch=6, high_watermark=150), Replica(160, broker_epoch=7)
    first: Any = SimpleNamespace(id=1)
    second: Any = SimpleNamespace(id=2)
    nothing = Changes([], has_quorum=False)
    judge.look(first, leading.node, leading.changes)
    judge.look(second, following.node, following.changes)
    judge.look(second, following.node, nothing)
    leading.changes.partitions[0].leader.high_watermark = 170  # type: ignore[union-attr]
    judge.look(first, leading.node, leading.changes)
    with pytest.raises(Violation, match="committed up to 170, and its log ends at 160"):
        judge.look(second, following.node, nothing)


def test_an_operator_without_a_connection_forgets_no_topic() -> None:
    """A topic gave its place to a namesake that was never made. When that one was deleted by its name, the
    first was gone, and clients waited for it.
    """
    world = World(1)
    host = Host(world, History(world, []), ["a"], lambda *_: pytest.fail("nobody starts it"))
    topic = Topic("passing", 1, {}, is_asked=True)
    topic.created(bytes(16))
    topics, known = [topic], [topic]
    operator = Operator(host, "operator", [], topics, known)
    for _ in range(20):
        operator.replace_topic()
    assert topics == known == [topic]
    assert topic.is_there


def test_where_records_are_deleted_a_repetition_may_be_all_that_is_left() -> None:
    """A producer without idempotence sent a batch twice, and the administrator deleted all but the last
    record of the first.
    """
    judge = OrderPerProducer()
    judge.see(BatchSent("p3", SOURCE, (b"p3.1:1:", b"p3.1:2:"), acks=1, is_idempotent=False))
    records = [(1, b"p3.1:2:"), (2, b"p3.1:1:"), (3, b"p3.1:2:")]
    judge.see(Finished({SOURCE: records}, {SOURCE: 1}, {SOURCE: 4}))


@pytest.mark.parametrize(("first_offset", "is_idempotent"), [(0, False), (0, True), (1, True)])
def test_records_lie_in_the_order_in_which_they_were_sent(first_offset: int, is_idempotent: bool) -> None:
    judge = OrderPerProducer()
    judge.see(BatchSent("p3", SOURCE, (b"p3.1:1:", b"p3.1:2:"), acks=1, is_idempotent=is_idempotent))
    records = [(first_offset, b"p3.1:2:"), (first_offset + 1, b"p3.1:1:")]
    with pytest.raises(Violation):
        judge.see(Finished({SOURCE: records}, {SOURCE: first_offset}, {SOURCE: first_offset + 2}))


def test_compaction_leaves_gaps_where_a_record_was_sent_twice() -> None:
    fetched = Fetched("c1", SOURCE, 0, [(0, b"a"), (3, b"b"), (5, b"c")], [(0, 1), (3, 5)], 0, "", 6, 0)
    with pytest.raises(Violation):
        WholeBatchesBelowHighWatermark().see(fetched)
    judge = WholeBatchesBelowHighWatermark()
    judge.see(TopicCreated(SOURCE.topic, SOURCE.topic_id, 3, {"cleanup.policy": "compact"}))
    judge.see(fetched)
    with pytest.raises(Violation):
        judge.see(replace(fetched, batches=[(0, 3), (3, 5)]))
    with pytest.raises(Violation):
        judge.see(replace(fetched, high_watermark=5))


def test_the_durable_end_of_a_file_that_was_replaced() -> None:
    """A sealed log was compressed. The simulator went on where the last batch of the old file had ended, in
    the middle of a batch of the new one.
    """
    world = World(1)
    host = Host(world, History(world, []), ["a"], lambda *_: pytest.fail("nobody starts it"))
    disk = host._disks["a"]
    disk.make_dir(str(SOURCE))
    disk.sync_dir("")
    large, small = _batches(3, b"." * 300), _batches(7, b"")
    for data, end in ((large[:1], 1), (large, 3), (small, 7), (large, 3)):
        write_atomically(disk, f"{SOURCE}/00000000000000000000.log", b"".join(data))
        assert host.durable_end(SOURCE) == end


def _batches(count: int, value: bytes) -> list[bytes]:
    """One record each, at offsets 0, 1, 2 …"""
    batches = []
    for offset in range(count):
        batch = bytearray(build_batch([(0, None, value, ())]))
        batch[:8] = offset.to_bytes(8, "big")
        batches.append(bytes(batch))
    return batches
