"""Followers write batches of megabytes in pieces: others have their turn, the log gets all or nothing."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from harness.replica_brokers import ReplicaBrokers
from headrace.node import following as following_module
from headrace.node.following import Following
from headrace.protocol.messages.fetch import PartitionData
from headrace.records import batch as batch_module
from headrace.records.batch import ATTRIBUTES_AT, HEADER_BYTES, batch_size
from headrace.records.checksum import crc32c
from headrace.storage import unfinished as unfinished_module
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.writing_ahead import LARGE_BYTES, PIECE_BYTES

PIECES = 5
LARGE = b"l" * ((PIECES - 1) * PIECE_BYTES + 1)


class Scene:
    """Broker 1 leads, broker 2 follows, and has the first record."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        self.brokers = ReplicaBrokers(2, disks={2: self.disk})
        self.brokers.create_topic(max_message_bytes=str(64 << 20))
        self.brokers.exchange()
        self.brokers.produce(1, b"first")
        self.brokers.exchange()

    def lead(self, *values: bytes) -> None:
        """The leader has it all, and so has what the follower has asked for."""
        self.brokers.produce(1, *values, acks=1)
        while self.end(1) == self.end(2) or self.log(1).unfinished is not None:
            self.turn(1)
        self.brokers.move()

    def turn(self, id: int = 2) -> None:
        """The loop comes round once."""
        self.brokers.clock.advance(0.0001)
        host = self.brokers.hosts[id]
        host.node.wake(self.brokers.clock.now())
        host.settle()

    def log(self, id: int = 2) -> Any:
        return self.brokers.partition(id).opened(self.brokers.clock.now())

    def end(self, id: int = 2) -> int:
        return int(self.log(id).log_end_offset)

    @property
    def following(self) -> Following:
        found = self.brokers.partition(2).follower
        assert isinstance(found, Following)
        return found

    def file_bytes(self) -> int:
        return int(self.disk.open("t-0/00000000000000000000.log").size())

    def is_level(self) -> bool:
        self.brokers.advance(5.0)
        return self.brokers.content(1) == self.brokers.content(2)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_it_is_written_piece_by_piece_and_counts_at_the_end(scene: Scene) -> None:
    before = scene.file_bytes()
    scene.lead(LARGE)
    for written in range(1, PIECES):
        assert scene.file_bytes() == before + written * PIECE_BYTES
        assert scene.end() == 1
        assert scene.log().unfinished is not None
        scene.turn()
    assert scene.end() == 2
    assert scene.log().unfinished is None
    assert scene.brokers.content(2) == scene.brokers.content(1)
    assert scene.following.machine.fetch_offset == 2


def test_small_batches_around_it_are_written_in_their_turn(scene: Scene) -> None:
    scene.brokers.separate(1, 2)
    scene.brokers.hosts[2].settle()
    for value in (b"a", b"b", LARGE, b"c"):
        scene.brokers.produce(1, value, acks=1)
        scene.brokers.hosts[1].advance(0.1)
    scene.brokers.heal()
    assert scene.is_level()
    assert [value[:1] for value in scene.brokers.values(2)] == [b"f", b"a", b"b", b"l", b"c"]


def test_the_checksum_is_computed_once(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    scene.brokers.produce(1, LARGE, acks=1)
    while scene.end(1) == 1:
        scene.turn(1)
    summed: list[int] = []

    def counting(data: memoryview, so_far: int = 0) -> int:
        summed.append(len(data))
        return crc32c(data, so_far)

    monkeypatch.setattr(batch_module, "crc32c", counting)
    monkeypatch.setattr(unfinished_module, "crc32c", counting)
    assert scene.is_level()
    batch = scene.brokers.content(1)
    large_bytes = len(batch) - batch_size(batch)  # behind the first one
    assert sum(summed) == large_bytes - ATTRIBUTES_AT
    assert max(summed) <= PIECE_BYTES


def test_an_answer_that_is_not_kept_is_written_at_once(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    monkeypatch.setattr(following_module, "KEPT_ANSWER_BYTES_MAX", LARGE_BYTES)
    scene.lead(LARGE)
    assert scene.end() == 2
    assert scene.is_level()


def test_memory_of_answers_is_given_back(scene: Scene) -> None:
    answers = scene.following._answers
    scene.lead(LARGE)
    assert answers._bytes > len(LARGE)
    assert scene.is_level()
    assert answers._bytes == 0


def test_a_new_leader_epoch_in_between_leaves_no_piece(scene: Scene) -> None:
    before = scene.file_bytes()
    answers = scene.following._answers
    scene.lead(LARGE)
    scene.turn()
    scene.brokers.lead(2, [1, 2])
    assert scene.log().unfinished is None
    assert scene.file_bytes() == before
    assert answers._bytes == 0
    scene.brokers.produce(2, b"other", acks=1)
    scene.turn()
    assert scene.brokers.values(2) == [b"first", b"other"]


def test_a_roll_in_between(scene: Scene) -> None:
    scene.lead(LARGE)
    scene.turn()
    scene.log().roll(scene.brokers.clock.now().wall_ms)
    assert scene.is_level()


def test_a_kill_in_between(scene: Scene) -> None:
    scene.lead(LARGE)
    scene.turn()
    scene.brokers.kill(2)
    scene.brokers.restart(2)
    assert scene.brokers.values(2) == [b"first"]
    scene.brokers.lead(1, [1])
    assert scene.is_level()


@pytest.mark.parametrize("piece", range(PIECES))
def test_a_full_disk(scene: Scene, piece: int) -> None:
    scene.disk.faults.append(Fault(Fail(errno.ENOSPC, written=100), "append", "t-0/", skip=piece))
    answers = scene.following._answers
    scene.lead(LARGE)
    assert scene.is_level()
    assert answers._bytes == 0


@pytest.mark.parametrize("at", [HEADER_BYTES + 7, -1])
def test_a_damaged_batch_is_refused_and_leaves_no_piece(
    monkeypatch: pytest.MonkeyPatch, scene: Scene, at: int
) -> None:
    """It is fetched again."""
    answered = Following.answered
    damaged: list[int] = []

    def damage(self: Following, now: Any, asked: tuple[int, int], data: PartitionData) -> None:
        records = data.records
        if isinstance(records, memoryview) and len(records) > LARGE_BYTES and not damaged:
            damaged.append(asked[0])
            records[at] ^= 1
        answered(self, now, asked, data)

    monkeypatch.setattr(Following, "answered", damage)
    before = scene.file_bytes()
    scene.disk.calls.clear()
    scene.lead(LARGE)
    while scene.log().unfinished is not None:
        scene.turn()
    assert damaged == [1]
    assert scene.end() == 1
    assert scene.file_bytes() == before
    assert sum(call.size for call in scene.disk.calls if call.operation == "append") < len(LARGE)
    assert scene.is_level()
