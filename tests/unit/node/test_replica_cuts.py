"""What is left of a follower's log after it was cut: its start, its high watermark, and what is durable."""

from __future__ import annotations

import errno
from random import Random

from harness.replica_brokers import ReplicaBrokers
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.storage.faulty_disk import OPENS, Fail, Fault, FaultyDisk
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk


def log_of(brokers: ReplicaBrokers, id: int) -> PartitionLog:
    return brokers.partition(id).opened(brokers.clock.now())


def delete_before(brokers: ReplicaBrokers, offset: int) -> None:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    topics = [DeleteRecordsTopic(name="t", partitions=partitions)]
    host = brokers.hosts[1]
    host.send(host.connect(), DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2)


def about_to_be_cut_below_its_start() -> ReplicaBrokers:
    """Broker 2 has one record, and may come to lead without being in sync. The log of broker 3 starts behind
    that.
    """
    brokers = ReplicaBrokers()
    brokers.create_topic()
    brokers.exchange()
    brokers.produce(1, b"a")
    brokers.exchange()
    for id in (1, 3):
        brokers.separate(2, id)
    for value in (b"b", b"c", b"d", b"e"):
        brokers.produce(1, value)
    brokers.advance(3.0)
    brokers.control()
    delete_before(brokers, 4)
    brokers.advance(20.0)  # checkpoints are written
    assert log_of(brokers, 3).log_start_offset == 4
    for id in (2, 3):
        brokers.separate(1, id)
    brokers.cut -= {(2, 3), (3, 2)}
    return brokers


def test_the_start_of_a_log_that_is_cut_below_it_falls_for_good() -> None:
    """Or a restart would remove the records that came since, of which others count on this replica."""
    brokers = about_to_be_cut_below_its_start()
    brokers.lead(2, (2,))
    brokers.advance(3.0)
    assert (log_of(brokers, 3).log_start_offset, log_of(brokers, 3).log_end_offset) == (1, 1)
    brokers.produce(2, b"x", acks=1)
    brokers.advance(20.0)
    brokers.control()
    assert set(brokers.state().isr) >= {2, 3}
    brokers.kill(3)
    brokers.restart(3)
    assert (log_of(brokers, 3).log_start_offset, log_of(brokers, 3).log_end_offset) == (1, 2)
    assert brokers.values(3)[-1] == b"x"


def test_the_start_falls_also_if_a_checkpoint_is_written_during_the_cut() -> None:
    brokers = about_to_be_cut_below_its_start()
    host = brokers.hosts[3]
    host.runs_jobs = False
    brokers.lead(2, (2,))
    host.run_jobs()
    brokers.exchange()
    assert [type(job.job).__name__ for job in host.jobs] == ["CheckpointJob"]  # before the cut
    host.node.directories.offsets_moved()
    host.node.directories.checkpoint(brokers.clock.now())
    host.run_jobs()
    host.runs_jobs = True
    brokers.produce(2, b"x", acks=1)
    brokers.exchange()
    brokers.kill(3)
    brokers.restart(3)
    assert (log_of(brokers, 3).log_start_offset, log_of(brokers, 3).log_end_offset) == (1, 2)


def test_the_start_of_a_log_that_is_not_cut_after_all_does_not_fall() -> None:
    """Another leader is elected before, and the replica has what that one has."""
    brokers = about_to_be_cut_below_its_start()
    host = brokers.hosts[3]
    host.runs_jobs = False
    brokers.lead(2, (2,))
    host.run_jobs()
    brokers.exchange()
    assert [type(job.job).__name__ for job in host.jobs] == ["CheckpointJob"]
    brokers.lead(1, (1,))
    host.run_jobs()
    host.runs_jobs = True
    brokers.heal()
    brokers.advance(20.0)
    brokers.kill(3)
    brokers.restart(3)
    assert (log_of(brokers, 3).log_start_offset, log_of(brokers, 3).log_end_offset) == (4, 5)


def test_a_checkpoint_during_a_cut_has_the_lower_high_watermark() -> None:
    """Or a start would take for committed what was fetched after the cut, and is not committed anywhere."""
    brokers = ReplicaBrokers()
    brokers.create_topic(min_insync_replicas="2")
    brokers.exchange()
    brokers.produce(1, b"a")
    brokers.exchange()
    for id in (1, 3):
        brokers.separate(2, id)
    for value in (b"b", b"c", b"d"):
        brokers.produce(1, value)
    brokers.advance(3.0)
    brokers.control()
    brokers.advance(20.0)
    assert brokers.partition(3).high_watermark == 4
    for id in (2, 3):
        brokers.separate(1, id)
    brokers.cut -= {(2, 3), (3, 2)}
    host = brokers.hosts[3]
    host.runs_jobs = False
    brokers.lead(2, (1, 2))  # broker 1 is in sync by name
    host.run_jobs()
    brokers.exchange()
    assert [type(job.job).__name__ for job in host.jobs] == ["CheckpointJob"]  # before the cut
    directories = host.node.directories
    directories.offsets_moved()
    directories.checkpoint(brokers.clock.now())
    host.run_job()
    host.settle()
    directories.offsets_moved()
    directories.checkpoint(brokers.clock.now())  # the log is cut, and that is not flushed yet
    host.run_jobs()
    host.runs_jobs = True
    for value in (b"x", b"y", b"z"):
        brokers.produce(2, value, acks=1)
    brokers.exchange()
    assert brokers.values(3) == [b"a", b"x", b"y", b"z"]
    assert brokers.partition(3).high_watermark == 1
    brokers.kill(3)
    brokers.restart(3)
    assert brokers.partition(3).high_watermark == 1


def cut_and_not_flushed(disk: FaultyDisk | None = None) -> ReplicaBrokers:
    """Broker 3 has flushed records that no other has, each in a segment of its own, and has just cut them
    off.
    """
    brokers = ReplicaBrokers(disks={3: disk} if disk is not None else None)
    brokers.create_topic(segment_bytes="1048576", internal_segment_bytes="200")
    brokers.exchange()
    for value in (b"a", b"b"):
        brokers.produce(1, value * 100)
    brokers.advance(1.0)
    for id in (1, 2):
        brokers.separate(3, id)
    brokers.lead(3, (3,), to=[3])
    for value in (b"old-2", b"old-3", b"old-4"):
        brokers.produce(3, value * 20, acks=1)
    host = brokers.hosts[3]
    host.node.directories.want_flush(brokers.clock.now(), brokers.partition(3))
    host.settle()
    assert log_of(brokers, 3).flushed_offset == 5
    brokers.lead(1, (1, 2), to=[1, 2])  # in the same epoch, in which it writes nothing
    brokers.heal()
    host.runs_jobs = False
    brokers.lead(1, (1, 2))
    host.run_jobs()
    brokers.advance(0.1)
    assert [type(job.job).__name__ for job in host.jobs] == ["CheckpointJob"]
    host.run_job()
    host.settle()
    assert log_of(brokers, 3).log_end_offset == 2
    assert [type(job.job).__name__ for job in host.jobs] == ["FlushTogether"]
    return brokers


def hear_of_leader(brokers: ReplicaBrokers, leader: int, isr: tuple[int, ...]) -> None:
    """The metadata of broker 3 are flushed, and its log is not."""
    brokers.lead(leader, isr)
    host = brokers.hosts[3]
    (flush,) = [job for job in host.jobs if job.directory == "data"]
    host.jobs.remove(flush)
    host.run_jobs()
    host.jobs.append(flush)


def check_after_power_loss(brokers: ReplicaBrokers) -> None:
    """Whatever is left is the log as it was before the cut, or after it: not new records before old ones."""
    disk = brokers.disks[3]
    if isinstance(disk, FaultyDisk):
        disk = disk.disk
    assert isinstance(disk, MemoryDisk)
    assert log_of(brokers, 3).log_end_offset == 4
    for segment in log_of(brokers, 3).segments.items[2:]:
        segment.file().sync()  # the kernel writes what it likes, and when
    brokers.kill(3)
    old = [b"a" * 100, b"b" * 100, b"old-2" * 20, b"old-3" * 20, b"old-4" * 20]
    new = [b"a" * 100, b"b" * 100, b"new-2" * 20, b"new-3" * 20]
    for seed in range(40):
        brokers.disks[3] = disk.crash("lost", Random(seed))
        brokers.restart(3, "another boot")
        left = brokers.values(3)
        assert left in (old[: len(left)], new[: len(left)])
        brokers.kill(3)


def test_a_leader_appends_when_the_cut_of_its_follower_days_is_durable() -> None:
    brokers = cut_and_not_flushed()
    hear_of_leader(brokers, 3, (3, 1, 2))
    for value in (b"new-2", b"new-3"):
        brokers.produce(3, value * 20, acks=1)
    check_after_power_loss(brokers)


def test_a_leader_appends_when_the_cut_is_durable_although_no_descriptor_was_left_for_that() -> None:
    disk = FaultyDisk(MemoryDisk())
    brokers = cut_and_not_flushed(disk)
    disk.faults = [Fault(Fail(errno.EMFILE), OPENS)]
    hear_of_leader(brokers, 3, (3, 1, 2))
    assert disk.faults[0].times == 0
    for value in (b"new-2", b"new-3"):
        brokers.produce(3, value * 20, acks=1)
    check_after_power_loss(brokers)


def test_a_follower_appends_when_the_cut_under_another_leader_is_durable() -> None:
    brokers = cut_and_not_flushed()
    hear_of_leader(brokers, 2, (1, 2))
    for value in (b"new-2", b"new-3"):
        brokers.produce(2, value * 20, acks=1)
    brokers.advance(2.0)
    check_after_power_loss(brokers)
