"""What becomes of coordinators when their disk is full, fails, or their topic is deleted."""

from __future__ import annotations

import errno

import pytest

from harness.node_groups import (
    SETTINGS,
    commit,
    committed,
    find,
    member_of,
)
from harness.node_transactions import (
    Producer,
    committed_offset,
    latest,
    offset_commit,
)
from harness.single_partition import committed_of
from headrace.machines.groups.groups import Groups
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk, Operation
from headrace.storage.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(MemoryDisk())


@pytest.fixture
def host(disk: FaultyDisk) -> ManualHost:
    """Metadata on a disk that is well, everything else on one that may fail."""
    host = ManualHost(
        {
            **SETTINGS,
            "log.dirs": "data",
            "metadata.log.dir": "meta",
            "transaction.state.log.num.partitions": "1",
        },
        disks={"meta": MemoryDisk(), "data": disk},
    )
    host.create_topic("t")
    find(host, "g")
    return host


def test_a_full_disk_refuses_commits_and_keeps_what_was_acknowledged(
    host: ManualHost, disk: FaultyDisk
) -> None:
    assert commit(host, "g", "t", 1) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__consumer_offsets"))
    assert commit(host, "g", "t", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.advance(2)
    assert committed(host, "g", "t").committed_offset == 1
    assert commit(host, "g", "t", 3) == 0
    assert committed(host, "g", "t").committed_offset == 3


def test_whoever_waits_for_a_rebalance_is_told_when_the_machine_is_thrown_away(
    host: ManualHost, disk: FaultyDisk
) -> None:
    first, generation = member_of(host, "g")
    waiting = host.connect()
    host.send(
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
    assert host.receive(waiting) is None
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__consumer_offsets"))
    code = commit(host, "g", "t", 2, member=first, generation=generation)
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.receive(waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_broken_disk_takes_its_coordinators_along(host: ManualHost, disk: FaultyDisk) -> None:
    disk.faults.append(Fault(Fail(errno.EIO), "append", "__consumer_offsets"))
    assert commit(host, "g", "t", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.advance(5)
    assert commit(host, "g", "t", 3) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_marker_that_finds_no_space_is_written_later(host: ManualHost, disk: FaultyDisk) -> None:
    producer = Producer(host)
    assert producer.write("t", version=13) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "t-0", times=2))
    assert producer.end(commit=True, version=5).error_code == 0
    assert latest(host, "t", 1) == 0, "the transaction is decided and not yet visible"
    assert producer.state() == "PrepareCommit"
    host.advance(3)
    assert latest(host, "t", 1) == 2
    assert producer.state() == "CompleteCommit"


def test_a_marker_order_ends_with_the_machine_that_gave_it(host: ManualHost, disk: FaultyDisk) -> None:
    """With the first protocol a producer's transactions share one epoch: an order that a reloaded
    coordinator's former machine gave for one of them would end the next.
    """
    producer, other = Producer(host), Producer(host, "other")
    assert producer.add("t") == 0
    assert producer.write("t", version=9) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "t-0", times=1_000))
    assert producer.end(commit=True, version=3).error_code == 0
    host.advance(0.4)
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__transaction_state"))
    assert other.add("t") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.advance(1.7)
    assert producer.state() == "PrepareCommit", "loaded again, it waits for space"
    disk.faults.clear()
    host.advance(0.4)
    assert producer.state() == "CompleteCommit"

    assert producer.add("t") == 0
    assert producer.write("t", version=9) == 0
    host.advance(5)
    assert latest(host, "t", 0) == 3
    assert latest(host, "t", 1) == 2, "the second transaction is open"
    assert producer.end(commit=False, version=3).error_code == 0
    log = host.partitions("t")[0].log
    assert log is not None
    assert log.aborted_transactions(0, 10) == [(producer.id, 2)]


def test_a_deleted_topic_needs_no_marker(host: ManualHost) -> None:
    host.create_topic("gone")
    producer = Producer(host)
    assert producer.write("gone", version=13) == 0
    producer.sequence = 0
    assert producer.write("t", version=13) == 0
    assert (
        host.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1_000), 5).responses[0].error_code == 0
    )
    assert producer.end(commit=True, version=5).error_code == 0
    assert producer.state() == "CompleteCommit"
    assert latest(host, "t", 1) == 2


def test_groups_begin_anew_when_their_topic_is_deleted(host: ManualHost) -> None:
    assert commit(host, "g", "t", 7) == 0
    request = DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=1_000)
    assert host.ask(request, 5).responses[0].error_code == 0
    assert commit(host, "g", "t", 8) == ErrorCode.NOT_COORDINATOR
    find(host, "g")
    assert committed(host, "g", "t").committed_offset == -1
    assert commit(host, "g", "t", 9) == 0


def recreate(host: ManualHost, topic: str) -> None:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000)
    assert host.ask(request, 5).responses[0].error_code == 0
    host.create_topic(topic)


@pytest.mark.parametrize("is_transactional", [False, True])
def test_offsets_of_a_topic_that_is_deleted_while_its_coordinator_is_not_loaded(
    host: ManualHost, is_transactional: bool
) -> None:
    """The next topic of that name would be read from there: everything before would be skipped."""
    if is_transactional:  # such a commit does not tell the topic's id
        producer = Producer(host)
        assert host.ask(offset_commit(producer), 5).topics[0].partitions[0].error_code == 0
        assert producer.end(commit=True, version=5).error_code == 0
    else:
        assert commit(host, "g", "t", 7) == 0
    after = ManualHost(host.texts, disks=host.disks, clock=host.clock)
    assert after.node.broker.groups.loaded_shards() == []
    recreate(after, "t")
    after.advance(2)
    assert committed(after, "g", "t").committed_offset == -1
    assert committed_offset(after, "g").topics == []
    assert commit(after, "g", "t", 1) == 0
    again = ManualHost(host.texts, disks=host.disks, clock=host.clock)
    again.advance(2)
    assert committed(again, "g", "t").committed_offset == 1


def test_offsets_of_a_topic_that_is_deleted_while_the_disk_is_full(
    host: ManualHost, disk: FaultyDisk
) -> None:
    producer = Producer(host)
    assert host.ask(offset_commit(producer), 5).topics[0].partitions[0].error_code == 0
    assert producer.end(commit=True, version=5).error_code == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__consumer_offsets"))
    recreate(host, "t")
    host.advance(2)
    assert committed(host, "g", "t").committed_offset == -1


def test_offsets_of_a_topic_whose_deletion_was_cut_short(
    host: ManualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ended when the deletion was durable, and before the coordinator heard of it."""
    producer = Producer(host)
    assert host.ask(offset_commit(producer), 5).topics[0].partitions[0].error_code == 0
    assert producer.end(commit=True, version=5).error_code == 0
    with monkeypatch.context() as killed:
        killed.setattr(Groups, "forget_topics", lambda *_: [])
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000)
        assert host.ask(request, 5).responses[0].error_code == 0
    after = ManualHost(host.texts, disks=host.disks, clock=host.clock)
    after.create_topic("t")
    after.advance(2)
    assert committed(after, "g", "t").committed_offset == -1
    assert commit(after, "g", "t", 2) == 0
    again = ManualHost(host.texts, disks=host.disks, clock=host.clock)
    again.advance(2)
    assert committed(again, "g", "t").committed_offset == 2


@pytest.mark.parametrize("kind", ["alone", "in a transaction", "in a transaction that ends later"])
def test_an_offset_of_the_topic_that_had_the_name_before_is_nobodys(
    host: ManualHost, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A machine that goes down may keep the metadata of a deletion and lose what followed from it. Offsets of
    transactions were written without the topic's id, and a group began to read the new topic from there.
    """
    producer = Producer(host)
    if kind == "alone":
        assert commit(host, "g", "t", 7) == 0
    else:
        assert host.ask(offset_commit(producer), 5).topics[0].partitions[0].error_code == 0
        if kind == "in a transaction":
            assert producer.end(commit=True, version=5).error_code == 0
    with monkeypatch.context() as lost:
        lost.setattr(Groups, "forget_topics", lambda *_: [])
        recreate(host, "t")
    if kind == "in a transaction that ends later":
        assert producer.end(commit=True, version=5).error_code == 0
    host = ManualHost(host.texts, disks=host.disks, clock=host.clock)
    host.advance(2)
    assert committed(host, "g", "t").committed_offset == -1
    assert committed_offset(host, "g").topics == []
    assert commit(host, "g", "t", 3) == 0
    assert committed(host, "g", "t").committed_offset == 3
    assert committed_offset(host, "g").topics[0].partitions[0].committed_offset == 3


def test_groups_begin_anew_though_the_files_of_the_deleted_topic_cannot_be_renamed_yet(
    host: ManualHost, disk: FaultyDisk
) -> None:
    assert commit(host, "g", "t", 7) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "rename", "__consumer_offsets", times=3))
    request = DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=1_000)
    assert host.ask(request, 5).responses[0].error_code == 0
    find(host, "g")
    assert commit(host, "g", "t", 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.advance(10)
    assert commit(host, "g", "t", 9) == 0
    assert committed(host, "g", "t").committed_offset == 9


@pytest.mark.parametrize(("code", "operation"), [(errno.ENOSPC, "make_dir"), (errno.EMFILE, "create")])
def test_a_coordinator_that_finds_no_space_when_it_is_opened_is_loaded_later(
    host: ManualHost, disk: FaultyDisk, code: int, operation: Operation
) -> None:
    disk.faults.append(Fault(Fail(code), operation, "__consumer_offsets", times=3))
    assert commit(host, "g", "t", 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.advance(5)
    assert commit(host, "g", "t", 6) == 0


def test_a_coordinator_that_finds_no_descriptor_while_it_is_loaded_is_loaded_later(
    host: ManualHost, disk: FaultyDisk
) -> None:
    assert commit(host, "g", "t", 4) == 0
    after = ManualHost(host.texts, disks=host.disks, clock=host.clock)
    disk.faults.append(Fault(Fail(errno.EMFILE), "open", "__consumer_offsets", times=8))
    after.advance(12)
    assert not disk.faults[0].times
    assert committed(after, "g", "t").committed_offset == 4
    assert commit(after, "g", "t", 6) == 0


def test_a_coordinators_partition_may_move_while_it_is_loaded() -> None:
    settings = {**SETTINGS, "offsets.topic.num.partitions": "1"}
    host = ManualHost(settings, disks={"one": MemoryDisk(), "two": MemoryDisk()})
    host.create_topic("t")
    find(host, "g")
    assert commit(host, "g", "t", 7) == 0
    after = ManualHost(settings, disks=host.disks, clock=host.clock)
    after.runs_jobs = False
    assert commit(after, "g", "t", 8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (loading,) = after.jobs
    after.jobs.clear()
    (partition,) = after.partitions("__consumer_offsets")
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
        host = ManualHost(settings, disks=dict(disks))
        host.create_topic("t")
        find(host, "g")
        assert commit(host, "g", "t", 7) == 0
        (partition,) = host.partitions("__consumer_offsets")
        target = "two" if partition.directory == "one" else "one"
        fault = Fault(Fail(errno.EMFILE), "open", "__consumer_offsets-0", skip=skip, times=100)
        disks[target].faults.append(fault)
        host.node.broker.moves.order(host.clock.now(), partition, target)
        host.settle()
        if partition.directory != target or partition.log is not None:
            continue
        met += 1
        for _ in range(2):
            (answer,) = host.ask(committed_of("g", "t"), 9).groups
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        fault.times = 0
        host.advance(2)
        assert committed(host, "g", "t").committed_offset == 7
        assert commit(host, "g", "t", 8) == 0
    assert met, "the move was to end while no descriptor was left"


def test_a_coordinators_partition_that_moved_unopened_while_it_is_loaded() -> None:
    """The move must end all the same: it keeps the cleaner and all other moves out of its directory."""
    settings = {**SETTINGS, "offsets.topic.num.partitions": "1"}
    met = False
    for skip in range(30):
        disks = {name: FaultyDisk(MemoryDisk()) for name in ("one", "two")}
        host = ManualHost(settings, disks=dict(disks))
        host.create_topic("t")
        find(host, "g")
        assert commit(host, "g", "t", 7) == 0
        after = ManualHost(settings, disks=dict(disks), clock=host.clock)
        after.runs_jobs = False
        assert commit(after, "g", "t", 8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        (loading,) = after.jobs
        after.jobs.clear()
        (partition,) = after.partitions("__consumer_offsets")
        home = partition.directory
        target = "two" if home == "one" else "one"
        fault = Fault(Fail(errno.EMFILE), "open", "__consumer_offsets-0", skip=skip, times=100)
        disks[target].faults.append(fault)
        after.node.broker.moves.order(after.clock.now(), partition, target)
        after.settle()
        after.run_jobs()
        if partition.directory == target and partition.log is None:
            met = True
            assert not after.node.broker.moves.under_way()
            assert after.node.directories.may_rewrite(home)
            fault.times = 0
            after.jobs.append(loading)
            after.runs_jobs = True
            after.settle()
            after.advance(2)
            assert committed(after, "g", "t").committed_offset == 7
            break
    assert met, "the move was to end while no descriptor was left"


def test_what_follows_from_a_decision_may_cost_the_machine_that_made_others(
    host: ManualHost, disk: FaultyDisk
) -> None:
    """Two transactions time out at once. The end of the first is prepared, its marker written, and its
    completion refused by a full disk: the machine is gone when the second one's turn comes.
    """
    producers = [Producer(host, name, timeout_ms=1_000) for name in ("tx-1", "tx-2")]
    for producer in producers:
        assert producer.write("t", version=13) == 0
    disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "__transaction_state", skip=1))
    host.advance(30)
    assert {producer.state() for producer in producers} == {"CompleteAbort"}
    assert latest(host, "t", 1) == 4
