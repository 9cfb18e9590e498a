"""Partitions that move between two log directories: nothing is lost, wherever the move is cut short."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from harness.compaction import newest
from harness.disks import memory_of
from headrace.base.time import Now
from headrace.node import replica_moves
from headrace.node.effects import Report
from headrace.node.partition import Partition
from headrace.node.replica_moves import QUEUE
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import alter_replica_log_dirs as directories
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.server.disk import UnusableDisk
from headrace.simulator.manual_host import ManualHost
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE, RemoveDirectoryJob
from headrace.storage.disk import Disk
from headrace.storage.errors import DamagedLog
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fail, Fault, FaultyDisk, Operation
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk


@pytest.fixture(autouse=True)
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that logs of a few hundred bytes are copied as long ones are."""
    monkeypatch.setattr(replica_moves, "REST_BYTES_MAX", 100)


SEGMENT = {"internal_segment_bytes": "300"}


def two_disks() -> dict[str, Disk]:
    return {"one": MemoryDisk(), "two": MemoryDisk()}


def batch(number: int, **producer: Any) -> bytes:
    return build_batch([(1_700_000_000_000 + number, None, b"value %d" % number, ())], **producer)


def produce(host: ManualHost, number: int, **producer: int) -> int:
    answer = host.ask(host.produce_request("t", batch(number, **producer)), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def home(host: ManualHost) -> str:
    (partition,) = host.partitions("t")
    return partition.directory


def other(directory: str) -> str:
    return {"one": "two", "two": "one"}[directory]


def move(host: ManualHost, path: str) -> int:
    topic = directories.AlterReplicaLogDirTopic(name="t", partitions=[0])
    request = directories.AlterReplicaLogDirsRequest(
        dirs=[directories.AlterReplicaLogDir(path=path, topics=[topic])]
    )
    return int(host.ask(request, 2).results[0].partitions[0].error_code)


def values(host: ManualHost) -> list[bytes]:
    """Every record, read as a consumer would."""
    found: list[bytes] = []
    (held,) = host.partitions("t")
    offset = held.opened(host.clock.now()).log_start_offset
    while True:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
        )
        part = host.ask(request, 11).responses[0].partitions[0]
        assert part.error_code == 0
        data = bytes(part.records)
        rows = [row for position, header in batches(data) for row in read_rows(data, position, header)]
        if not rows:
            return found
        found += [value for _, _, _, value, _ in rows if value is not None]
        offset = rows[-1][0] + 1


def expected(*numbers: int) -> list[bytes]:
    return [b"value %d" % number for number in numbers]


def host_with_records(count: int = 10, **configs: str) -> ManualHost:
    host = ManualHost(disks=two_disks())
    host.create_topic("t", **SEGMENT, **configs)
    for number in range(count):
        assert produce(host, number) == 0
    return host


def told(host: ManualHost) -> dict[str, list[bool]]:
    """By directory, whether the replica that it describes is a future one."""
    response = host.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        result.log_dir: [one.is_future_key for topic in result.topics for one in topic.partitions]
        for result in response.results
    }


def step(host: ManualHost) -> bool:
    """One job; False when there is none."""
    if not host.jobs:
        return False
    host.run_job()
    host.settle()
    return True


def test_a_partition_moves_with_all_it_has_and_is_found_there_after_a_restart() -> None:
    host = host_with_records()
    before = home(host)
    assert move(host, other(before)) == 0
    assert home(host) == other(before)
    assert told(host) == {before: [], other(before): [False]}
    assert produce(host, 10) == 0
    assert values(host) == expected(*range(11))
    image = host.node.controller.metadata.image.topics["t"].partitions[0]
    assert image.directories == (host.node.directories[other(before)].directory_id,)
    host.advance(120)
    assert [name for name in host.disks[before].list("") if name.startswith("t-0")] == []
    for boot_id in ("boot-1", "boot-2"):
        again = ManualHost(disks=host.disks, seed=5, boot_id=boot_id)
        assert home(again) == other(before)
        assert values(again) == expected(*range(11))


def test_there_and_back_again() -> None:
    host = host_with_records(4)
    first = home(host)
    for number, target in enumerate((other(first), first, other(first)), 4):
        assert move(host, target) == 0
        assert home(host) == target
        assert produce(host, number) == 0
    assert values(host) == expected(*range(7))
    assert values(ManualHost(disks=host.disks, seed=5)) == expected(*range(7))


def test_it_is_written_to_while_it_moves() -> None:
    host = host_with_records()
    before = home(host)
    host.runs_jobs = False
    assert move(host, other(before)) == 0
    number, steps = 10, 0
    while home(host) == before:
        assert told(host) == {before: [False], other(before): [True]}
        if steps % 5 == 0:  # the copy is faster than who writes
            assert produce(host, number) == 0
            number += 1
        assert step(host), "the move waits for a job"
        steps += 1
        assert steps < 500, "it never arrives"
    host.run_jobs()
    assert number > 12
    assert values(host) == expected(*range(number))


def test_a_producer_is_remembered() -> None:
    host = host_with_records(0)
    producer = {"producer_id": 7, "producer_epoch": 0}
    for number in range(3):
        assert produce(host, number, base_sequence=number, **producer) == 0
    move(host, other(home(host)))
    assert produce(host, 2, base_sequence=2, **producer) == 0  # again: known, and not written twice
    gap = produce(host, 9, base_sequence=9, **producer)
    assert gap == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(host, 3, base_sequence=3, **producer) == 0
    assert values(host) == expected(0, 1, 2, 3)


def test_what_was_deleted_stays_deleted() -> None:
    host = host_with_records()
    partition = DeleteRecordsPartition(partition_index=0, offset=5)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    deleted = host.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    assert deleted.topics[0].partitions[0].low_watermark == 5
    target = other(home(host))
    move(host, target)
    assert values(host) == expected(*range(5, 10))
    # killed at once: no checkpoint was written since
    assert values(ManualHost(disks=host.disks, seed=5)) == expected(*range(5, 10))


def test_an_acknowledgement_that_waits_for_a_flush_comes_also_when_the_log_moves_meanwhile() -> None:
    host = host_with_records(3, flush_messages="1")
    before = home(host)
    host.runs_jobs = False
    connection = host.connect()
    move(host, other(before))
    host.send(connection, host.produce_request("t", batch(3)), 9)
    assert host.receive(connection) is None
    flush = next(job for job in host.jobs if job.queue == "flush")
    host.jobs.remove(flush)
    while home(host) == before:
        assert step(host)
    host.jobs.append(flush)  # it looks for files that were renamed
    host.run_jobs()
    assert host.receive(connection).responses[0].partition_responses[0].error_code == 0
    assert not host.node.directories[before].is_offline
    assert values(host) == expected(*range(4))


def test_a_move_is_called_off() -> None:
    host = host_with_records()
    before = home(host)
    host.runs_jobs = False
    move(host, other(before))
    for _ in range(3):
        assert step(host)
    assert move(host, before) == 0
    host.run_jobs()
    assert home(host) == before
    assert told(host) == {before: [False], other(before): []}
    assert [name for name in host.disks[other(before)].list("") if name.startswith("t-0")] == []
    host.runs_jobs = True
    assert move(host, other(before)) == 0
    assert home(host) == other(before)


def test_what_lay_in_the_way_of_the_copy_is_not_taken_for_a_part_of_it() -> None:
    """Such as what an earlier copy left, whose removal failed."""
    host = ManualHost(disks=host_with_records().disks, seed=2)  # after a kill recovery looks at the end only
    target = other(home(host))
    host.runs_jobs = False
    move(host, target)
    for _ in range(4):
        assert step(host)
    (future,) = [name for name in host.disks[target].list("") if name.endswith("-future")]
    host.disks[target].open(f"{future}/{1:020d}.log", create=True).append(batch(99))
    host.run_jobs()
    assert home(host) == target
    assert f"{1:020d}.log" not in host.disks[target].list("t-0")
    assert values(ManualHost(disks=host.disks, seed=5)) == expected(*range(10))


def test_a_copy_that_is_not_whole_never_stands_in_for_what_is_lost() -> None:
    """The source's directory is gone after a stop in the middle: better no records than only the oldest."""
    host = host_with_records()
    source = home(host)
    host.runs_jobs = False
    move(host, other(source))
    for _ in range(8):
        assert step(host)
    lost = host.disks[source]
    for name in lost.list("t-0"):
        lost.remove(f"t-0/{name}")
    lost.remove("t-0")
    again = ManualHost(disks=host.disks, seed=5)
    assert values(again) == []
    again.advance(120)
    for disk in again.disks.values():
        assert [name for name in disk.list("") if name.startswith("t-0.")] == []


def test_a_topic_that_is_deleted_on_the_way() -> None:
    host = host_with_records()
    before = home(host)
    host.runs_jobs = False
    move(host, other(before))
    for _ in range(3):
        assert step(host)
    host.runs_jobs = True
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    assert host.ask(request, 6).responses[0].error_code == 0
    host.advance(120)
    for disk in host.disks.values():
        assert [name for name in disk.list("") if name.startswith("t-0")] == []


def test_a_move_that_ends_before_the_deletion_of_its_topic_is_durable() -> None:
    """The controller does not know the topic any more, the partition is still there."""
    host = host_with_records()
    before = home(host)
    host.runs_jobs = False
    assert move(host, other(before)) == 0
    deleting = host.connect()
    host.send(deleting, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000), 6)
    (flush,) = [job for job in host.jobs if job.queue == "metadata"]
    host.jobs.remove(flush)
    while step(host) and home(host) == before:
        pass
    assert home(host) == other(before), "the move was to end first"
    host.jobs.append(flush)
    host.run_jobs()
    assert host.receive(deleting).responses[0].error_code == 0
    host.runs_jobs = True
    host.create_topic("t", **SEGMENT)
    assert produce(host, 11) == 0
    assert move(host, other(home(host))) == 0
    assert values(host) == expected(11)


def test_what_retention_takes_on_the_way_is_not_in_the_copy() -> None:
    host = host_with_records(retention_bytes="300", file_delete_delay_ms="0")
    before = home(host)
    host.runs_jobs = False
    move(host, other(before))
    for _ in range(4):
        assert step(host)
    (partition,) = host.partitions("t")
    host.runs_jobs = True
    host.advance(600)
    assert home(host) == other(before)
    start = partition.opened(host.clock.now()).log_start_offset
    assert start > 0
    assert values(host) == expected(*range(start, 10))
    assert values(ManualHost(disks=host.disks, seed=5)) == expected(*range(start, 10))


@pytest.mark.parametrize(("code", "is_offline"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_target_that_fails(code: int, is_offline: bool) -> None:
    """A full disk ends the move and a broken one its directory; the partition stays where it is."""
    disks = two_disks()
    host = ManualHost(disks=disks)
    host.create_topic("t", **SEGMENT)
    move(host, "one")  # where the metadata log lies, whose failure would end the node
    before, target = "one", "two"
    disks[target] = host.node.directories.disks[target] = FaultyDisk(
        disks[target], [Fault(Fail(code), operation="append", path="-future")]
    )
    for number in range(10):
        produce(host, number)
    assert move(host, target) == 0
    assert home(host) == before
    assert host.node.directories[target].is_offline is is_offline
    assert any(isinstance(one, Report) and one.event == "move_failed" for one in host.effects)
    assert produce(host, 10) == 0
    assert values(host) == expected(*range(11))
    if not is_offline:
        assert move(host, target) == 0
        assert home(host) == target
        assert values(host) == expected(*range(11))


@pytest.mark.parametrize("operation", ["open", "read", "list", "rename", "sync_dir"])
def test_a_source_that_fails_costs_the_target_nothing(operation: Operation) -> None:
    """Whoever clears a disk that fails moves its partitions to one that is well: here the metadata's."""
    for skip in range(100):
        broken = FaultyDisk(MemoryDisk())
        disks: dict[str, Disk] = {"one": MemoryDisk(), "two": broken}
        host = ManualHost(disks=disks)
        host.create_topic("t", **SEGMENT)
        assert move(host, "two") == 0
        for number in range(4):
            produce(host, number)
        fault = Fault(Fail(errno.EIO), operation, skip=skip)
        broken.faults.append(fault)
        assert move(host, "one") == 0
        if fault.times:
            assert skip, "the disk was to fail in the middle of the move"
            break
        assert host.halted is None
        assert host.node.directories["two"].is_offline
        assert not host.node.directories["one"].is_offline
        after = ManualHost(disks=disks, boot_id="boot-2", clock=host.clock)
        assert values(after) == expected(*range(4))


def test_a_log_that_is_damaged_costs_its_directory_nothing() -> None:
    """It is found when the move opens the log: only the partition is offline, as for everybody else."""
    host = host_with_records()
    after = ManualHost(disks=host.disks, clock=host.clock)
    (partition,) = after.partitions("t")

    def damaged(partition: Partition, now: Now) -> PartitionLog:
        raise DamagedLog("its end is not what was written")

    partition.open_log = damaged
    assert move(after, other(home(after))) == 0
    assert partition.is_offline
    assert after.halted is None
    assert after.node.directories.offline() == []
    assert after.node.broker.moves.under_way() == []
    after.create_topic("u")


class Story:
    """Six records, a move, two more; stops where a disk crashes."""

    def __init__(self, disks: dict[str, Disk]) -> None:
        self.acknowledged: list[int] = []
        self.attempted: list[int] = []
        self.calls_before: dict[str, int] = {}  # changes of each disk before the move
        try:
            host = ManualHost(disks=disks)
            host.create_topic("t", **SEGMENT, flush_messages="1")
            for number in range(6):
                self._produce(host, number)
            for name, disk in disks.items():
                self.calls_before[name] = len(disk.changes()) if isinstance(disk, FaultyDisk) else 0
            move(host, other(home(host)))
            for number in range(6, 8):
                self._produce(host, number)
        except DiskCrashed:
            return

    def _produce(self, host: ManualHost, number: int) -> None:
        self.attempted.append(number)
        assert produce(host, number) == 0
        self.acknowledged.append(number)


@pytest.mark.parametrize("kind", ["killed", "lost"])
@pytest.mark.parametrize("broken", ["one", "two"])
def test_a_crash_at_every_disk_call(kind: Any, broken: str) -> None:
    """The node stops at each change of either disk in turn, and starts again on what is left of both."""
    whole: dict[str, Disk] = {name: FaultyDisk(disk) for name, disk in two_disks().items()}
    first = Story(whole).calls_before[broken]
    recorder = whole[broken]
    assert isinstance(recorder, FaultyDisk)
    last = len(recorder.changes())
    assert last - first > 5
    boot_id = "boot-1" if kind == "killed" else "boot-2"
    for place in range(first, last):
        memories = {"one": MemoryDisk(), "two": MemoryDisk()}
        disks: dict[str, Disk] = dict(memories)
        disks[broken] = FaultyDisk(memories[broken], [Fault(Crash(written=place % 7), skip=place)])
        story = Story(disks)
        left: dict[str, Disk] = {name: memory.crash(kind, Random(place)) for name, memory in memories.items()}
        host = ManualHost(disks=left, seed=place, boot_id=boot_id)
        found = values(host)
        assert found[: len(story.acknowledged)] == expected(*story.acknowledged), f"lost at {place}"
        assert found in (expected(*story.acknowledged), expected(*story.attempted)), f"too many at {place}"
        names = [name for disk in left.values() for name in disk.list("") if name == "t-0"]
        assert len(names) == 1, f"two logs at {place}"
        host.advance(120)
        rest = [name for disk in left.values() for name in disk.list("") if name.startswith("t-0.")]
        assert rest == [], f"left over at {place}"
        assert move(host, other(home(host))) == 0
        assert values(host) == found, f"lost by the next move at {place}"


def test_a_move_that_a_kill_cut_short_waits_for_a_target_that_cannot_be_read() -> None:
    """The metadata does not have the move yet: nothing may begin again in the old directory."""
    settings = {"metadata.log.dir": "two"}
    for skip in range(1000):
        faulty = {name: FaultyDisk(MemoryDisk()) for name in ("one", "two")}
        host = ManualHost(settings, disks=dict[str, Disk](faulty))
        host.create_topic("t", **SEGMENT)
        assert home(host) == "two"
        for number in range(3):
            assert produce(host, number) == 0
        crash = Fault(Crash(), skip=skip)
        for disk in faulty.values():
            disk.faults.append(crash)
        try:
            move(host, "one")
        except DiskCrashed:
            pass
        left = {name: memory_of(disk).crash("killed") for name, disk in faulty.items()}
        unreadable = UnusableDisk(OSError(errno.EIO, "Input/output error"))
        for _ in range(2):
            again = ManualHost(settings, disks={"one": unreadable, "two": left["two"]}, seed=5)
            again.advance(120)
            (held,) = again.partitions("t")
            assert held.is_offline or held.opened(again.clock.now()).log_end_offset == 3
        whole = ManualHost(settings, disks=dict[str, Disk](left), seed=6)
        assert values(whole) == expected(*range(3))
        if crash.times:
            return


COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}


@pytest.mark.parametrize("rest_bytes_max", [100, 1 << 20], ids=["long", "short"])
def test_a_log_whose_rewritten_segments_had_no_space_for_their_names_moves_with_all_of_them(
    rest_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator moves partitions away when a disk is full. The copy of a short log had neither the
    segments that compaction had merged nor the one that replaced them.
    """
    monkeypatch.setattr(replica_moves, "REST_BYTES_MAX", rest_bytes_max)
    settings = {"metadata.log.dir": "two"}
    for renames in range(100):
        disk = FaultyDisk(MemoryDisk())
        disks: dict[str, Disk] = {"full": disk, "two": MemoryDisk()}
        host = ManualHost(settings, disks=disks)
        host.create_topic("t", **COMPACT, file_delete_delay_ms="1000")
        move(host, "full")
        now = host.clock.now()
        (partition,) = host.partitions("t")
        log = partition.opened(now)
        for number in range(12):
            record = (now.wall_ms, b"key %d" % (number % 4), b"value %d" % number, ())
            partition.append(memoryview(bytearray(build_batch([record]))), now)
            if number % 3 == 2:
                log.roll(now.wall_ms)
        flush = log.flush_job()
        assert flush is not None
        log.complete_flush(flush.run(disk))
        job = log.clean_job(now.wall_ms, log.log_end_offset)
        assert job is not None
        cleaned = job.run(disk)
        state = newest(log)
        assert len(state) == 4

        fault = Fault(Fail(errno.ENOSPC), "rename", skip=renames)
        disk.faults = [fault]
        partition._directories.remove_segments(now, partition, log.complete_cleaning(cleaned, now.wall_ms))
        disk.faults = []
        move(host, "two")
        assert home(host) == "two"
        assert newest(partition.opened(now)) == state, f"rename {renames}"
        host.advance(5)
        assert [name for name in disk.list("") if name.startswith("t-0")] == []
        again = ManualHost(settings, disks=disks, seed=5)
        (partition,) = again.partitions("t")
        assert newest(partition.opened(again.clock.now())) == state
        if fault.times:
            assert renames > 10
            return
    raise AssertionError("it never came to an end")


def unreadable() -> Disk:
    return UnusableDisk(OSError(errno.EIO, "Input/output error"))


@pytest.mark.parametrize("is_told_late", [False, True])
def test_where_a_partition_lies_is_told_until_the_metadata_has_it(is_told_late: bool) -> None:
    """Otherwise a start that cannot read the directory would begin the partition again in the old one, where
    nothing is left of it.
    """
    settings = {"metadata.log.dir": "meta", "log.dirs": "one,two"}
    meta, one = FaultyDisk(MemoryDisk()), FaultyDisk(MemoryDisk())
    disks: dict[str, Disk] = {"meta": meta, "one": one, "two": MemoryDisk()}
    host = ManualHost(settings, disks=disks)
    host.create_topic("t", **SEGMENT, file_delete_delay_ms="1000")
    move(host, "two")
    for number in range(3):
        assert produce(host, number) == 0
    meta.faults = [Fault(Fail(errno.ENOSPC), "append", times=1000)]
    assert move(host, "one") == 0
    assert home(host) == "one"
    host.advance(30)
    left = dict[str, Disk](disks)
    if is_told_late:
        meta.faults = []
        host.advance(30)
        assert [name for name in disks["two"].list("") if name.startswith("t-0")] == []
    else:
        meta.faults = []
    again = ManualHost(settings, disks=left | {"one": unreadable()}, seed=5)
    (partition,) = again.partitions("t")
    assert partition.is_offline
    assert values(ManualHost(settings, disks=left, seed=6)) == expected(*range(3))


def test_a_start_tells_where_it_found_what_a_kill_kept_from_the_metadata() -> None:
    settings = {"metadata.log.dir": "meta", "log.dirs": "one,two"}
    for skip in range(1000):
        faulty = {name: FaultyDisk(MemoryDisk()) for name in ("meta", "one", "two")}
        host = ManualHost(settings, disks=dict[str, Disk](faulty))
        host.create_topic("t", **SEGMENT)
        move(host, "two")
        for number in range(3):
            assert produce(host, number) == 0
        crash = Fault(Crash(), skip=skip)
        for disk in faulty.values():
            disk.faults.append(crash)
        try:
            move(host, "one")
        except DiskCrashed:
            pass
        left: dict[str, Disk] = {name: memory_of(disk).crash("killed") for name, disk in faulty.items()}
        whole = ManualHost(settings, disks=left, seed=5)
        whole.advance(120)
        assert values(whole) == expected(*range(3))
        place = home(whole)
        for broken in ("one", "two"):
            again = ManualHost(settings, disks=left | {broken: unreadable()}, seed=6)
            (partition,) = again.partitions("t")
            assert partition.is_offline is (broken == place)
        if crash.times:
            assert skip > 10
            return
    raise AssertionError("it never came to an end")


def run_first(host: ManualHost, *queues: str) -> None:
    """All jobs of these queues, before the others."""
    while (job := next((one for one in host.jobs if one.queue in queues), None)) is not None:
        host.jobs.remove(job)
        host.jobs.appendleft(job)
        step(host)


def test_the_next_move_waits_for_the_removal_of_what_the_last_one_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The removal was under way when the next move had brought the log under the same name, and took it."""
    monkeypatch.setattr(replica_moves, "REST_BYTES_MAX", 1 << 20)
    settings = {"metadata.log.dir": "meta", "log.dirs": "one,two"}
    faulty = {name: FaultyDisk(MemoryDisk()) for name in ("meta", "one", "two")}
    host = ManualHost(settings, disks=dict[str, Disk](faulty))
    host.create_topic("t", **SEGMENT)
    move(host, "one")
    for number in range(3):
        assert produce(host, number) == 0
    host.runs_jobs = False
    # the whole copy is there, but the old log cannot be renamed away
    faulty["one"].faults = [Fault(Fail(errno.ENOSPC), "rename", path="-delete")]
    assert move(host, "two") == 0
    while any(one.queue != QUEUE or not isinstance(one.job, RemoveDirectoryJob) for one in host.jobs):
        step(host)
    assert [job.queue for job in host.jobs] == [QUEUE]
    assert home(host) == "one"
    # the next one brings it, and it has no space for its own name
    faulty["two"].faults = [Fault(Fail(errno.ENOSPC), "rename", path="t-0", skip=1)]
    assert move(host, "two") == 0
    run_first(host, CHECKPOINT_QUEUE)
    host.run_jobs()
    host.runs_jobs = True
    host.settle()
    host.advance(120)
    assert home(host) == "two"
    assert values(host) == expected(*range(3))
    assert values(ManualHost(settings, disks=dict(host.disks), seed=5)) == expected(*range(3))


def test_a_whole_copy_that_nobody_wants_is_removed_before_the_next_move_begins() -> None:
    """The removal of the first found no descriptor. A kill at the right moment of the second move would have
    left two whole copies, and a start takes the first that it finds.
    """
    settings = {"metadata.log.dir": "meta", "log.dirs": "one,two,three"}
    faulty = {name: FaultyDisk(MemoryDisk()) for name in ("meta", "one", "two", "three")}
    host = ManualHost(settings, disks=dict[str, Disk](faulty))
    host.create_topic("t", **SEGMENT)
    move(host, "one")
    for number in range(3):
        assert produce(host, number) == 0
    faulty["one"].faults = [Fault(Fail(errno.ENOSPC), "rename", path="-delete")]
    # the list of the copy's files, for its removal
    faulty["two"].faults = [Fault(Fail(errno.EMFILE), "list", path="-moved", skip=1, times=3)]
    assert move(host, "two") == 0
    assert home(host) == "one"
    assert [name for name in faulty["two"].list("") if name.endswith("-moved")]
    assert produce(host, 3) == 0
    assert move(host, "three") == 0
    assert home(host) == "one"
    host.advance(5)
    assert home(host) == "three"
    assert [name for name in faulty["two"].list("") if name.endswith("-moved")] == []
    assert values(host) == expected(*range(4))


def test_a_log_does_not_move_to_where_an_earlier_topic_of_its_name_waits_for_its_removal() -> None:
    """The directory was taken offline: the earlier log had the name, and the new one could not get it."""
    settings = {"metadata.log.dir": "meta", "log.dirs": "one,two"}
    two = FaultyDisk(MemoryDisk())
    disks: dict[str, Disk] = {"meta": MemoryDisk(), "one": MemoryDisk(), "two": two}
    host = ManualHost(settings, disks=disks, seed=2)  # with directory ids of which that of `one` comes first
    host.create_topic("t", **SEGMENT)
    assert home(host) == "one"
    move(host, "two")
    assert produce(host, 0) == 0
    two.faults = [Fault(Fail(errno.ENOSPC), "rename", path="-delete", times=1000)]
    host.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    host.create_topic("t", **SEGMENT)
    assert home(host) == "one"
    assert produce(host, 1) == 0
    assert move(host, "two") == 0
    assert not host.node.directories["two"].is_offline
    assert home(host) == "one"
    assert values(host) == expected(1)
    two.faults = []
    host.advance(2)
    assert move(host, "two") == 0
    assert home(host) == "two"
    assert values(host) == expected(1)


def test_a_deletion_that_fails_where_the_log_was_costs_that_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cost the one that the log had moved to meanwhile."""
    monkeypatch.setattr(replica_moves, "REST_BYTES_MAX", 1 << 20)
    settings = {"metadata.log.dir": "meta", "log.dirs": "one,two"}
    one = FaultyDisk(MemoryDisk())
    host = ManualHost(settings, disks={"meta": MemoryDisk(), "one": one, "two": MemoryDisk()})
    host.create_topic("t", **SEGMENT)
    move(host, "one")
    for number in range(3):
        assert produce(host, number) == 0
    host.runs_jobs = False
    deletion = host.connect()
    parts = [DeleteRecordsPartition(partition_index=0, offset=2)]
    topics = [DeleteRecordsTopic(name="t", partitions=parts)]
    host.send(deletion, DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    held = host.jobs.popleft()
    assert (held.directory, held.queue) == ("one", CHECKPOINT_QUEUE)
    assert move(host, "two") == 0
    host.run_jobs()
    assert home(host) == "two"
    one.faults = [Fault(Fail(errno.EIO), "append")]
    host.jobs.append(held)
    host.run_jobs()
    assert [name for name in ("one", "two") if host.node.directories[name].is_offline] == ["one"]
    (topic,) = host.receive(deletion).topics
    assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_topic_that_is_deleted_before_its_log_has_its_name_leaves_nothing() -> None:
    """The copy stayed until the next start, and became a stray there once a snapshot had forgotten that the
    topic was removed.
    """
    settings = {"metadata.log.dir": "meta", "log.dirs": "one,two"}
    faulty = {name: FaultyDisk(MemoryDisk()) for name in ("meta", "one", "two")}
    host = ManualHost(settings, disks=dict[str, Disk](faulty))
    host.create_topic("t", **SEGMENT, file_delete_delay_ms="1000")
    move(host, "one")
    for number in range(3):
        assert produce(host, number) == 0
    # to its second name, and no further
    faulty["two"].faults = [Fault(Fail(errno.ENOSPC), "rename", path="t-0", skip=1, times=3)]
    assert move(host, "two") == 0
    assert home(host) == "two"
    assert [name for name in faulty["two"].list("") if name.endswith("-moved")]
    host.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    host.advance(10)
    assert [name for disk in faulty.values() for name in disk.list("") if name.startswith("t-0")] == []


def test_a_large_batch_that_is_being_written_when_its_log_moves() -> None:
    """Its pieces are not a part of the log: the copy, which is trusted to be whole, has none of them."""
    host = ManualHost(disks=two_disks())
    host.create_topic("t", max_message_bytes=str(8 << 20))
    host.node.shutdown(host.clock.now())
    host.settle()
    host.restart()
    host.partitions("t")[0].opened(host.clock.now())
    line = host.connect()
    value = b"x" * (2 << 20)
    host.send(line, host.produce_request("t", build_batch([(1_700_000_000_000, None, value, ())])), 9)
    before = home(host)
    assert line.pending
    assert move(host, other(before)) == 0
    assert home(host) == other(before)
    assert line.pending
    host.advance(1.0)
    assert host.receive(line).responses[0].partition_responses[0].error_code == 0
    host.restart()
    assert values(host) == [value]
