"""What becomes of coordinators when their disk is full, fails, or their topic is deleted."""

from __future__ import annotations

import errno

import pytest
from tests.unit.node.coordinators.test_groups import (
    SETTINGS,
    commit,
    committed,
    committed_of,
    find,
    member_of,
)
from tests.unit.node.coordinators.test_transactions import Producer, latest

from harness.desk import Desk
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk, Operation
from headrace.storage.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(MemoryDisk())


@pytest.fixture
def desk(disk: FaultyDisk) -> Desk:
    """Metadata on a disk that is well, everything else on one that may fail."""
    desk = Desk(
        {
            **SETTINGS,
            "log.dirs": "data",
            "metadata.log.dir": "meta",
            "transaction.state.log.num.partitions": "1",
        },
        disks={"meta": MemoryDisk(), "data": disk},
    )
    desk.create_topic("t")
    find(desk, "g")
    return desk


def test_a_full_disk_refuses_commits_and_keeps_what_was_acknowledged(desk: Desk, disk: FaultyDisk) -> None:
    assert commit(desk, "g", "t", 1) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__consumer_offsets"))
    assert commit(desk, "g", "t", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.advance(2)
    assert committed(desk, "g", "t").committed_offset == 1
    assert commit(desk, "g", "t", 3) == 0
    assert committed(desk, "g", "t").committed_offset == 3


def test_whoever_waits_for_a_rebalance_is_told_when_the_machine_is_thrown_away(
    desk: Desk, disk: FaultyDisk
) -> None:
    first, generation = member_of(desk, "g")
    waiting = desk.connect()
    desk.send(
        waiting,
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            group_instance_id="one",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        9,
    )
    assert desk.receive(waiting) is None
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__consumer_offsets"))
    code = commit(desk, "g", "t", 2, member=first, generation=generation)
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.receive(waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_broken_disk_takes_its_coordinators_along(desk: Desk, disk: FaultyDisk) -> None:
    disk.faults.append(Fault(Fail(errno.EIO), "append", "__consumer_offsets"))
    assert commit(desk, "g", "t", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.advance(5)
    assert commit(desk, "g", "t", 3) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_marker_that_finds_no_space_is_written_later(desk: Desk, disk: FaultyDisk) -> None:
    producer = Producer(desk)
    assert producer.write("t", version=13) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "t-0", times=2))
    assert producer.end(commit=True, version=5).error_code == 0
    assert latest(desk, "t", 1) == 0, "the transaction is decided and not yet visible"
    assert producer.state() == "PrepareCommit"
    desk.advance(3)
    assert latest(desk, "t", 1) == 2
    assert producer.state() == "CompleteCommit"


def test_a_marker_order_ends_with_the_machine_that_gave_it(desk: Desk, disk: FaultyDisk) -> None:
    """With the first protocol a producer's transactions share one epoch: an order that a reloaded
    coordinator's former machine gave for one of them would end the next.
    """
    producer, other = Producer(desk), Producer(desk, "other")
    assert producer.add("t") == 0
    assert producer.write("t", version=9) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "t-0", times=1_000))
    assert producer.end(commit=True, version=3).error_code == 0
    desk.advance(0.4)
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__transaction_state"))
    assert other.add("t") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.advance(1.7)
    assert producer.state() == "PrepareCommit", "loaded again, it waits for space"
    disk.faults.clear()
    desk.advance(0.4)
    assert producer.state() == "CompleteCommit"

    assert producer.add("t") == 0
    assert producer.write("t", version=9) == 0
    desk.advance(5)
    assert latest(desk, "t", 0) == 3
    assert latest(desk, "t", 1) == 2, "the second transaction is open"
    assert producer.end(commit=False, version=3).error_code == 0
    log = desk.node.broker.partitions.of_name("t")[0].log  # type: ignore[index]
    assert log is not None
    assert log.aborted_transactions(0, 10) == [(producer.id, 2)]


def test_a_deleted_topic_needs_no_marker(desk: Desk) -> None:
    desk.create_topic("gone")
    producer = Producer(desk)
    assert producer.write("gone", version=13) == 0
    producer.sequence = 0
    assert producer.write("t", version=13) == 0
    assert (
        desk.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1_000), 5).responses[0].error_code == 0
    )
    assert producer.end(commit=True, version=5).error_code == 0
    assert producer.state() == "CompleteCommit"
    assert latest(desk, "t", 1) == 2


def test_groups_begin_anew_when_their_topic_is_deleted(desk: Desk) -> None:
    assert commit(desk, "g", "t", 7) == 0
    request = DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=1_000)
    assert desk.ask(request, 5).responses[0].error_code == 0
    assert commit(desk, "g", "t", 8) == ErrorCode.NOT_COORDINATOR
    find(desk, "g")
    assert committed(desk, "g", "t").committed_offset == -1
    assert commit(desk, "g", "t", 9) == 0


@pytest.mark.parametrize(("code", "operation"), [(errno.ENOSPC, "make_dir"), (errno.EMFILE, "create")])
def test_a_coordinator_that_finds_no_space_when_it_is_opened_is_loaded_later(
    desk: Desk, disk: FaultyDisk, code: int, operation: Operation
) -> None:
    disk.faults.append(Fault(Fail(code), operation, "__consumer_offsets", times=3))
    assert commit(desk, "g", "t", 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.advance(5)
    assert commit(desk, "g", "t", 6) == 0


def test_a_coordinator_that_finds_no_descriptor_while_it_is_loaded_is_loaded_later(
    desk: Desk, disk: FaultyDisk
) -> None:
    assert commit(desk, "g", "t", 4) == 0
    after = Desk(desk.texts, disks=desk.disks, clock=desk.clock)
    disk.faults.append(Fault(Fail(errno.EMFILE), "open", "__consumer_offsets", times=8))
    after.advance(12)
    assert not disk.faults[0].times
    assert committed(after, "g", "t").committed_offset == 4
    assert commit(after, "g", "t", 6) == 0


def test_a_coordinators_partition_may_move_while_it_is_loaded() -> None:
    settings = {**SETTINGS, "offsets.topic.num.partitions": "1"}
    desk = Desk(settings, disks={"one": MemoryDisk(), "two": MemoryDisk()})
    desk.create_topic("t")
    find(desk, "g")
    assert commit(desk, "g", "t", 7) == 0
    after = Desk(settings, disks=desk.disks, clock=desk.clock)
    after.runs_jobs = False
    assert commit(after, "g", "t", 8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (loading,) = after.jobs
    after.jobs.clear()
    (partition,) = after.node.broker.partitions.of_name("__consumer_offsets") or []
    home = partition.directory
    after.node.broker.moves.order(after.clock.now(), partition, "two" if home == "one" else "one")
    after.settle()
    after.run_jobs()
    after.advance(1)
    after.run_jobs()
    assert partition.directory != home
    after.jobs.append(loading)
    after.runs_jobs = True
    after.settle()
    after.advance(1)
    assert after.halted is None
    assert committed(after, "g", "t").committed_offset == 7
    assert commit(after, "g", "t", 9) == 0


def test_a_coordinators_partition_that_moved_and_could_not_be_opened_yet() -> None:
    """A request that writes nothing would find a machine without a log."""
    settings = {**SETTINGS, "offsets.topic.num.partitions": "1"}
    met = 0
    for skip in range(30):
        disks = {name: FaultyDisk(MemoryDisk()) for name in ("one", "two")}
        desk = Desk(settings, disks=dict(disks))
        desk.create_topic("t")
        find(desk, "g")
        assert commit(desk, "g", "t", 7) == 0
        (partition,) = desk.node.broker.partitions.of_name("__consumer_offsets") or []
        target = "two" if partition.directory == "one" else "one"
        fault = Fault(Fail(errno.EMFILE), "open", "__consumer_offsets-0", skip=skip, times=100)
        disks[target].faults.append(fault)
        desk.node.broker.moves.order(desk.clock.now(), partition, target)
        desk.settle()
        if partition.directory != target or partition.log is not None:
            continue
        met += 1
        for _ in range(2):
            (answer,) = desk.ask(committed_of("g", "t"), 9).groups
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        fault.times = 0
        desk.advance(2)
        assert committed(desk, "g", "t").committed_offset == 7
        assert commit(desk, "g", "t", 8) == 0
    assert met, "the move was to end while no descriptor was left"


def test_what_follows_from_a_decision_may_cost_the_machine_that_made_others(
    desk: Desk, disk: FaultyDisk
) -> None:
    """Two transactions time out at once. The end of the first is prepared, its marker written, and its
    completion refused by a full disk: the machine is gone when the second one's turn comes.
    """
    producers = [Producer(desk, name, timeout_ms=1_000) for name in ("tx-1", "tx-2")]
    for producer in producers:
        assert producer.write("t", version=13) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__transaction_state", skip=1))
    desk.advance(30)
    assert {producer.state() for producer in producers} == {"CompleteAbort"}
    assert latest(desk, "t", 1) == 4
