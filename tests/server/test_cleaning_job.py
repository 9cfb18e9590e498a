"""A pass of compaction in the child process, on a real disk and at a pace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
