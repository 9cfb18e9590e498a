"""Sealed segments are packed with another codec behind a node that goes on serving."""

from __future__ import annotations

from harness.node_records import batch, values_of
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk


def log_bytes(disk: Disk, directory: str) -> dict[str, int]:
    sizes = {}
    for name in disk.list(directory):
        if name.endswith(".log"):
            file = disk.open(f"{directory}/{name}")
            sizes[name] = file.size()
            file.close()
    return sizes


def test_sealed_segments_get_smaller_and_are_read_as_before() -> None:
    host = ManualHost({"log.retention.check.interval.ms": "1000", "log.flush.interval.messages": "1"})
    host.create_topic("packed", **{"headrace.sealed.compression.type": "zstd", "segment.bytes": "1048576"})
    values = [bytes([65 + number]) * 300_000 for number in range(8)]
    for value in values:
        host.ask(host.produce_request("packed", batch(value)), 9)
    (disk,) = host.disks.values()
    before = log_bytes(disk, "packed-0")
    *sealed, active = sorted(before)
    assert sealed
    host.advance(5.0)
    after = log_bytes(disk, "packed-0")
    assert all(after[name] < before[name] / 100 for name in sealed), (before, after)
    assert after[active] == before[active]
    (partition,) = host.partitions("packed")
    assert partition.log is not None
    assert partition.log.replaced == [], "a job has closed what was replaced"
    assert values_of(host, "packed") == values[:3]  # one fetch does not cross a segment
