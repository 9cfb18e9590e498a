"""A log that was cut and written again, on a machine that is lost before the next flush: it holds the old
records or the new ones, never new ones followed by old ones that came back.
"""

from __future__ import annotations

import copy
from random import Random

from harness.batches import Batch, Row
from harness.log_judge import WALL_MS, judge, open_log, prefix_that_is
from harness.log_model import LogModel
from headrace.storage.config import LogConfig
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk

DIRECTORY = "orders-0"
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=50, retention_ms=-1)
PRODUCER = 9000
BATCHES = 9
CUT_AT = 3


def fill(log: PartitionLog, model: LogModel, word: bytes, batches: int) -> None:
    """Batches of one size, so that segments begin at the same offsets whatever is in them."""
    for _ in range(batches):
        known = model.producers().get(PRODUCER)
        sequence = known[-1].batch.base_sequence + 1 if known else 0
        batch = Batch([Row(WALL_MS, None, word * 8)], 0, PRODUCER, 0, sequence)
        model.append(batch, 0)
        log.append(batch.sent(), wall_ms=WALL_MS, leader_epoch=0)


def cut_and_written_again(flush_before: bool) -> tuple[MemoryDisk, LogModel, LogModel]:
    disk, old = MemoryDisk(), LogModel()
    disk.make_dir(DIRECTORY)
    disk.sync_dir("")
    log = open_log(disk, DIRECTORY, CONFIG, "clean")
    fill(log, old, b"old-", BATCHES)
    if flush_before:
        job = log.flush_job()
        assert job is not None
        log.complete_flush(job.run(disk))
    assert sum(name.endswith(".log") for name in disk.list(DIRECTORY)) >= 3
    new = copy.deepcopy(old)
    log.truncate_to(CUT_AT)
    new.cut(CUT_AT)
    fill(log, new, b"new!", BATCHES - CUT_AT)
    return disk, old, new


def check(disk: MemoryDisk, old: LogModel, new: LogModel, recovery_point: int) -> str:
    log = open_log(disk, DIRECTORY, CONFIG, "lost", recovery_point=recovery_point)
    for name, model in (("new", new), ("old", old)):
        kept = prefix_that_is(log, model.batches)
        if kept is not None:
            found = copy.deepcopy(model)
            found.batches = kept
            judge(log, found, disk)
            return name if len(kept) > CUT_AT else "neither"
    raise AssertionError(f"the log ends at {log.log_end_offset}, and mixes two histories")


def test_flushed_records_that_were_cut_off_do_not_come_back_behind_others() -> None:
    disk, old, new = cut_and_written_again(flush_before=True)
    seen = {check(disk.crash("lost", Random(seed)), old, new, CUT_AT) for seed in range(300)}
    assert "new" in seen


def test_records_that_were_never_flushed_do_not_come_back_behind_others() -> None:
    disk, old, new = cut_and_written_again(flush_before=False)
    for seed in range(300):
        lost = disk.crash("lost", Random(seed))
        if f"{0:020}.log" in lost.list(DIRECTORY):
            check(lost, old, new, 0)
