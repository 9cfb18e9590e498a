"""Partitions that move between two log directories: nothing is lost, wherever the move is cut short."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from harness.desk import Desk
from headrace.node import replica_moves
from headrace.node.effects import Report
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
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


@pytest.fixture(autouse=True)
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that logs of a few hundred bytes are copied as long ones are."""
    monkeypatch.setattr(replica_moves, "REST_BYTES_MAX", 100)


SEGMENT = {"internal_segment_bytes": "300"}


def two_disks() -> dict[str, Disk]:
    return {"one": MemoryDisk(), "two": MemoryDisk()}


def batch(number: int, **producer: int) -> bytes:
    return build_batch([(1_700_000_000_000 + number, None, b"value %d" % number, ())], **producer)


def produce(desk: Desk, number: int, **producer: int) -> int:
    answer = desk.ask(desk.produce_request("t", batch(number, **producer)), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def home(desk: Desk) -> str:
    (partition,) = desk.node.broker.partitions.of_name("t") or []
    return partition.directory


def other(directory: str) -> str:
    return {"one": "two", "two": "one"}[directory]


def move(desk: Desk, path: str) -> int:
    topic = directories.AlterReplicaLogDirTopic(name="t", partitions=[0])
    request = directories.AlterReplicaLogDirsRequest(
        dirs=[directories.AlterReplicaLogDir(path=path, topics=[topic])]
    )
    return int(desk.ask(request, 2).results[0].partitions[0].error_code)


def values(desk: Desk) -> list[bytes]:
    """Every record, read as a consumer would."""
    found: list[bytes] = []
    (held,) = desk.node.broker.partitions.of_name("t") or []
    offset = held.opened(desk.clock.now()).log_start_offset
    while True:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
        )
        part = desk.ask(request, 11).responses[0].partitions[0]
        assert part.error_code == 0
        data = bytes(part.records)
        rows = [row for position, header in batches(data) for row in read_rows(data, position, header)]
        if not rows:
            return found
        found += [value for _, _, _, value, _ in rows if value is not None]
        offset = rows[-1][0] + 1


def expected(*numbers: int) -> list[bytes]:
    return [b"value %d" % number for number in numbers]


def desk_with_records(count: int = 10, **configs: str) -> Desk:
    desk = Desk(disks=two_disks())
    desk.create_topic("t", **SEGMENT, **configs)
    for number in range(count):
        assert produce(desk, number) == 0
    return desk


def told(desk: Desk) -> dict[str, list[bool]]:
    """By directory, whether what it tells of the partition is a future one."""
    response = desk.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        result.log_dir: [one.is_future_key for topic in result.topics for one in topic.partitions]
        for result in response.results
    }


def step(desk: Desk) -> bool:
    """One job; False when there is none."""
    if not desk.jobs:
        return False
    desk.run_job()
    desk.settle()
    return True


def test_a_partition_moves_with_all_it_has_and_is_found_there_after_a_restart() -> None:
    desk = desk_with_records()
    before = home(desk)
    assert move(desk, other(before)) == 0
    assert home(desk) == other(before)
    assert told(desk) == {before: [], other(before): [False]}
    assert produce(desk, 10) == 0
    assert values(desk) == expected(*range(11))
    image = desk.node.controller.metadata.image.topics["t"].partitions[0]
    assert image.directories == (desk.node.directories[other(before)].directory_id,)
    desk.advance(120)
    assert [name for name in desk.disks[before].list("") if name.startswith("t-0")] == []
    for boot_id in ("boot-1", "boot-2"):
        again = Desk(disks=desk.disks, seed=5, boot_id=boot_id)
        assert home(again) == other(before)
        assert values(again) == expected(*range(11))


def test_there_and_back_again() -> None:
    desk = desk_with_records(4)
    first = home(desk)
    for number, target in enumerate((other(first), first, other(first)), 4):
        assert move(desk, target) == 0
        assert home(desk) == target
        assert produce(desk, number) == 0
    assert values(desk) == expected(*range(7))
    assert values(Desk(disks=desk.disks, seed=5)) == expected(*range(7))


def test_it_is_written_to_while_it_moves() -> None:
    desk = desk_with_records()
    before = home(desk)
    desk.runs_jobs = False
    assert move(desk, other(before)) == 0
    number, steps = 10, 0
    while home(desk) == before:
        assert told(desk) == {before: [False], other(before): [True]}
        if steps % 5 == 0:  # the copy is faster than who writes
            assert produce(desk, number) == 0
            number += 1
        assert step(desk), "the move waits for a job"
        steps += 1
        assert steps < 500, "it never arrives"
    desk.run_jobs()
    assert number > 12
    assert values(desk) == expected(*range(number))


def test_a_producer_is_remembered() -> None:
    desk = desk_with_records(0)
    producer = {"producer_id": 7, "producer_epoch": 0}
    for number in range(3):
        assert produce(desk, number, base_sequence=number, **producer) == 0
    move(desk, other(home(desk)))
    assert produce(desk, 2, base_sequence=2, **producer) == 0  # again: known, and not written twice
    gap = produce(desk, 9, base_sequence=9, **producer)
    assert gap == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(desk, 3, base_sequence=3, **producer) == 0
    assert values(desk) == expected(0, 1, 2, 3)


def test_what_was_deleted_stays_deleted() -> None:
    desk = desk_with_records()
    partition = DeleteRecordsPartition(partition_index=0, offset=5)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    deleted = desk.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    assert deleted.topics[0].partitions[0].low_watermark == 5
    target = other(home(desk))
    move(desk, target)
    assert values(desk) == expected(*range(5, 10))
    # killed at once: no checkpoint was written since
    assert values(Desk(disks=desk.disks, seed=5)) == expected(*range(5, 10))


def test_an_acknowledgement_that_waits_for_a_flush_comes_also_when_the_log_moves_meanwhile() -> None:
    desk = desk_with_records(3, flush_messages="1")
    before = home(desk)
    desk.runs_jobs = False
    connection = desk.connect()
    move(desk, other(before))
    desk.send(connection, desk.produce_request("t", batch(3)), 9)
    assert desk.receive(connection) is None
    flush = next(job for job in desk.jobs if job.lane == "flush")
    desk.jobs.remove(flush)
    while home(desk) == before:
        assert step(desk)
    desk.jobs.append(flush)  # it looks for files that were renamed
    desk.run_jobs()
    assert desk.receive(connection).responses[0].partition_responses[0].error_code == 0
    assert not desk.node.directories[before].is_offline
    assert values(desk) == expected(*range(4))


def test_a_move_is_called_off() -> None:
    desk = desk_with_records()
    before = home(desk)
    desk.runs_jobs = False
    move(desk, other(before))
    for _ in range(3):
        assert step(desk)
    assert move(desk, before) == 0
    desk.run_jobs()
    assert home(desk) == before
    assert told(desk) == {before: [False], other(before): []}
    assert [name for name in desk.disks[other(before)].list("") if name.startswith("t-0")] == []
    desk.runs_jobs = True
    assert move(desk, other(before)) == 0
    assert home(desk) == other(before)


def test_what_lay_in_the_way_of_the_copy_is_not_taken_for_a_part_of_it() -> None:
    """Such as what an earlier copy left, whose removal failed."""
    desk = Desk(disks=desk_with_records().disks, seed=2)  # after a kill recovery looks at the end only
    target = other(home(desk))
    desk.runs_jobs = False
    move(desk, target)
    for _ in range(4):
        assert step(desk)
    (future,) = [name for name in desk.disks[target].list("") if name.endswith("-future")]
    desk.disks[target].open(f"{future}/{1:020d}.log", create=True).append(batch(99))
    desk.run_jobs()
    assert home(desk) == target
    assert f"{1:020d}.log" not in desk.disks[target].list("t-0")
    assert values(Desk(disks=desk.disks, seed=5)) == expected(*range(10))


def test_a_copy_that_is_not_whole_never_stands_in_for_what_is_lost() -> None:
    """The source's directory is gone after a stop in the middle: better no records than only the oldest."""
    desk = desk_with_records()
    source = home(desk)
    desk.runs_jobs = False
    move(desk, other(source))
    for _ in range(8):
        assert step(desk)
    lost = desk.disks[source]
    for name in lost.list("t-0"):
        lost.remove(f"t-0/{name}")
    lost.remove("t-0")
    again = Desk(disks=desk.disks, seed=5)
    assert values(again) == []
    again.advance(120)
    for disk in again.disks.values():
        assert [name for name in disk.list("") if name.startswith("t-0.")] == []


def test_a_topic_that_is_deleted_on_the_way() -> None:
    desk = desk_with_records()
    before = home(desk)
    desk.runs_jobs = False
    move(desk, other(before))
    for _ in range(3):
        assert step(desk)
    desk.runs_jobs = True
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    assert desk.ask(request, 6).responses[0].error_code == 0
    desk.advance(120)
    for disk in desk.disks.values():
        assert [name for name in disk.list("") if name.startswith("t-0")] == []


def test_a_move_that_ends_before_the_deletion_of_its_topic_is_durable() -> None:
    """The controller does not know the topic any more, the partition is still there."""
    desk = desk_with_records()
    before = home(desk)
    desk.runs_jobs = False
    assert move(desk, other(before)) == 0
    deleting = desk.connect()
    desk.send(deleting, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000), 6)
    (flush,) = [job for job in desk.jobs if job.lane == "metadata"]
    desk.jobs.remove(flush)
    while step(desk) and home(desk) == before:
        pass
    assert home(desk) == other(before), "the move was to end first"
    desk.jobs.append(flush)
    desk.run_jobs()
    assert desk.receive(deleting).responses[0].error_code == 0
    desk.runs_jobs = True
    desk.create_topic("t", **SEGMENT)
    assert produce(desk, 11) == 0
    assert move(desk, other(home(desk))) == 0
    assert values(desk) == expected(11)


def test_what_retention_takes_on_the_way_is_not_in_the_copy() -> None:
    desk = desk_with_records(retention_bytes="300", file_delete_delay_ms="0")
    before = home(desk)
    desk.runs_jobs = False
    move(desk, other(before))
    for _ in range(4):
        assert step(desk)
    (partition,) = desk.node.broker.partitions.of_name("t") or []
    desk.runs_jobs = True
    desk.advance(600)
    assert home(desk) == other(before)
    start = partition.opened(desk.clock.now()).log_start_offset
    assert start > 0
    assert values(desk) == expected(*range(start, 10))
    assert values(Desk(disks=desk.disks, seed=5)) == expected(*range(start, 10))


@pytest.mark.parametrize(("code", "is_offline"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_target_that_fails(code: int, is_offline: bool) -> None:
    """A full disk ends the move and a broken one its directory; the partition stays where it is."""
    disks = two_disks()
    desk = Desk(disks=disks)
    desk.create_topic("t", **SEGMENT)
    move(desk, "one")  # where the metadata log lies, whose failure would end the node
    before, target = "one", "two"
    disks[target] = desk.node.directories.disks[target] = FaultyDisk(
        disks[target], [Fault(Fail(code), operation="append", path="-future")]
    )
    for number in range(10):
        produce(desk, number)
    assert move(desk, target) == 0
    assert home(desk) == before
    assert desk.node.directories[target].is_offline is is_offline
    assert any(isinstance(one, Report) and one.event == "move_failed" for one in desk.effects)
    assert produce(desk, 10) == 0
    assert values(desk) == expected(*range(11))
    if not is_offline:
        assert move(desk, target) == 0
        assert home(desk) == target
        assert values(desk) == expected(*range(11))


class Story:
    """Six records, a move, two more; stops where a disk crashes."""

    def __init__(self, disks: dict[str, Disk]) -> None:
        self.acknowledged: list[int] = []
        self.attempted: list[int] = []
        self.calls_before: dict[str, int] = {}  # changes of each disk before the move
        try:
            desk = Desk(disks=disks)
            desk.create_topic("t", **SEGMENT, flush_messages="1")
            for number in range(6):
                self._produce(desk, number)
            for name, disk in disks.items():
                self.calls_before[name] = len(disk.changes()) if isinstance(disk, FaultyDisk) else 0
            move(desk, other(home(desk)))
            for number in range(6, 8):
                self._produce(desk, number)
        except DiskCrashed:
            return

    def _produce(self, desk: Desk, number: int) -> None:
        self.attempted.append(number)
        assert produce(desk, number) == 0
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
        desk = Desk(disks=left, seed=place, boot_id=boot_id)
        found = values(desk)
        assert found[: len(story.acknowledged)] == expected(*story.acknowledged), f"lost at {place}"
        assert found in (expected(*story.acknowledged), expected(*story.attempted)), f"too many at {place}"
        names = [name for disk in left.values() for name in disk.list("") if name == "t-0"]
        assert len(names) == 1, f"two logs at {place}"
        desk.advance(120)
        rest = [name for disk in left.values() for name in disk.list("") if name.startswith("t-0.")]
        assert rest == [], f"left over at {place}"
        assert move(desk, other(home(desk))) == 0
        assert values(desk) == found, f"lost by the next move at {place}"


def test_a_move_that_a_kill_cut_short_waits_for_a_target_that_cannot_be_read() -> None:
    """The metadata does not tell of the move yet: nothing may begin again in the old directory."""
    settings = {"metadata.log.dir": "two"}
    for skip in range(1000):
        faulty = {name: FaultyDisk(MemoryDisk()) for name in ("one", "two")}
        desk = Desk(settings, disks=dict[str, Disk](faulty))
        desk.create_topic("t", **SEGMENT)
        assert home(desk) == "two"
        for number in range(3):
            assert produce(desk, number) == 0
        crash = Fault(Crash(), skip=skip)
        for disk in faulty.values():
            disk.faults.append(crash)
        try:
            move(desk, "one")
        except DiskCrashed:
            pass
        left = {name: disk.disk.crash("killed") for name, disk in faulty.items()}
        unreadable = UnusableDisk(OSError(errno.EIO, "Input/output error"))
        for _ in range(2):
            again = Desk(settings, disks={"one": unreadable, "two": left["two"]}, seed=5)
            again.advance(120)
            (held,) = again.node.broker.partitions.of_name("t") or []
            assert held.is_offline or held.opened(again.clock.now()).log_end_offset == 3
        whole = Desk(settings, disks=dict[str, Disk](left), seed=6)
        assert values(whole) == expected(*range(3))
        if crash.times:
            return
