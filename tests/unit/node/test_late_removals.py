"""Files that wait for their removal: a topic that has got the name meanwhile keeps its own."""

from __future__ import annotations

import errno

from harness.compaction import committed_rows
from harness.single_partition import deletion_before
from headrace.node.partition import Partition
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.records.builder import build_batch, end_marker
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def of_t(host: ManualHost) -> Partition:
    (partition,) = host.partitions("t")
    return partition


def fill(host: ManualHost) -> None:
    """A sealed segment with a committed record and an aborted one."""
    now, partition = host.clock.now(), of_t(host)
    plain = build_batch([(now.wall_ms, None, b"kept", ())])
    aborted = build_batch(
        [(now.wall_ms, None, b"aborted", ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    end = end_marker(
        committed=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=now.wall_ms
    )
    partition.append(memoryview(bytearray(plain)), now)
    partition.append(memoryview(bytearray(aborted)), now)
    partition.append(memoryview(bytearray(end)), now, from_client=False)
    partition.opened(now).roll(now.wall_ms)


def values(host: ManualHost) -> list[bytes | None]:
    return [row.value for row in committed_rows(of_t(host).opened(host.clock.now()))]


def test_a_late_removal_takes_no_file_of_a_later_topic() -> None:
    """A file that had no space for another name waits under its own. It was removed after the delay,
    whosever it was by then: here the index that hides aborted records.
    """
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    host = ManualHost(disks={"data": disk})
    host.create_topic("t", file_delete_delay_ms="60000")
    fill(host)
    disk.faults = [Fault(Fail(errno.ENOSPC), "rename", path=".txnindex.deleted")]
    answer = host.ask(deletion_before("t", 3, timeout_ms=500), 2)
    assert answer.topics[0].partitions[0].error_code == 0
    assert not disk.faults[0].times
    host.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    host.create_topic("t")
    fill(host)
    assert values(host) == [b"kept"]
    host.advance(120)
    again = ManualHost(disks={"data": memory.crash("killed")}, seed=5)
    assert values(again) == [b"kept"]


def test_what_waits_is_removed_while_its_log_is_there() -> None:
    disk = MemoryDisk()
    host = ManualHost(disks={"data": disk})
    host.create_topic("t", file_delete_delay_ms="60000")
    fill(host)
    host.ask(deletion_before("t", 3, timeout_ms=500), 2)
    assert [name for name in disk.list("t-0") if name.endswith(".deleted")]
    host.advance(61)
    assert [name for name in disk.list("t-0") if name.endswith(".deleted")] == []
