"""What becomes of coordinators when their disk is full, fails, or their topic is deleted."""

from __future__ import annotations

import errno

import pytest
from tests.unit.node.coordinators.test_groups import SETTINGS, commit, committed, find, member_of
from tests.unit.node.coordinators.test_transactions import Producer, latest

from harness.desk import Desk
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
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
    log = desk.node.partitions.of_name("t")[0].log  # type: ignore[index]
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
