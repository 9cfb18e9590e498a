"""Disk calls of a follower fail in turn: while it cuts off its log, starts over, deletes records, catches up.

What has run out costs only time: once there is space again, the follower has the log of its leader. After any
other error its directory is offline, and the others go on without it.
"""

from __future__ import annotations

import errno
from itertools import count

import pytest

from harness.replica_brokers import ReplicaBrokers
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.storage.faulty_disk import CHANGES, OPENS, SPACE_NEEDING, Fail, Fault, FaultyDisk, Operation
from headrace.storage.memory_disk import MemoryDisk

CALLS_MIN = 15  # that each kind of fault must have met
FOLLOWER = 3


def story(*faults: Fault) -> tuple[ReplicaBrokers, FaultyDisk]:
    """Broker 3 has a record that no other has, and lacks some; later those that it lacks are deleted."""
    disk = FaultyDisk(MemoryDisk())
    brokers = ReplicaBrokers(disks={FOLLOWER: disk})
    brokers.create_topic(min_insync_replicas="2", segment_bytes="1048576", internal_segment_bytes="300")
    brokers.exchange()
    brokers.produce(1, b"a")
    brokers.produce(1, b"b")
    brokers.advance(1.0)
    cut_off(brokers)
    brokers.lead(FOLLOWER, (FOLLOWER,), to=[FOLLOWER])
    brokers.produce(FOLLOWER, b"of nobody", acks=1)
    brokers.lead(1, (1, 2), to=[1, 2])  # in the same epoch, in which it writes nothing
    disk.faults = list(faults)
    brokers.lead(1, (1, 2))
    brokers.produce(1, b"c", b"d")
    settle(brokers)
    delete_before(brokers, 1)
    settle(brokers)
    cut_off(brokers)
    for number in range(5):
        brokers.produce(1, b"%d" % number * 100)
    settle(brokers, heals=False)
    delete_before(brokers, 7)
    settle(brokers)
    return brokers, disk


def cut_off(brokers: ReplicaBrokers) -> None:
    for id in (1, 2):
        brokers.separate(id, FOLLOWER)


def settle(brokers: ReplicaBrokers, *, heals: bool = True) -> None:
    if heals:
        brokers.heal()
    for _ in range(2):
        brokers.advance(2.0)
        brokers.control()
    brokers.advance(0.6)  # until followers hear of the high watermark


def delete_before(brokers: ReplicaBrokers, offset: int) -> None:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=30_000
    )
    brokers.hosts[1].send(brokers.hosts[1].connect(), request, 2)


def replica(brokers: ReplicaBrokers, id: int) -> tuple[int, int, int, bytes]:
    partition = brokers.partition(id)
    log = partition.opened(brokers.clock.now())
    return log.log_start_offset, log.log_end_offset, partition.high_watermark, brokers.content(id)


def test_without_faults_the_follower_has_the_log_of_its_leader() -> None:
    brokers, _ = story()
    start, end, high_watermark, _ = replica(brokers, 1)
    assert (start, end, high_watermark) == (7, 9, 9)
    assert replica(brokers, FOLLOWER)[:3] == (7, 9, 9)
    assert brokers.values(FOLLOWER) == [b"3" * 100, b"4" * 100]
    assert set(brokers.state().isr) == {1, 2, FOLLOWER}
    events = [getattr(one, "event", "") for one in brokers.hosts[FOLLOWER].effects]
    assert events.count("replica_truncated") == 1
    assert events.count("replica_starts_over") == 1


@pytest.mark.parametrize(
    ("code", "operations", "times", "first"),
    [
        (errno.ENOSPC, SPACE_NEEDING, 1, 0),
        (errno.ENOSPC, SPACE_NEEDING, 4, 1),
        (errno.EMFILE, OPENS, 2, 2),
    ],
)
def test_what_has_run_out_costs_only_time(
    code: int, operations: frozenset[Operation], times: int, first: int
) -> None:
    for skip in count(first, step=5):
        fault = Fault(Fail(code), operations, skip=skip, times=times)
        brokers, disk = story(fault)
        if fault.times == times:
            assert skip > CALLS_MIN
            return
        disk.faults = []
        brokers.produce(1, b"last")
        brokers.advance(40.0)
        settle(brokers)
        assert not brokers.hosts[FOLLOWER].node.directories["data"].is_offline, f"call {skip}"
        assert replica(brokers, FOLLOWER)[:3] == replica(brokers, 1)[:3] == (7, 10, 10), f"call {skip}"
        assert brokers.values(FOLLOWER)[-3:] == [b"3" * 100, b"4" * 100, b"last"], f"call {skip}"
        assert set(brokers.state().isr) == {1, 2, FOLLOWER}, f"call {skip}"


@pytest.mark.parametrize(
    ("operations", "first"),
    [(CHANGES, 0), (frozenset[Operation](("read", "open", "list")), 1)],
    ids=["changes", "reads"],
)
def test_an_io_error_costs_the_directory_and_nobody_else(
    operations: frozenset[Operation], first: int
) -> None:
    offline = 0
    for skip in count(first, step=5):
        fault = Fault(Fail(errno.EIO), operations, skip=skip)
        brokers, _ = story(fault)
        if fault.times:
            break
        host, connection = brokers.produce(1, b"last")
        settle(brokers)
        answer = host.receive(connection)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, f"call {skip}"
        assert replica(brokers, 1) == replica(brokers, 2), f"call {skip}"
        if brokers.hosts[FOLLOWER].node.directories["data"].is_offline:
            offline += 1
            assert brokers.partition(FOLLOWER).follower is None, f"call {skip}"
            assert set(brokers.state().isr) == {1, 2}, f"call {skip}"
        else:
            assert replica(brokers, FOLLOWER)[:3] == (7, 10, 10), f"call {skip}"
        assert all(host.halted is None for host in brokers.hosts.values()), f"call {skip}"
    assert offline > 3


def test_records_that_a_follower_lacks_a_descriptor_to_delete_are_deleted_after_all() -> None:
    """Although nothing is appended after that, and so nothing makes the follower fetch again by itself."""
    struck = 0
    for skip in count():
        disk = FaultyDisk(MemoryDisk())
        brokers = ReplicaBrokers(disks={FOLLOWER: disk})
        brokers.create_topic(segment_bytes="1048576", internal_segment_bytes="300")
        brokers.exchange()
        for number in range(6):
            brokers.produce(1, b"%d" % number * 100)
        settle(brokers)
        fault = Fault(Fail(errno.EMFILE), OPENS, path="t-0", skip=skip, times=1)
        disk.faults = [fault]
        host = brokers.hosts[1]
        connection = host.connect()
        partitions = [DeleteRecordsPartition(partition_index=0, offset=5)]
        topics = [DeleteRecordsTopic(name="t", partitions=partitions)]
        host.send(connection, DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2)
        brokers.advance(5.0)
        (answer,) = host.receive(connection).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 5), f"call {skip}"
        if fault.times:
            break
        struck += 1
    assert struck


def test_a_follower_that_is_to_start_over_in_a_directory_that_has_failed_since() -> None:
    """A client's read has met the error, and nobody else was told yet."""
    brokers = ReplicaBrokers()
    brokers.create_topic(segment_bytes="1048576", internal_segment_bytes="300")
    brokers.exchange()
    cut_off(brokers)
    for number in range(5):
        brokers.produce(1, b"%d" % number * 100, acks=1)
    brokers.lead(1, (1, 2))
    settle(brokers, heals=False)
    delete_before(brokers, 4)
    settle(brokers, heals=False)
    follower = brokers.hosts[FOLLOWER].node
    follower.directories["data"].go_offline(OSError(errno.EIO, "Input/output error"))
    assert not brokers.partition(FOLLOWER).is_offline
    settle(brokers)
    assert brokers.partition(FOLLOWER).is_offline
    assert brokers.partition(FOLLOWER).follower is None


def test_a_follower_whose_log_moves_and_cannot_be_opened_at_once_writes_nothing_to_the_old_one() -> None:
    """The old one has no files any more: a write there would cost both directories."""
    struck = 0
    for skip in count():
        disk, spare = FaultyDisk(MemoryDisk()), FaultyDisk(MemoryDisk())
        brokers = ReplicaBrokers(disks={FOLLOWER: disk}, spare_disks={FOLLOWER: spare})
        brokers.create_topic(min_insync_replicas="2")
        brokers.exchange()
        brokers.produce(1, b"a")
        brokers.advance(1.0)
        host, partition = brokers.hosts[FOLLOWER], brokers.partition(FOLLOWER)
        source = partition.directory
        fault = Fault(Fail(errno.EMFILE), OPENS, skip=skip, times=3)
        disk.faults, spare.faults = [fault], [fault]
        host.node.broker.moves.order(
            brokers.clock.now(), partition, {"data": "spare", "spare": "data"}[source]
        )
        host.settle()
        disk.faults, spare.faults = [], []
        brokers.produce(1, b"b")
        settle(brokers)
        assert not host.node.directories.offline(), f"call {skip}"
        assert brokers.content(FOLLOWER) == brokers.content(1), f"call {skip}"
        assert set(brokers.state().isr) == {1, 2, FOLLOWER}, f"call {skip}"
        struck += fault.times < 3 and partition.directory != source
        if fault.times == 3:
            break
    assert struck
