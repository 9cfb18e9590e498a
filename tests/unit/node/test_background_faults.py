"""Disk calls of a node's background work fail in turn: retention, compaction, recompression, checkpoints.

A resource that has run out costs only time: no directory goes offline, and the work is done once there is
space. After any other error the directory is offline, nobody is told a wrong value, and the node goes on with
its metadata, which are on another disk.
"""

from __future__ import annotations

import errno
from functools import cache
from itertools import count

import pytest

from harness.compaction import newest
from headrace.protocol.errors import ErrorCode
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import CHANGES, OPENS, SPACE_NEEDING, Fail, Fault, FaultyDisk, Operation
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk

SETTINGS = {
    "log.dirs": "data",
    "metadata.log.dir": "meta",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.flush.interval.messages": "1",
}
TOPICS = {
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
    "packed": {"headrace.sealed.compression.type": "zstd"},
    "expired": {"retention.bytes": "300000", "file.delete.delay.ms": "1000"},
}
CALLS_MIN = 20  # that each kind of fault must have met


@cache
def scene() -> tuple[MemoryDisk, MemoryDisk]:
    """Work for all of them, and a node that was killed before it had begun."""
    meta, data = MemoryDisk(), MemoryDisk()
    later = {key: "100000000" for key in SETTINGS if key.endswith(".ms")}
    host = ManualHost(SETTINGS | later, disks={"meta": meta, "data": data})
    for name, configs in TOPICS.items():
        host.create_topic(name, **{"segment.bytes": "1048576", "internal.segment.bytes": "200000"} | configs)
    for number in range(12):
        key, value = b"k%d" % (number % 3), bytes([65 + number]) * 60_000
        for name in TOPICS:
            sent = build_batch([(host.clock.now().wall_ms, key, value, ())])
            answer = host.ask_patiently(host.produce_request(name, sent), 9) if name == "compacted" else None
            answer = answer or host.ask(host.produce_request(name, sent), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
    return meta, data


def start(*faults: Fault) -> tuple[ManualHost, FaultyDisk]:
    meta, data = scene()
    disk = FaultyDisk(data.clone())
    host = ManualHost(SETTINGS, disks={"meta": meta.clone(), "data": disk})
    for name in TOPICS:
        log_of(host, name)
    disk.faults = list(faults)
    return host, disk


def log_of(host: ManualHost, topic: str) -> PartitionLog:
    return host.partitions(topic)[0].opened(host.clock.now())


def is_served(host: ManualHost, topic: str) -> int:
    answer = host.ask_patiently(
        host.produce_request(topic, build_batch([(host.clock.now().wall_ms, b"k0", b"more", ())])), 9
    )
    return int(answer.responses[0].partition_responses[0].error_code)


def result(host: ManualHost) -> dict[str, object]:
    """What the background work leads to."""
    return {
        "compacted": newest(log_of(host, "compacted")),
        "compacted bytes": log_of(host, "compacted").size_bytes < 400_000,
        "packed bytes": log_of(host, "packed").size_bytes < 400_000,
        "expired start": log_of(host, "expired").log_start_offset > 0,
    }


@pytest.mark.parametrize(
    ("code", "operations", "times"),
    [
        (errno.ENOSPC, SPACE_NEEDING, 1),
        (errno.ENOSPC, SPACE_NEEDING, 8),
        (errno.EDQUOT, frozenset[Operation](("append", "rename")), 3),
        (errno.EMFILE, OPENS, 1),
        (errno.EMFILE, OPENS, 5),
    ],
)
def test_what_has_run_out_costs_only_time(code: int, operations: frozenset[Operation], times: int) -> None:
    well, _ = start()
    well.advance(30)
    expected = result(well)
    assert all(expected.values())
    assert result(start()[0]) != expected, "there is work to do"
    for skip in count(step=3):  # all of them take 15 s
        fault = Fault(Fail(code), operations, skip=skip, times=times)
        host, disk = start(fault)
        host.advance(10)
        if fault.times == times:
            assert skip > CALLS_MIN
            return
        assert not host.node.directories["data"].is_offline, f"call {skip}"
        disk.faults = []
        host.advance(40)
        assert result(host) == expected, f"call {skip}"
        assert [is_served(host, name) for name in TOPICS] == [0, 0, 0], f"call {skip}"
        assert host.halted is None


@pytest.mark.parametrize(
    "operations", [CHANGES, frozenset[Operation](("read", "open", "list"))], ids=["changes", "reads"]
)
def test_an_io_error_costs_the_directory_and_nothing_else(operations: frozenset[Operation]) -> None:
    values = newest(log_of(start()[0], "compacted"))
    for skip in count(step=3):  # all of them take 15 s
        fault = Fault(Fail(errno.EIO), operations, skip=skip)
        host, disk = start(fault)
        host.advance(30)
        if fault.times:
            assert skip > CALLS_MIN
            return
        assert host.halted is None, f"call {skip}"
        if host.node.directories["data"].is_offline:
            assert is_served(host, "packed") == ErrorCode.KAFKA_STORAGE_ERROR, f"call {skip}"
        again = ManualHost(SETTINGS, disks={**host.disks, "data": disk.disk})
        again.advance(30)
        assert newest(log_of(again, "compacted")) == values, f"call {skip}"
        assert log_of(again, "packed").log_end_offset >= 12
