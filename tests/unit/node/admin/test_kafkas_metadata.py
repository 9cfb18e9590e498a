"""A metadata log that Apache Kafka 4.3.1 wrote, read by ours.

Its node was formatted and started; then a client created "orders.eu" with two partitions and
retention.ms=1000 and "gone" with one, appended compact to the cleanup.policy of the former, set
log.retention.ms=70000 for all brokers, grew orders.eu to three partitions and deleted "gone". The node was
stopped in order, so at the end no partition has a leader.
"""

from __future__ import annotations

from pathlib import Path

from headrace.machines.metadata.snapshot import image_hash
from headrace.node.metadata_files import Loaded, SnapshotId, SnapshotJob, load, snapshots
from headrace.storage.memory_disk import MemoryDisk

GOLDEN = Path(__file__).with_name("golden")
DIRECTORY = "__cluster_metadata-0"


def kafkas_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dir(DIRECTORY)
    for golden, name in [
        ("kafka-4.3.1-metadata.log", f"{0:020d}.log"),
        ("kafka-4.3.1-metadata.checkpoint", SnapshotId(0, 0).file),
    ]:
        file = disk.open(f"{DIRECTORY}/{name}", create=True)
        file.append((GOLDEN / golden).read_bytes())
        file.close()
    return disk


def check(loaded: Loaded) -> None:
    image = loaded.image
    assert list(image.topics) == ["orders.eu"]
    topic = image.topics["orders.eu"]
    assert sorted(topic.partitions) == [0, 1, 2]
    for state in topic.partitions.values():
        assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1,), (), -1, 1)
        assert state.eligible_leader_replicas == (1,)
        assert state.directories == image.brokers[1].directories
    assert image.topic_config("orders.eu") == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
    # the second was written by the controller itself, inside the transaction of its first records
    assert image.cluster_config == {"log.retention.ms": "70000", "min.insync.replicas": "1"}
    broker = image.brokers[1]
    assert (broker.endpoints["PLAINTEXT"].port, broker.is_fenced) == (39392, True)
    assert image.features["metadata.version"] == 30
    assert sorted(image.controllers) == [1]


def test_kafkas_log_makes_the_image_that_its_client_made() -> None:
    loaded = load(kafkas_disk(), DIRECTORY)
    check(loaded)
    assert (loaded.snapshot, loaded.epoch) == (SnapshotId(0, 0), 1)


def test_a_snapshot_of_it_says_the_same() -> None:
    disk = kafkas_disk()
    before = load(disk, DIRECTORY)
    made = SnapshotJob(DIRECTORY, before.end_offset, 0).run(disk)
    assert snapshots(disk, DIRECTORY) == [made]
    disk.remove(f"{DIRECTORY}/{0:020d}.log")
    after = load(disk, DIRECTORY)
    check(after)
    assert image_hash(after.image) == image_hash(before.image)
