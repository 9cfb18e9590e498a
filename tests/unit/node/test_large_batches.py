"""Batches of megabytes are written in pieces: others have their turn, the log gets all of it or nothing."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from headrace.node.connection import Connection
from headrace.node.effects import Proceed
from headrace.node.handlers import produce as produce_handler
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import incremental_alter_configs
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.records import batch as batch_module
from headrace.records.batch import ATTRIBUTES_AT
from headrace.records.builder import build_batch
from headrace.records.checksum import crc32c
from headrace.records.compression import Codec
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost
from headrace.storage import unfinished as unfinished_module
from headrace.storage.batch_validation import ValidateBatchJob
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.writing_ahead import LARGE_BYTES, PIECE_BYTES

T0 = 1_700_000_000_000
PIECES = 5


def batch(value: bytes, size: int = 0, **more: Any) -> bytes:
    return build_batch([(T0, None, value + bytes(size), ())], **more)


LARGE = batch(b"large", (PIECES - 1) * PIECE_BYTES + 1)


class Scene:
    def __init__(self, *, frames_stay: bool = False) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        self.host = ManualHost(disks={"data": self.disk})
        self.host.create_topic("t", max_message_bytes=str(64 << 20))
        self.line, self.other = self.host.connect(), self.host.connect()
        self.line.frames_stay = frames_stay
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


@pytest.fixture(params=[False, True], ids=["copied", "kept"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """A large batch is copied, or stays in the memory of its frame."""
    return Scene(frames_stay=request.param)


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


def test_a_damaged_batch_is_never_whole_in_the_file(scene: Scene) -> None:
    before = scene.file_bytes()
    damaged = bytearray(LARGE)
    damaged[-1] ^= 1
    scene.disk.calls.clear()
    scene.send(scene.line, bytes(damaged))
    for _ in range(PIECES):
        scene.turn()
    assert code(scene.host.receive(scene.line))[0] == ErrorCode.CORRUPT_MESSAGE
    assert scene.file_bytes() == before
    assert sum(call.size for call in scene.disk.calls if call.operation == "append") < len(LARGE)


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


def test_a_frame_is_kept_until_its_batch_is_in_the_log() -> None:
    """Nothing is read from the connection meanwhile."""
    scene = Scene(frames_stay=True)
    scene.send(scene.line, LARGE)
    for _ in range(PIECES - 1):
        assert scene.line.kept_frames == 1
        assert scene.line.is_full
        assert not any(isinstance(effect, Proceed) for effect in scene.host.effects)
        scene.turn()
    assert scene.line.kept_frames == 0
    assert not scene.line.is_full
    assert [effect for effect in scene.host.effects if isinstance(effect, Proceed)] == [Proceed(scene.line)]
    scene.send(scene.line, batch(b"small"))
    assert scene.line.kept_frames == 0
    assert scene.values() == [b"first", b"large", b"small"]


@pytest.mark.parametrize("frames_stay", [False, True])
def test_a_client_that_hangs_up_has_its_batch_appended(frames_stay: bool) -> None:
    scene = Scene(frames_stay=frames_stay)
    scene.send(scene.line, LARGE)
    scene.host.node.disconnected(scene.host.clock.now(), scene.line)
    for _ in range(PIECES):
        scene.turn()
    assert scene.line.kept_frames == 0
    assert scene.values() == [b"first", b"large"]


def test_a_frame_that_is_opened_in_a_job_is_copied_for_it() -> None:
    scene = Scene(frames_stay=True)
    scene.host.create_topic("o", max_message_bytes=str(64 << 20), headrace_validate_records="true")
    scene.host.runs_jobs = False
    large = build_batch([(T0, None, Random(1).randbytes(2 << 20), ())], codec=Codec.GZIP)
    scene.host.send(scene.line, scene.host.produce_request("o", large), 9)
    (run,) = [one for one in scene.host.jobs if isinstance(one.job, ValidateBatchJob)]
    assert isinstance(run.job, ValidateBatchJob)
    assert isinstance(run.job.batch, bytearray)  # a view cannot be sent to another process
    scene.host.runs_jobs = True
    scene.host.run_jobs()
    for _ in range(PIECES):
        scene.turn()
    assert code(scene.host.receive(scene.line)) == (0, 0)
    assert scene.line.kept_frames == 0


def test_the_checksum_is_computed_once(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    summed: list[int] = []

    def counting(data: memoryview, so_far: int = 0) -> int:
        summed.append(len(data))
        return crc32c(data, so_far)

    monkeypatch.setattr(batch_module, "crc32c", counting)
    monkeypatch.setattr(unfinished_module, "crc32c", counting)
    scene.send(scene.line, LARGE)
    for _ in range(PIECES):
        scene.turn()
    assert code(scene.host.receive(scene.line)) == (0, 1)
    assert sum(summed) == len(LARGE) - ATTRIBUTES_AT
    assert max(summed) <= PIECE_BYTES


def test_what_was_checked_by_earlier_settings_is_checked_again(scene: Scene) -> None:
    """A topic that becomes a compacted one takes no records without keys."""
    scene.send(scene.line, LARGE)
    for _ in range(PIECES - 2):
        scene.turn()
    partition = scene.host.partitions("t")[0]
    assert partition.log is not None
    assert partition.log.unfinished is not None
    config = incremental_alter_configs.AlterableConfig(
        name="cleanup.policy", config_operation=0, value="compact"
    )
    altered = incremental_alter_configs.AlterConfigsResource(
        resource_type=2, resource_name="t", configs=[config]
    )
    scene.host.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[altered]), 1)
    for _ in range(2 * PIECES):
        scene.turn()
    assert code(scene.host.receive(scene.line))[0] == ErrorCode.INVALID_RECORD
    assert scene.values() == [b"first"]


@pytest.mark.parametrize("where", ["in the first piece", "in the last one"])
def test_a_damaged_batch_with_an_impossible_count_may_be_sent_again(scene: Scene, where: str) -> None:
    """The count is wrong because the bytes are: the error is about the checksum."""
    damaged = bytearray(LARGE)
    damaged[60 if where == "in the first piece" else -1] ^= 1
    scene.send(scene.line, bytes(damaged))
    for _ in range(PIECES):
        scene.turn()
    assert code(scene.host.receive(scene.line))[0] == ErrorCode.CORRUPT_MESSAGE
    assert scene.values() == [b"first"]
