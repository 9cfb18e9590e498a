"""A pass of compaction in the child process, on a real disk and at a pace."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.batches import Batch, Row
from harness.compaction import rows
from harness.log_judge import WALL_MS, open_log
from headrace.server.disk import RealDisk
from headrace.server.worker import Worker
from headrace.storage.config import LogConfig

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


def test_a_pass_in_another_process(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.make_dir("orders-0")
    log = open_log(disk, "orders-0", COMPACT, "clean")
    for number in range(20):
        batch = Batch([Row(WALL_MS, b"k%d" % (number % 4), b"%d" % number * 50)], number % 5)
        log.append(batch.sent(), wall_ms=WALL_MS, leader_epoch=0)
        if number % 8 == 7:
            log.roll(WALL_MS)
    flush = log.flush_job()
    assert flush is not None
    log.complete_flush(flush.run(disk))
    worker = Worker()
    try:
        job = log.clean_job(WALL_MS, log.log_end_offset)
        assert job is not None
        result = worker.call(str(tmp_path), replace(job, bytes_per_second=1_000_000.0))
    finally:
        worker.end()
    reader = log.read(0, max_bytes=10_000, limit_offset=20, at_least_one=True)
    assert reader is not None
    before = reader.read()
    doomed = log.complete_cleaning(result, WALL_MS)
    assert reader.read() == before, "who is reading an old segment still can"
    assert len(doomed) == 1
    for one in doomed:
        one.remove_job().run(disk)
    assert [row.offset for row in rows(log)] == [12, 13, 14, 15, 16, 17, 18, 19]
    assert sorted(path.suffix for path in (tmp_path / "orders-0").glob("0" * 20 + "*")) == [
        ".index",
        ".log",
        ".timeindex",
    ]


def descriptors_without_a_name(root: Path) -> list[str]:
    links = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [link for link in links if link.startswith(str(root)) and link.endswith(".log (deleted)")]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for open files")
def test_a_segment_that_was_replaced_is_freed_by_a_job(tmp_path: Path) -> None:
    """The rename of the new segment takes the last name of the old one. Whoever closes it then waits for the
    file system to free all of it, which must not be the caller: that is the event loop.
    """
    disk = RealDisk(str(tmp_path))
    disk.make_dir("orders-0")
    log = open_log(disk, "orders-0", COMPACT, "clean")
    for number in range(6):
        batch = Batch([Row(WALL_MS, b"key", b"%d" % number)], 0)
        log.append(batch.sent(), wall_ms=WALL_MS, leader_epoch=0)
        if number % 2:
            log.roll(WALL_MS)
    flush = log.flush_job()
    assert flush is not None
    log.complete_flush(flush.run(disk))
    clean = log.clean_job(WALL_MS, log.log_end_offset)
    assert clean is not None
    log.complete_cleaning(clean.run(disk), WALL_MS)
    assert len(descriptors_without_a_name(tmp_path)) == 1
    release = log.release_job()
    assert release is not None
    assert log.release_job() is None
    release.run(disk)
    assert descriptors_without_a_name(tmp_path) == []
