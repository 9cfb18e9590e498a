"""A node whose metadata is damaged: it deletes nothing, and a start that it refuses leaves the disk as it
was.
"""

from __future__ import annotations

import pytest

from harness.batches import Batch, Row
from headrace.base.time import ManualClock
from headrace.machines.metadata.errors import BadMetadata
from headrace.node.effects import Report
from headrace.node.metadata_check import LastStop, check_metadata
from headrace.node.metadata_files import SnapshotId, metadata_batch, snapshot_batches
from headrace.protocol.messages.control_records import RegisteredVoter, VotersRecord
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.metadata_records import FeatureLevelRecord, NoOpRecord
from headrace.simulator.manual_host import ManualHost
from headrace.storage.directory_jobs import RemoveDirectoryJob
from headrace.storage.disk import read_whole, write_atomically
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.stop_record import CLEAN_MARKER
from headrace.storage.strays import parse_stray

WALL_MS = 1_700_000_000_000
METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"
TOPICS = ("orders", "payments", "users")


def a_node(*, is_stopped: bool) -> MemoryDisk:
    """Three topics with records; the disk as a stop or a kill leaves it."""
    host = ManualHost()
    for topic in TOPICS:
        host.create_topic(topic, 2)
        batch = Batch([Row(WALL_MS, None, f"a record of {topic}".encode())]).sent()
        for partition in range(2):
            reply = host.ask(host.produce_request(topic, batch, partition=partition), 9)
            assert reply.responses[0].partition_responses[0].error_code == 0
    host.advance(6.0)  # a checkpoint tells how far the logs were flushed
    if is_stopped:
        host.node.shutdown(host.clock.now())
        host.settle()
        assert host.node.is_stopped
    disk = host.disks["data"]
    assert isinstance(disk, MemoryDisk)
    assert disk.exists(CLEAN_MARKER) == is_stopped
    return disk.crash("killed")


def overwrite(disk: MemoryDisk, path: str, position: int, size: int) -> None:
    for byte in range(position, position + size):
        disk.flip(path, byte, 0xFF)


def partitions_of(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list("") if name.partition("-")[0] in TOPICS]


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", ["20 bytes", "cut"])
def test_damaged_metadata_refuses_the_start_and_changes_nothing(
    damage: str, is_stopped: bool, boot_id: str
) -> None:
    disk = a_node(is_stopped=is_stopped)
    if damage == "20 bytes":
        overwrite(disk, METADATA_LOG, 500, 20)
    else:
        disk.open(METADATA_LOG).truncate(400)
    before = dict(disk.files())
    for _ in range(2):  # the second start is refused as the first one was
        with pytest.raises(BadMetadata) as refused:
            ManualHost(disks={"data": disk}, boot_id=boot_id)
        assert METADATA_LOG in str(refused.value)
        assert "headrace dump" in str(refused.value)
        assert dict(disk.files()) == before


def without_topics(disk: MemoryDisk) -> MemoryDisk:
    """The same partitions beside the metadata of a node that never heard of them."""
    other = ManualHost().disks["data"]
    assert isinstance(other, MemoryDisk)
    disk = disk.clone()
    for name in disk.list("__cluster_metadata-0"):
        disk.remove(f"__cluster_metadata-0/{name}")
    for name in other.list("__cluster_metadata-0"):
        path = f"__cluster_metadata-0/{name}"
        disk.open(path, create=True).append(read_whole(other, path))
    for name in (CLEAN_MARKER, "recovery-point-offset-checkpoint"):
        if disk.exists(name):
            disk.remove(name)
    return disk


def contents(disk: MemoryDisk) -> list[bytes]:
    return sorted(data for path, data in disk.files() if path.endswith(".log") and "__cluster" not in path)


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_what_the_metadata_does_not_know_is_put_aside_and_kept(boot_id: str) -> None:
    whole = a_node(is_stopped=True)
    disk = without_topics(whole)
    host = ManualHost(disks={"data": disk}, boot_id=boot_id)
    names = partitions_of(disk)
    assert len(names) == 6
    assert all(name.endswith("_unknown-stray") for name in names)
    assert contents(disk) == contents(whole)
    reported = [effect for effect in host.effects if isinstance(effect, Report)]
    assert [report.event for report in reported].count("stray_partition") == 6
    assert host.node.broker.strays.count == 6

    # a topic of the same name is another one
    host.create_topic("orders", 2)
    host.node.shutdown(host.clock.now())
    host.settle()

    # and with its own metadata again each is what it was
    for name in partitions_of(disk):
        stray = parse_stray(name)
        if stray is None:
            RemoveDirectoryJob(name).run(disk)
        else:
            disk.rename(name, stray.original)
    for name in disk.list("__cluster_metadata-0"):
        disk.remove(f"__cluster_metadata-0/{name}")
    for name in whole.list("__cluster_metadata-0"):
        path = f"__cluster_metadata-0/{name}"
        disk.open(path, create=True).append(read_whole(whole, path))
    disk.remove("recovery-point-offset-checkpoint")
    host = ManualHost(disks={"data": disk}, boot_id=boot_id)
    for topic in TOPICS:
        for partition in host.partitions(topic):
            assert partition.opened(host.clock.now()).log_end_offset == 1


def test_a_stray_is_removed_when_its_time_is_over() -> None:
    disk = without_topics(a_node(is_stopped=True))
    clock = ManualClock()
    host = ManualHost({"headrace.stray.retention.ms": str(20 * 3_600_000)}, disks={"data": disk}, clock=clock)
    host.advance(19 * 3600.0)
    assert len(partitions_of(disk)) == 6
    host.advance(2 * 3600.0)
    assert partitions_of(disk) == []


def test_a_removal_that_the_log_tells_of_is_finished() -> None:
    """A kill between the commit of a deletion and the renaming of the directories."""
    host = ManualHost()
    host.create_topic("orders", 2)
    host.ask(host.produce_request("orders", Batch([Row(WALL_MS, None, b"x")]).sent()), 9)
    disk = host.disks["data"]
    assert isinstance(disk, MemoryDisk)
    before = disk.clone()
    reply = host.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=1000), 6)
    assert reply.responses[0].error_code == 0
    for name in before.list("__cluster_metadata-0"):
        path = f"__cluster_metadata-0/{name}"
        before.open(path).truncate(0)
        before.open(path).append(read_whole(disk, path))
    assert before.exists("orders-0")
    host = ManualHost(disks={"data": before})
    assert [name for name in before.list("") if name.startswith("orders")] == []


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_a_damaged_topic_id_costs_no_record(boot_id: str) -> None:
    whole = a_node(is_stopped=False)
    path = "orders-0/partition.metadata"
    for byte in range(whole.open(path).size()):
        disk = whole.clone()
        disk.flip(path, byte, 1 << byte % 8)
        host = ManualHost(disks={"data": disk}, boot_id=boot_id)
        partition = host.partitions("orders")[0]
        assert partition.opened(host.clock.now()).log_end_offset == 1, byte
        assert host.node.broker.strays.count == 0


SNAPSHOT_SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "3000"}


def with_a_snapshot() -> tuple[ManualHost, MemoryDisk]:
    """A node whose metadata log ends where its snapshot does, with an empty segment behind it."""
    host = ManualHost(SNAPSHOT_SETTINGS)
    disk = host.disks["data"]
    assert isinstance(disk, MemoryDisk)
    while not any(name.endswith(".checkpoint") for name in disk.list("__cluster_metadata-0")):
        host.create_topic(f"t{len(host.node.controller.metadata.image.topics)}", 2)
    assert disk.open(last_segment(disk)).size() == 0
    return host, disk


def last_segment(disk: MemoryDisk) -> str:
    names = [name for name in disk.list("__cluster_metadata-0") if name.endswith(".log")]
    return f"__cluster_metadata-0/{max(names)}"


@pytest.mark.parametrize("kept", [0, 80])
def test_a_lost_write_at_once_after_a_snapshot_is_no_damage(kept: int) -> None:
    """A power loss before the first batch behind the snapshot was flushed leaves zeros in its place."""
    host, disk = with_a_snapshot()
    topics = sorted(host.node.controller.metadata.image.topics)
    before = disk.crash("killed")
    host.create_topic("last", 1)
    batch = read_whole(disk, last_segment(disk))
    before.open(last_segment(before)).append(batch[:kept] + bytes(len(batch) - kept))
    again = ManualHost(SNAPSHOT_SETTINGS, disks={"data": before}, boot_id="boot-2")
    assert sorted(again.node.controller.metadata.image.topics) == topics


def test_a_lost_write_at_the_first_start_is_no_damage() -> None:
    disk = ManualHost().disks["data"]
    assert isinstance(disk, MemoryDisk)
    lost = disk.crash("killed")
    file = lost.open(METADATA_LOG)
    size = file.size()
    file.truncate(0)
    file.append(bytes(size))
    assert ManualHost(disks={"data": lost}, boot_id="boot-2").node.is_ready


def test_a_snapshot_of_more_than_the_segments_hold_begins_the_log_again() -> None:
    """A lost host kept one removal of a segment and forgot another and the segment that was made then."""
    host, disk = with_a_snapshot()
    topics = sorted(host.node.controller.metadata.image.topics)
    lost = disk.crash("killed")
    end = last_segment(lost).removesuffix("log")
    for name in lost.list("__cluster_metadata-0"):
        path = f"__cluster_metadata-0/{name}"
        if path.startswith(end):
            lost.remove(path)
        elif name.startswith(f"{0:020d}"):
            lost.rename(path, path.removesuffix(".deleted"))
    assert lost.exists(METADATA_LOG)
    for _ in range(2):  # the second start finds what the first one wrote
        again = ManualHost(SNAPSHOT_SETTINGS, disks={"data": lost}, boot_id="boot-2")
        assert sorted(again.node.controller.metadata.image.topics) == topics
        lost = lost.crash("killed")


def test_a_directory_that_somebody_renamed_is_put_aside_and_reported() -> None:
    disk = a_node(is_stopped=True)
    records = read_whole(disk, "orders-0/00000000000000000000.log")
    disk.rename("orders-0", "mislaid-0")
    host = ManualHost(disks={"data": disk})
    (stray,) = [name for name in disk.list("") if name.endswith("-stray")]
    assert (parsed := parse_stray(stray)) is not None
    assert (parsed.original, parsed.why) == ("mislaid-0", "its topic has another name than its directory")
    assert read_whole(disk, f"{stray}/00000000000000000000.log") == records
    assert any(isinstance(effect, Report) and effect.event == "stray_partition" for effect in host.effects)


@pytest.mark.parametrize("sizes", [(5, 2), (3, 4), (7,)], ids=["beside", "across", "all in one"])
def test_a_log_that_the_leaders_snapshot_replaces_is_not_read(sizes: tuple[int, ...]) -> None:
    """A kill came between the name of the snapshot and the removal of the log, which parts from it before."""
    disk = MemoryDisk()
    disk.make_dir("log")
    record = NoOpRecord()
    segment, offset = b"", 0
    for size in sizes:
        segment += metadata_batch([record] * size, offset, 3, 0)
        offset += size
    write_atomically(disk, "log/00000000000000000000.log", segment)
    voters = VotersRecord(
        voters=[RegisteredVoter(voter_id=id, voter_directory_id=bytes([id]) * 16) for id in (1, 2, 3)]
    )
    snapshot = b"".join(snapshot_batches([FeatureLevelRecord(name="f", feature_level=1)], voters, 4, 0))
    write_atomically(disk, f"log/{SnapshotId(5, 4).file}", snapshot)
    sound = check_metadata(disk, "data", "log", LastStop("killed", 7, 5))
    assert (sound.log_end_offset, sound.end_offset, sound.loaded.epoch) == (0, 5, 4)
    assert sound.loaded.image.features == {"f": 1}
