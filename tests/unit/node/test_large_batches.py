"""Batches of megabytes are written in pieces: others have their turn, the log gets all of it or nothing."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.node.append_queue import LARGE_BYTES
from headrace.node.connection import Connection
from headrace.node.handlers import produce as produce_handler
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.writing_ahead import PIECE_BYTES

T0 = 1_700_000_000_000
PIECES = 5


def batch(value: bytes, size: int = 0, **more: Any) -> bytes:
    return build_batch([(T0, None, value + bytes(size), ())], **more)


LARGE = batch(b"large", (PIECES - 1) * PIECE_BYTES + 1)


class Scene:
    def __init__(self) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        self.host = ManualHost(disks={"data": self.disk})
        self.host.create_topic("t", max_message_bytes=str(64 << 20))
        self.line, self.other = self.host.connect(), self.host.connect()
        self.send(self.other, batch(b"first"))
        self.host.receive(self.other)

    def send(self, line: Connection, records: bytes, *, acks: int = -1, timeout_ms: int = 30_000) -> None:
        request = self.host.produce_request("t", records, acks=acks, timeout_ms=timeout_ms)
        self.host.send(line, request, 9)

    def turn(self) -> None:
        """The loop comes round once: the next piece is written."""
        self.host.clock.advance(0.0001)
        self.host.node.wake(self.host.clock.now())
        self.host.settle()

    def values(self) -> list[bytes]:
        log = self.host.partitions("t")[0].log
        assert log is not None
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            span = log.read(offset, max_bytes=1, limit_offset=log.log_end_offset, at_least_one=True)
            assert span is not None
            data = span.read()
            ((position, header),) = batches(data)
            found += [bytes(row[3] or b"")[:5] for row in read_rows(data, position, header)]
            offset = header.next_offset
        return found

    def file_bytes(self) -> int:
        file = self.disk.open("t-0/00000000000000000000.log")
        try:
            return file.size()
        finally:
            file.close()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def code(answer: Any) -> tuple[int, int]:
    (result,) = answer.responses[0].partition_responses
    return result.error_code, result.base_offset


def test_it_is_written_piece_by_piece_and_answered_at_the_end(scene: Scene) -> None:
    assert len(LARGE) >= LARGE_BYTES
    before = scene.file_bytes()
    scene.send(scene.line, LARGE)
    for written in range(1, PIECES):
        assert scene.file_bytes() == before + written * PIECE_BYTES
        assert scene.host.receive(scene.line) is None
        assert scene.values() == [b"first"]
        scene.turn()
    assert code(scene.host.receive(scene.line)) == (0, 1)
    assert scene.values() == [b"first", b"large"]


def test_later_batches_wait_behind_it(scene: Scene) -> None:
    scene.send(scene.line, LARGE)
    scene.send(scene.other, batch(b"small"))
    assert scene.host.receive(scene.other) is None
    for _ in range(PIECES):
        scene.turn()
    scene.host.advance(0.01)
    assert code(scene.host.receive(scene.line)) == (0, 1)
    assert code(scene.host.receive(scene.other)) == (0, 2)
    assert scene.values() == [b"first", b"large", b"small"]


def test_a_client_that_times_out_leaves_no_piece(scene: Scene) -> None:
    before = scene.file_bytes()
    scene.send(scene.line, LARGE, timeout_ms=0)
    scene.send(scene.other, batch(b"small"))
    scene.turn()
    assert code(scene.host.receive(scene.line))[0] == ErrorCode.REQUEST_TIMED_OUT
    assert code(scene.host.receive(scene.other)) == (0, 1)
    assert scene.values() == [b"first", b"small"]
    assert scene.file_bytes() == before + len(batch(b"small"))


def test_after_a_roll_in_between_it_begins_again(scene: Scene) -> None:
    scene.send(scene.line, LARGE)
    scene.turn()
    log = scene.host.partitions("t")[0].log
    assert log is not None
    log.roll(T0)
    for _ in range(PIECES + 1):
        scene.turn()
    assert code(scene.host.receive(scene.line)) == (0, 1)
    assert scene.values() == [b"first", b"large"]


def test_a_deleted_topic(scene: Scene) -> None:
    scene.send(scene.line, LARGE)
    scene.host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert code(scene.host.receive(scene.line))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    scene.turn()


def test_a_kill_in_between(scene: Scene) -> None:
    scene.send(scene.line, LARGE)
    scene.turn()
    scene.host.restart()
    scene.line = scene.host.connect()
    scene.send(scene.line, batch(b"after"))
    assert code(scene.host.receive(scene.line)) == (0, 1)
    assert scene.values() == [b"first", b"after"]


def test_a_clean_stop_finishes_it_first(scene: Scene) -> None:
    scene.send(scene.line, LARGE)
    scene.host.node.shutdown(scene.host.clock.now())
    scene.host.settle()
    scene.host.advance(1.0)
    assert scene.host.node.is_stopped
    scene.host.restart()
    assert scene.host.partitions("t")[0].opened(scene.host.clock.now()).log_end_offset == 2


@pytest.mark.parametrize("piece", range(PIECES))
def test_a_full_disk_is_told_and_survived(scene: Scene, piece: int) -> None:
    before = scene.file_bytes()
    full = Fault(Fail(errno.ENOSPC, written=100), "append", "t-0/", skip=piece, times=2)
    scene.disk.faults.append(full)
    scene.send(scene.line, LARGE)
    for _ in range(PIECES):
        scene.turn()
    assert code(scene.host.receive(scene.line))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert scene.file_bytes() == before
    scene.send(scene.line, LARGE)
    for _ in range(PIECES):
        scene.turn()
    assert code(scene.host.receive(scene.line)) == (0, 1)


def test_a_damaged_batch_is_refused_before_it_is_written(scene: Scene) -> None:
    before = scene.file_bytes()
    damaged = bytearray(LARGE)
    damaged[-1] ^= 1
    scene.send(scene.line, bytes(damaged))
    assert code(scene.host.receive(scene.line))[0] == ErrorCode.CORRUPT_MESSAGE
    assert scene.file_bytes() == before


def test_one_that_is_too_large_is_refused_without_a_copy(
    monkeypatch: pytest.MonkeyPatch, scene: Scene
) -> None:
    monkeypatch.delattr(produce_handler, "HeldBatch")
    scene.host.create_topic("default")
    request = scene.host.produce_request("default", LARGE)
    assert code(scene.host.ask(request, 9))[0] == ErrorCode.MESSAGE_TOO_LARGE


def test_one_that_is_sent_twice_is_in_the_log_once_after_a_kill(scene: Scene) -> None:
    """A producer that got no answer sends the batch again: what was written ahead of it is not in the log."""
    given = scene.host.ask(InitProducerIdRequest(transactional_id=None), 4)
    of_producer = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    large = batch(b"large", (PIECES - 1) * PIECE_BYTES + 1, base_sequence=0, **of_producer)
    for _ in range(2):
        scene.send(scene.line, large)
        for _ in range(PIECES):
            scene.turn()
        assert code(scene.host.receive(scene.line)) == (0, 1)
    log = scene.host.partitions("t")[0].log
    assert log is not None
    assert log.unfinished is None
    assert scene.file_bytes() == log.active.size
    scene.host.restart()
    scene.host.partitions("t")[0].opened(scene.host.clock.now())
    assert scene.values() == [b"first", b"large"]


def test_one_that_will_be_refused_is_never_whole_in_the_file(scene: Scene) -> None:
    """After a power loss the file may be as it was at any moment."""
    given = scene.host.ask(InitProducerIdRequest(transactional_id=None), 4)
    of_producer = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    for sequence, answered in ((0, ErrorCode.NONE), (100, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        before = scene.file_bytes()
        scene.disk.calls.clear()
        large = batch(b"large", (PIECES - 1) * PIECE_BYTES + 1, base_sequence=sequence, **of_producer)
        scene.send(scene.line, large)
        for _ in range(PIECES):
            scene.turn()
        assert code(scene.host.receive(scene.line))[0] == answered
        appended = sum(call.size for call in scene.disk.calls if call.operation == "append")
        assert (appended >= len(large)) == (answered is ErrorCode.NONE)
    assert scene.file_bytes() == before
    assert scene.values() == [b"first", b"large"]


@pytest.mark.parametrize("has_records", [True, False])
def test_pieces_that_cannot_be_cut_off_for_lack_of_space(scene: Scene, has_records: bool) -> None:
    """File systems that copy on write need space for that. Nothing is written behind them."""
    log = scene.host.partitions("t")[0].log
    assert log is not None
    if not has_records:
        log.roll(T0)
    log.write_ahead(memoryview(bytearray(LARGE)), wall_ms=T0, leader_epoch=0)
    scene.disk.faults.append(Fault(Fail(errno.ENOSPC), "truncate", "t-0/"))
    scene.send(scene.other, batch(b"small"))
    assert code(scene.host.receive(scene.other)) == (0, 1)
    assert scene.values() == [b"first", b"small"]


def test_pieces_in_an_empty_segment_do_not_survive_a_roll(scene: Scene) -> None:
    """The files are copied after it when the log moves to another directory."""
    log = scene.host.partitions("t")[0].log
    assert log is not None
    log.roll(T0)
    scene.send(scene.line, LARGE)
    path = log.active.path + ".log"
    file = scene.disk.open(path)
    assert file.size() == PIECE_BYTES
    log.roll(T0)
    assert file.size() == 0
    for _ in range(PIECES + 1):
        scene.turn()
    assert code(scene.host.receive(scene.line)) == (0, 1)
    assert scene.values() == [b"first", b"large"]
