"""A replica that moves to another log directory while its log is cut: the copy is cut, too."""

from __future__ import annotations

import pytest

from headrace.node import replica_moves
from headrace.node.partition import Partition
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost
from headrace.storage.damage import Damage
from headrace.storage.memory_disk import MemoryDisk


def test_the_copy_has_what_was_written_after_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_moves, "REST_BYTES_MAX", 100)  # a log of a few hundred bytes is a long one
    host = ManualHost(disks={"one": MemoryDisk(), "two": MemoryDisk()})
    host.create_topic("t", internal_segment_bytes="300")
    for number in range(10):
        host.ask(host.produce_request("t", build_batch([(0, None, b"%d" % number, ())])), 9)
    (partition,) = host.partitions("t")
    target = {"one": "two", "two": "one"}[partition.directory]
    host.runs_jobs = False
    topic = AlterReplicaLogDirTopic(name="t", partitions=[0])
    host.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[topic])]), 2)
    (move,) = host.node.broker.moves.under_way()
    while move.copied_offset < 4:
        host.run_job()
        host.settle()
    log = partition.opened(host.clock.now())
    log.cut_to(5, 0)  # as a follower does whose leader has other records
    for number in range(5, 10):
        batch = bytearray(build_batch([(0, None, b"new %d" % number, ())]))
        log.append(memoryview(batch), wall_ms=0, leader_epoch=3)
    written = content(partition)
    host.run_jobs()
    assert partition.directory == target
    assert content(partition) == written


def test_what_a_log_lacks_is_not_forgotten_when_it_moves() -> None:
    """A replica that gets the rest from its leader: the copy would be one without a fault, and in sync."""
    host = ManualHost(disks={"one": MemoryDisk(), "two": MemoryDisk()})
    host.create_topic("t")
    for number in range(3):
        host.ask(host.produce_request("t", build_batch([(0, None, b"%d" % number, ())])), 9)
    (partition,) = host.partitions("t")
    log = partition.opened(host.clock.now())
    lacks = Damage("t-0", "the segments from offset 1 on are missing", 1)
    log.damages.append(lacks)
    target = {"one": "two", "two": "one"}[partition.directory]
    topic = AlterReplicaLogDirTopic(name="t", partitions=[0])
    host.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[topic])]), 2)
    host.run_jobs()
    assert partition.directory == target
    assert partition.log is not None
    assert partition.log is not log
    assert partition.log.damages == [lacks]


def content(partition: Partition) -> list[bytes]:
    log = partition.log
    assert log is not None
    found: list[bytes] = []
    for segment in log.segments.items:
        if not segment.is_new:
            data = bytes(segment.file().read(0, segment.measure()))
            for position, header in batches(data):
                found += [row[3] or b"" for row in read_rows(data, position, header)]
    return found
