"""A data directory with its checkpoints, markers and boot id, cut short at every disk call.

Topics are flushed, deleted up to an offset, removed, and made again under their names. Whatever the start
after the crash finds, no log is emptied, shortened below its flush, or given what the checkpoints say of
another.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random

import pytest

from harness.batches import Batch, Row
from harness.log_directories import open_log_directory
from harness.log_judge import WALL_MS, judge, prefix_that_is
from harness.log_model import LogModel
from headrace.storage import checkpoints
from headrace.storage.config import LogConfig
from headrace.storage.errors import DamagedProperties, WrongDirectory
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fault, FaultyDisk
from headrace.storage.log import PartitionLog
from headrace.storage.log_directory import LogDirectory
from headrace.storage.memory_disk import CrashKind, MemoryDisk
from headrace.storage.open_files import OpenFiles

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)
PRODUCER = 5000
FIRST, SECOND, OTHER = (bytes([n]) * 16 for n in (1, 2, 3))

Known = dict[bytes, tuple[str, LogModel]]  # by topic id: its name, and what its one partition holds


def opened(disk: FaultyDisk | MemoryDisk, boot_id: str) -> LogDirectory:
    return open_log_directory(
        disk,
        "data",
        node_id=1,
        cluster_id="cluster",
        directory_id_if_new=bytes(range(16)),
        boot_id=boot_id,
        files=OpenFiles(16),
    )


class Life:
    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk
        self.before: Known = {}
        self.after: Known = {}
        self.logs: dict[bytes, PartitionLog] = {}

    def step(self, change: Callable[[Known], object], act: Callable[[], object]) -> None:
        self.after = copy.deepcopy(self.before)
        change(self.after)
        act()
        self.before = self.after

    def live(self) -> None:
        self.directory = opened(self.disk, "boot-1")
        self.create("orders", FIRST)
        self.create("other", OTHER)
        for _ in range(9):
            self.append(FIRST)
        self.append(OTHER)
        self.flush(FIRST)
        self.checkpoint()
        self.append(FIRST)
        self.delete_records(FIRST, 6)
        self.flush(OTHER)
        self.checkpoint()
        self.remove(FIRST)
        self.create("orders", SECOND)
        self.append(SECOND)
        self.append(SECOND)
        self.flush(SECOND)
        self.append(SECOND)
        self.checkpoint()
        self.delete_records(SECOND, 1)
        self.stop()
        self.directory = opened(self.disk, "boot-1")
        for topic_id in (SECOND, OTHER):
            self.logs[topic_id] = self.open_log(self.directory, topic_id, self.before)
            self.append(topic_id)
        self.flush(SECOND)

    @staticmethod
    def open_log(directory: LogDirectory, topic_id: bytes, known: Known) -> PartitionLog:
        return directory.open_log(known[topic_id][0], 0, topic_id, CONFIG, WALL_MS)

    def create(self, name: str, topic_id: bytes) -> None:
        def act() -> None:
            self.logs[topic_id] = self.open_log(self.directory, topic_id, self.after)

        self.step(lambda known: known.update({topic_id: (name, LogModel())}), act)

    def append(self, topic_id: bytes) -> None:
        model = self.before[topic_id][1]
        known = model.producers().get(PRODUCER)
        sequence = known[-1].batch.base_sequence + 1 if known else 0
        batch = Batch(
            [Row(WALL_MS, None, b"%d of %d" % (sequence, topic_id[0]) * 5)], 0, PRODUCER, 0, sequence
        )
        self.step(
            lambda known: known[topic_id][1].append(batch, 0),
            lambda: self.logs[topic_id].append(batch.sent(), wall_ms=WALL_MS, leader_epoch=0),
        )

    def flush(self, topic_id: bytes) -> None:
        end = self.before[topic_id][1].end

        def act() -> None:
            job = self.logs[topic_id].flush_job()
            assert job is not None
            self.logs[topic_id].complete_flush(job.run(self.disk))

        self.step(lambda known: setattr(known[topic_id][1], "flushed", end), act)

    def delete_records(self, topic_id: bytes, offset: int) -> None:
        def act() -> None:
            self.directory.log_start_job({(self.before[topic_id][0], 0): offset}).run(self.disk)
            for doomed in self.logs[topic_id].advance_log_start(offset, WALL_MS):
                doomed.remove_job().run(self.disk)

        self.step(lambda known: setattr(known[topic_id][1], "start", offset), act)

    def checkpoint(self) -> None:
        self.directory.checkpoint_job({}).run(self.disk)

    def remove(self, topic_id: bytes) -> None:
        name = self.before[topic_id][0]
        self.step(lambda known: known.pop(topic_id), lambda: self.directory.doom(name, 0).run(self.disk))

    def stop(self) -> None:
        def change(known: Known) -> None:
            for _, model in known.values():
                model.flushed = model.end

        self.step(change, lambda: self.directory.close_clean({}))


def cut_short(fault: Fault) -> tuple[Life, MemoryDisk]:
    memory = MemoryDisk()
    life = Life(FaultyDisk(memory, [fault]))
    with pytest.raises(DiskCrashed):
        life.live()
    return life, memory


def calls() -> int:
    life = Life(FaultyDisk(MemoryDisk()))
    life.live()
    return len(life.disk.changes())


def check(life: Life, disk: MemoryDisk, kind: CrashKind) -> None:
    directory = opened(disk, "boot-1" if kind == "killed" else "boot-2")
    found = {topic_id: name for name, _, topic_id in directory.partitions() if topic_id is not None}
    for topic_id in life.before.keys() & life.after.keys():
        if topic_id not in found:
            flushed = life.before[topic_id][1].flushed
            assert kind == "lost", "a kill loses no directory"
            assert not flushed, f"a log that was flushed up to {flushed} is gone"
    for topic_id, name in found.items():
        versions = [known[topic_id] for known in (life.before, life.after) if topic_id in known]
        if topic_id not in life.after:
            continue  # deleted, and the deletion did not last: the metadata knows better
        log = directory.open_log(name, 0, topic_id, CONFIG, WALL_MS)
        least = min(model.flushed for _, model in versions)
        assert log.log_end_offset >= least, f"{least} were flushed, {log.log_end_offset} are left"
        starts = [model.start for _, model in versions]
        if kind == "killed" or least:  # before the first flush a lost host may lose the first file alone
            assert min(starts) <= log.log_start_offset <= max(starts), f"starts at {log.log_start_offset}"
        if kind == "lost" and not least and log.log_start_offset > max(starts):
            continue  # nothing was promised, and the first file is lost with what it knew of producers
        judge_one(log, versions, disk, kind)


def judge_one(
    log: PartitionLog, versions: list[tuple[str, LogModel]], disk: MemoryDisk, kind: CrashKind
) -> None:
    for _, model in versions:
        kept = prefix_that_is(log, model.batches)
        if kept is not None and (kind == "lost" or kept == model.batches):
            held = copy.deepcopy(model)
            held.batches, held.start = kept, log.log_start_offset
            judge(log, held, disk)
            return
    assert kind == "lost", f"after a kill the log ends at {log.log_end_offset}"
    # what was deleted on request reaches beyond what is left
    assert log.log_start_offset == log.log_end_offset


@pytest.mark.parametrize("kind", ["killed", "lost"])
def test_a_crash_at_every_call(kind: CrashKind) -> None:
    for number in range(calls()):
        life, memory = cut_short(Fault(Crash(), skip=number))
        for seed in range(1 if kind == "killed" else 6):
            try:
                check(life, memory.crash(kind, Random(seed)), kind)
            except Exception as problem:
                where = f"{life.disk.calls[-1]}, call {number}, seed {seed}"
                raise AssertionError(f"{where}: {problem!r}") from problem


CHECKPOINTS = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS)


@pytest.mark.parametrize("name", [*CHECKPOINTS, "other-0/partition.metadata", ".headrace_boot_id"])
@pytest.mark.parametrize("kind", ["killed", "lost"])
def test_a_bit_flipped_in_a_checkpoint_loses_no_flushed_record(name: str, kind: CrashKind) -> None:
    whole = MemoryDisk()
    life = Life(FaultyDisk(whole))
    life.live()
    for byte in range(whole.open(name).size()):
        for bit in (0, 6):
            disk = whole.crash("killed")
            disk.flip(name, byte, 1 << bit)
            directory = opened(disk, "boot-1" if kind == "killed" else "boot-2")
            for topic_id, (topic, model) in life.before.items():
                if ("metadata" in name) and topic == "other":
                    continue  # whose it is cannot be read: the node adopts it by its name
                log = directory.open_log(topic, 0, topic_id, CONFIG, WALL_MS)
                where = f"{name}, byte {byte}, bit {bit}, {topic}"
                if name == checkpoints.LOG_STARTS and log.log_start_offset != model.start:
                    continue  # nothing else tells which records were deleted
                assert log.log_end_offset == model.end, where
                assert prefix_that_is(log, model.batches) is not None, where


def test_another_nodes_directory_is_refused() -> None:
    disk = MemoryDisk()
    opened(disk, "boot-1")
    for byte in range(disk.open(checkpoints.META_PROPERTIES).size()):
        damaged = disk.clone()
        damaged.flip(checkpoints.META_PROPERTIES, byte, 1)
        try:
            directory = opened(damaged, "boot-1")
        except (WrongDirectory, DamagedProperties):
            continue
        assert directory.partitions() == []
