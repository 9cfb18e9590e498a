"""A coordinator that is loaded after a start, and what it may meet on the disk meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from harness.disks import memory_of
from harness.node_groups import SETTINGS, commit, find
from harness.single_partition import committed_of
from headrace.node.effects import Report
from headrace.protocol.errors import ErrorCode
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.memory_disk import MemoryDisk

PLACES = {"log.dirs": "data", "metadata.log.dir": "meta", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def stopped() -> ManualHost:
    """A node that was killed, with two commits behind it."""
    host = ManualHost({**SETTINGS, **PLACES}, disks={"meta": MemoryDisk(), "data": MemoryDisk()})
    host.create_topic("t")
    find(host, "g")
    for offset in (1, 2):
        assert commit(host, "g", "t", offset) == 0
    return host


def load(host: ManualHost, *results: Any) -> ManualHost:
    """Started again; the first jobs of the load end with these results."""
    clone = {name: memory_of(disk).clone() for name, disk in host.disks.items()}
    waiting = list(results)

    class Scripted(ManualHost):
        def run_job(self) -> None:
            if waiting and self.jobs[0].queue == "loading":
                job = self.jobs.popleft()
                self.node.completed(self.clock.now(), job.ticket, waiting.pop(0))
            else:
                super().run_job()

    again = Scripted(host.texts, disks=clone, clock=host.clock)
    again.advance(0.5)
    assert not waiting, "the load has met all of it"
    return again


def offset_of(host: ManualHost) -> tuple[int, int]:
    """Error code and committed offset."""
    (group,) = host.ask(committed_of("g", "t"), 9).groups
    if group.error_code:
        return group.error_code, -1
    return 0, group.topics[0].partitions[0].committed_offset


def reports(host: ManualHost) -> list[str]:
    return [effect.event for effect in host.effects if isinstance(effect, Report)]


def test_a_segment_that_is_gone_has_a_successor(stopped: ManualHost) -> None:
    assert offset_of(load(stopped, FileNotFoundError(errno.ENOENT, "cleaned"))) == (0, 2)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EAGAIN])
def test_without_descriptors_it_is_loaded_later(stopped: ManualHost, code: int) -> None:
    host = load(stopped, OSError(code, "none left"))
    assert offset_of(host)[0] in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    host.advance(5)
    assert offset_of(host) == (0, 2)
    assert not host.node.directories["data"].is_offline


def test_an_io_error_takes_the_directory_offline(stopped: ManualHost) -> None:
    host = load(stopped, OSError(errno.EIO, "broken"))
    host.advance(5)
    assert host.node.directories["data"].is_offline
    assert offset_of(host)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.halted is None, "the metadata are on another disk"


def append(host: ManualHost, *rows: tuple[bytes | None, bytes | None]) -> None:
    """Records that a coordinator would not write."""
    (partition,) = host.partitions("__consumer_offsets")
    batch = bytearray(build_batch([(1_700_000_000_000, key, value, ()) for key, value in rows]))
    now = host.clock.now()
    partition.opened(now).append(
        memoryview(batch), wall_ms=now.wall_ms, leader_epoch=partition.leader_epoch, from_client=False
    )


def test_records_that_nobody_can_read_are_reported_and_cost_no_other(stopped: ManualHost) -> None:
    append(stopped, (None, b"without a key"), (b"\x00\x63?", b"of a kind that is not known"), (b"", b""))
    assert commit(stopped, "g", "t", 3) == 0
    host = load(stopped)
    assert offset_of(host) == (0, 3)
    told = [
        effect.facts
        for effect in host.effects
        if isinstance(effect, Report) and effect.event == "coordinator_record_unreadable"
    ]
    assert [(facts["partition"], facts["offset"]) for facts in told] == [("__consumer_offsets-0", 4)]


def test_behind_a_damaged_batch_nothing_is_decided(stopped: ManualHost) -> None:
    """Nobody can say what it decided: an older offset must not be taken for the group's."""
    disk = memory_of(stopped.disks["data"])
    file = disk.open("__consumer_offsets-0/00000000000000000000.log")
    content = bytearray(file.read(0, file.size()))
    content[-5] ^= 0xFF
    host = load(stopped, bytes(content))
    assert "coordinator_record_unreadable" in reports(host)
    assert offset_of(host)[0] != 0


def test_a_log_that_is_read_in_many_chunks_is_the_same(stopped: ManualHost) -> None:
    for number in range(3, 40):
        assert commit(stopped, "g", "t", number) == 0
    settings = {**stopped.texts, "offsets.load.buffer.size": "100"}
    small = ManualHost(settings, disks=stopped.disks, clock=stopped.clock)
    small.advance(2)
    assert offset_of(small) == (0, 39)
