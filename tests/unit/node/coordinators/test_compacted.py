"""Coordinators over compacted logs: what they knew is what they know after passes and restarts, even when a
pass replaces the segments from which one is just loading.
"""

from __future__ import annotations

import pytest

from harness.compaction import rows
from harness.node_groups import SETTINGS, commit, committed, find
from headrace.node.coordinators.loader import ReadChunk
from headrace.simulator.manual_host import ManualHost
from headrace.storage.memory_disk import MemoryDisk

OFFSETS = "__consumer_offsets"
ONE_SHARD = {**SETTINGS, "offsets.topic.num.partitions": "1", "log.cleaner.backoff.ms": "1000"}


def log_of(host: ManualHost):
    partition = host.partitions(OFFSETS)[0]
    return partition.opened(host.clock.now())


def seal(host: ManualHost) -> None:
    log = log_of(host)
    log.roll(host.clock.now().wall_ms)
    job = log.flush_job()
    if job is not None:
        log.complete_flush(job.run(host.disks["data"]))


@pytest.fixture
def host() -> ManualHost:
    host = ManualHost(ONE_SHARD)
    host.create_topic("t")
    find(host, "g")
    for number in range(1, 21):
        assert commit(host, "g", "t", number) == 0
        assert commit(host, f"other-{number}", "t", number) == 0
        if number % 8 == 0:
            seal(host)
    seal(host)
    return host


def test_commits_outlive_compaction_and_a_restart(host: ManualHost) -> None:
    before = len(rows(log_of(host)))
    host.advance(2)
    assert len(rows(log_of(host))) < before * 0.6
    assert committed(host, "g", "t").committed_offset == 20
    disk = host.disks["data"]
    assert isinstance(disk, MemoryDisk)
    again = ManualHost(ONE_SHARD, disks={"data": disk.crash("killed")})
    again.advance(1)
    assert committed(again, "g", "t").committed_offset == 20


def test_a_pass_in_the_middle_of_loading(host: ManualHost) -> None:
    disk = host.disks["data"]
    assert isinstance(disk, MemoryDisk)
    again = ManualHost({**ONE_SHARD, "offsets.load.buffer.size": "200"}, disks={"data": disk.crash("killed")})
    log = log_of(again)
    again.runs_jobs = False
    again.advance(0.001)
    find(again, "g")
    again.advance(0.21)
    assert any(isinstance(run.job, ReadChunk) for run in again.jobs)
    for _ in range(4):
        again.run_job()
        again.settle()
        again.advance(0.001)
    assert any(isinstance(run.job, ReadChunk) for run in again.jobs)
    log.flushed_offset = log.log_end_offset
    wall_ms = again.clock.now().wall_ms
    result = log.clean_job(wall_ms, log.log_end_offset).run(again.disks["data"])
    log.complete_cleaning(result, wall_ms)
    again.runs_jobs = True
    again.settle()
    again.advance(1)
    assert committed(again, "g", "t").committed_offset == 20
