"""Comparison of each coordinator's machine with one that is rebuilt from the log."""

from collections.abc import Iterator
from typing import Any

from headrace.machines.coordination import Writer
from headrace.node.coordinators.shard import Shard
from headrace.node.node import Node
from headrace.protocol.coordinator_records import decode
from headrace.records.reader import batches, read_rows
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.partition_producers import end_marker_of


def differences(node: Node, disks: dict[str, MemoryDisk]) -> Iterator[tuple[str, str]]:
    """Each loaded coordinator's partition, and how it differs from one that is made from the disk; "": not
    at all.
    """
    for coordinator in node.broker.coordinators:
        for shard in coordinator.loaded_shards():
            partition = shard.partition
            if partition.log is not None and not partition.is_offline:
                name = f"{partition.topic}-{partition.index}"
                double = shard.fresh_machine()
                _replay(double, shard, disks[partition.directory], name)
                known, replayed = shard.machine.state(), double.state()
                yield name, "" if known == replayed else f"{known} in memory, {replayed} in the log"


def broken_invariants(node: Node) -> Iterator[tuple[str, str]]:
    """Each loaded coordinator's partition whose memory contradicts itself, and how."""
    if "broker" not in node.settings.process_roles:
        return
    for coordinator in node.broker.coordinators:
        for shard in coordinator.loaded_shards():
            try:
                shard.machine.check()
            except AssertionError as fault:
                yield f"{shard.partition.topic}-{shard.partition.index}", str(fault)


def _replay(machine: Any, shard: Shard[Any], disk: MemoryDisk, directory: str) -> None:
    for name in sorted(disk.list(directory)):
        if not name.endswith(".log"):
            continue
        file = disk.open(f"{directory}/{name}")
        view = file.read(0, file.size())
        file.close()
        for position, header in batches(view):
            if header.is_control:
                marker = end_marker_of(view[position : position + header.size], header)
                if marker is not None:
                    machine.replay_end(header.producer_id, not marker.is_aborted)
                continue
            writer = Writer(header.producer_id, header.producer_epoch) if header.is_transactional else None
            for _, _, key, value, _ in read_rows(view, position, header):
                record = decode(shard.kinds, key or b"", value)
                if record is not None:
                    machine.replay(record, writer)
