"""Every byte of every file of a stopped node is flipped, cut off or zeroed in turn, and the node started.

After a clean stop and after a kill, on the same boot and on another one: the node serves what is intact, says
what is not, or refuses to start. It never deletes, never gives one offset two values, and a start that is
refused leaves the disk byte for byte as it was.

`make test` takes a sample; HEADRACE_DAMAGE=complete walks over every byte (`make damage`), and
HEADRACE_DAMAGE_SEED chooses another sample, and another bit of each byte: eight seeds flip all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import pytest

from harness.batches import Batch, Row
from headrace.machines.metadata.errors import BadMetadata
from headrace.node.effects import Report
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.records.batch import ATTRIBUTES_AT, HEADER_BYTES, read_header
from headrace.records.checksum import crc32c
from headrace.simulator.manual_host import ManualHost
from headrace.storage.errors import StorageError
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.stop_record import CLEAN_MARKER

COMPLETE = os.environ.get("HEADRACE_DAMAGE") == "complete"
SEED = int(os.environ.get("HEADRACE_DAMAGE_SEED", "1"))
SAMPLE = int(os.environ.get("HEADRACE_DAMAGE_CASES", "40"))  # per kind of damage and state

SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "1200",
    "offsets.topic.num.partitions": "1",
}
WALL_MS = 1_700_000_000_000
PRODUCER = 4000
KINDS = ("flip", "cut", "zero")
STATES = (("stopped", "boot-1"), ("stopped", "boot-2"), ("killed", "boot-1"), ("killed", "boot-2"))
ZEROED_BYTES = 24

Place = tuple[str, int]  # topic and partition


@dataclass
class Truth:
    """What a partition holds: batches by base offset, in which file and where."""

    start: int
    end: int
    batches: dict[int, bytes] = field(default_factory=dict)
    places: dict[int, tuple[str, int]] = field(default_factory=dict)


@dataclass
class Scene:
    disk: MemoryDisk
    truths: dict[Place, Truth]


@cache
def scene(state: str) -> Scene:
    host = ManualHost(SETTINGS)
    host.create_topic(
        "orders", 2, internal_segment_bytes="500", index_interval_bytes="150", retention_ms="-1"
    )
    host.create_topic("users", 1, cleanup_policy="compact", internal_segment_bytes="400")
    host.create_topic("gone", 1)
    for number in range(9):
        for topic, index in (("orders", 0), ("orders", 1), ("users", 0)):
            if index == 1 and number > 2:
                continue
            rows = [
                Row(WALL_MS + number, b"k%d" % n, b"value %d of %s " % (number, topic.encode()) * 2)
                for n in range(2)
            ]
            sent = Batch(rows, number % 3, PRODUCER, 0, number * 2) if index == 0 else Batch(rows)
            reply = host.ask(host.produce_request(topic, sent.sent(), partition=index), 9)
            assert reply.responses[0].partition_responses[0].error_code == 0
    host.ask(FindCoordinatorRequest(key="g", key_type=0), 2)
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )
    assert host.ask(commit, 7).topics[0].partitions[0].error_code == 0
    host.advance(12.0)  # a flush, and a checkpoint that has it
    truths = {}
    for partition in host.node.broker.partitions.all():
        log = partition.opened(host.clock.now())
        truths[(partition.topic, partition.index)] = Truth(log.log_start_offset, log.log_end_offset)
    if state == "stopped":
        host.node.shutdown(host.clock.now())
        host.settle()
        assert host.node.is_stopped
    whole = host.disks["data"]
    assert isinstance(whole, MemoryDisk)
    disk = whole.crash("killed")
    assert disk.exists(CLEAN_MARKER) == (state == "stopped")
    for (topic, index), truth in truths.items():
        for path, data in disk.files():
            if path.startswith(f"{topic}-{index}/") and path.endswith(".log"):
                position = 0
                while position < len(data):
                    header = read_header(data, position)
                    truth.batches[header.base_offset] = data[position : position + header.size]
                    truth.places[header.base_offset] = (path, position)
                    position += header.size
    assert len({path for path, _ in truths[("orders", 0)].places.values()}) >= 3
    assert any(path.endswith(".checkpoint") for path, _ in disk.files())
    return Scene(disk, truths)


@dataclass
class Case:
    state: str
    boot_id: str
    kind: str
    path: str
    position: int
    bit: int = 0  # that is flipped

    def __str__(self) -> str:
        what = f"{self.kind} bit {self.bit}" if self.kind == "flip" else self.kind
        return f"{self.state}, {self.boot_id}: {what} {self.path} at {self.position}"

    def apply(self, disk: MemoryDisk) -> None:
        if self.kind == "flip":
            disk.flip(self.path, self.position, 1 << self.bit)
        elif self.kind == "cut":
            disk.open(self.path).truncate(self.position)
        else:
            for position in range(
                self.position, min(self.position + ZEROED_BYTES, disk.open(self.path).size())
            ):
                disk.flip(self.path, position, disk.open(self.path).read(position, 1)[0])

    def touches(self, path: str, position: int, size: int) -> bool:
        """Whether a batch there is damaged, beyond its leader epoch, which no checksum covers."""
        if path != self.path:
            return False
        if self.kind == "cut":
            return position + size > self.position
        width = 1 if self.kind == "flip" else ZEROED_BYTES
        return self.position < position + size and position < self.position + width


def all_cases(state: str, boot_id: str, kind: str) -> Iterator[Case]:
    for path, data in scene(state).disk.files():
        for position in range(len(data)):
            yield Case(state, boot_id, kind, path, position, (position + SEED - 1) % 8)


def chosen(state: str, boot_id: str, kind: str) -> list[Case]:
    cases = list(all_cases(state, boot_id, kind))
    if COMPLETE:
        return cases
    rng = Random(f"{SEED} {state} {boot_id} {kind}")
    # a few of every file, however short it is
    by_path: dict[str, list[Case]] = {}
    for case in cases:
        by_path.setdefault(case.path, []).append(case)
    return rng.sample(
        [rng.choice(some) for some in by_path.values()], min(SAMPLE // 2, len(by_path))
    ) + rng.sample(cases, SAMPLE // 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("state", "boot_id"), STATES)
def test_damage(state: str, boot_id: str, kind: str) -> None:
    failures = []
    for case in chosen(state, boot_id, kind):
        try:
            judge(case)
        except Exception as problem:
            failures.append(f"{case}: {problem!r}"[:600])
            if len(failures) >= (100 if COMPLETE else 1):
                break
    assert not failures, f"{len(failures)} failures, seed {SEED}\n" + "\n".join(failures)


@pytest.mark.parametrize(
    "case",
    [
        Case("stopped", "boot-1", "flip", "__cluster_metadata-0/partition.metadata", 41, 1),
        Case("killed", "boot-2", "cut", "orders-0/00000000000000000006.log", 0),
        Case("killed", "boot-2", "cut", "orders-0/00000000000000000000.log", 151),
        # a batch whose offset is damaged so that its segment seems to be merged with the next one
        Case("stopped", "boot-2", "flip", "users-0/00000000000000000006.log", 154, 2),
        Case("killed", "boot-2", "flip", "users-0/00000000000000000006.log", 154, 2),
    ],
    ids=str,
)
def test_damage_that_was_once_a_fault(case: Case) -> None:
    judge(case)


def judge(case: Case) -> None:
    one = scene(case.state)
    disk = one.disk.clone()
    case.apply(disk)
    before = dict(disk.files())
    if before == dict(one.disk.files()):
        return  # zeros were zeros before
    try:
        host = ManualHost(SETTINGS, disks={"data": disk}, boot_id=case.boot_id)
    except (BadMetadata, StorageError):
        assert dict(disk.files()) == before, "a refused start changed the disk"
        return
    if host.halted is not None:
        return
    stored = b"".join(data for path, data in disk.files() if ".log" in path)
    for (topic, index), truth in one.truths.items():
        intact = {
            base: data
            for base, data in truth.batches.items()
            if not case.touches(*truth.places[base], len(data))
        }
        for base, data in intact.items():
            assert data in stored, f"the batch of {topic}-{index} at {base} is gone from the disk"
        check_partition(host, case, topic, index, truth, intact)


def check_partition(
    host: ManualHost, case: Case, topic: str, index: int, truth: Truth, intact: dict[int, bytes]
) -> None:
    where = f"{topic}-{index}"
    found, is_offline = read_all(host, topic, index, truth)
    for base, data in found.items():
        assert base in truth.batches, f"{where}: a batch at {base} that nobody wrote"
        assert data[ATTRIBUTES_AT:] == truth.batches[base][ATTRIBUTES_AT:], (
            f"{where}: {base} has another value"
        )
    if is_offline:
        assert case.path.startswith(f"{where}/"), f"{where} is offline"
        assert any(isinstance(effect, Report) and effect.level == "error" for effect in host.effects)
    else:
        missing = sorted(base for base in intact if base not in found and base >= truth.start)
        assert not missing, f"{where}: {missing} are not served, {sorted(found)} are"
    if topic in ("__consumer_offsets",):
        return
    sent = Batch([Row(WALL_MS, b"new", b"written after the damage")])
    answer = host.ask(host.produce_request(topic, sent.sent(), partition=index, acks=1), 9)
    (said,) = answer.responses[0].partition_responses
    if said.error_code:
        assert is_offline, f"{where}: produce is refused with {said.error_code}"
        return
    assert said.base_offset >= truth.end, (
        f"{where}: offset {said.base_offset} is given again, up to {truth.end}"
    )
    (batch,) = batches_at(host, topic, index, said.base_offset)
    assert read_header(batch).base_offset == said.base_offset


def read_all(host: ManualHost, topic: str, index: int, truth: Truth) -> tuple[dict[int, bytes], bool]:
    """Every valid batch by its base offset, as a consumer gets them that seeks past what is damaged."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset < truth.end:
        try:
            batches = batches_at(host, topic, index, offset)
        except Failed as failed:
            if failed.code == ErrorCode.KAFKA_STORAGE_ERROR:
                return found, True
            if failed.code not in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise
            offset += 1
            continue
        next_offset = offset + 1
        for data in batches:
            header = read_header(data)
            known = found.setdefault(header.base_offset, data)
            assert known == data, f"{topic}-{index}: two values at {header.base_offset}"
            next_offset = max(next_offset, header.next_offset)
        offset = next_offset
    return found, False


class Failed(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = code


def batches_at(host: ManualHost, topic: str, index: int, offset: int) -> list[bytes]:
    """The valid batches of one fetch of one batch."""
    fetch = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[fetch])], session_epoch=-1
    )
    (data,) = host.ask(request, 11).responses[0].partitions
    if data.error_code:
        raise Failed(data.error_code)
    records: Any = bytes(data.records or b"")
    valid, position = [], 0
    while len(records) - position >= HEADER_BYTES:
        header = read_header(records, position)
        if not HEADER_BYTES <= header.size <= len(records) - position:
            break
        batch = records[position : position + header.size]
        if crc32c(batch[ATTRIBUTES_AT:]) == header.crc:
            valid.append(batch)
        position += header.size
    return valid
