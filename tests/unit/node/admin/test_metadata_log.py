"""The metadata log: nothing is answered before it is durable, and nothing that was answered is lost."""

from __future__ import annotations

import errno
from random import Random

import pytest

from harness.desk import Desk
from headrace.machines.metadata.snapshot import image_hash
from headrace.machines.raft.quorum_state import QuorumState
from headrace.node.metadata_files import METADATA_DIRECTORY, load, snapshots
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.records.builder import build_batch
from headrace.storage.disk import read_whole
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000)


def restarted(desk: Desk, **more: object) -> Desk:
    return Desk(disks=desk.disks, seed=99, **more)  # type: ignore[arg-type]


class TestCommit:
    def test_a_topic_is_answered_once_it_is_durable_and_not_before(self) -> None:
        desk = Desk()
        desk.runs_jobs = False
        creator, reader = desk.connect(), desk.connect()
        desk.send(creator, create("t"), 7)
        desk.send(reader, MetadataRequest(topics=None), 12)
        assert desk.receive(creator) is None
        assert desk.receive(reader) is None, "a read does not tell what could still be lost"
        assert desk.node.broker.partitions.of_name("t") is None
        desk.run_jobs()
        assert desk.receive(creator).topics[0].error_code == 0
        assert [topic.name for topic in desk.receive(reader).topics] == ["t"]
        assert desk.node.broker.partitions.of_name("t") is not None

    def test_many_decisions_share_one_fsync(self) -> None:
        desk = Desk()
        desk.runs_jobs = False
        connections = [desk.connect() for _ in range(20)]
        for number, connection in enumerate(connections):
            desk.send(connection, create(f"t{number}"), 7)
        assert len(desk.jobs) == 1, "the first one's flush is under way, the others wait for the next"
        desk.run_job()
        desk.settle()
        answered = [desk.receive(connection) is not None for connection in connections]
        assert answered[0]
        desk.run_jobs()
        for connection, was_answered in zip(connections, answered, strict=True):
            assert was_answered or desk.receive(connection).topics[0].error_code == 0
        assert desk.node.controller.metadata.is_committed

    def test_not_ready_before_the_registration_is_durable(self) -> None:
        class Slow(Desk):
            def settle(self) -> None:
                self.runs_jobs = False
                super().settle()

        desk = Slow()
        assert not desk.node.is_ready
        desk.run_jobs()
        assert desk.node.is_ready

    def test_a_refused_request_still_waits_for_what_it_has_seen(self) -> None:
        desk = Desk()
        desk.runs_jobs = False
        first, second = desk.connect(), desk.connect()
        desk.send(first, create("t"), 7)
        desk.send(second, create("t"), 7)
        assert desk.receive(second) is None, "'already exists' would be a lie after a crash"
        desk.run_jobs()
        assert desk.receive(second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


class TestRestart:
    def test_everything_is_there_again_in_a_new_epoch(self) -> None:
        desk = Desk()
        desk.create_topic("t", 3, retention_ms="5")
        before = desk.node.controller.metadata
        again = restarted(desk)
        after = again.node.controller.metadata
        assert after.epoch == before.epoch + 1
        assert after.image.brokers[1].epoch > before.image.brokers[1].epoch
        topic = after.image.topics["t"]
        assert topic.id == before.image.topics["t"].id
        assert [state.leader_epoch for state in topic.partitions.values()] == [1, 1, 1]
        assert after.image.topic_config("t") == {"retention.ms": "5"}
        state = QuorumState.from_bytes(read_whole(again.disks["data"], f"{METADATA_DIRECTORY}/quorum-state"))
        assert state == QuorumState(leader_id=1, leader_epoch=after.epoch)

    def test_the_cluster_keeps_its_name_and_producer_ids_are_not_given_twice(self) -> None:
        desk = Desk()
        first = desk.node.broker.producer_ids.take(desk.clock.now())[0]
        again = restarted(desk)
        assert again.node.directories.cluster_id == desk.node.directories.cluster_id
        assert again.node.broker.producer_ids.take(again.clock.now())[0] >= first + 1000

    def test_ten_restarts_end_in_the_same_image_as_the_log_tells(self) -> None:
        desk = Desk()
        desk.create_topic("t", 2)
        for _ in range(10):
            desk = restarted(desk)
        loaded = load(desk.disks["data"], METADATA_DIRECTORY)
        assert image_hash(loaded.image) == image_hash(desk.node.controller.metadata.image)
        assert loaded.end_offset == desk.node.controller.metadata.end_offset


class TestSnapshots:
    SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}

    def test_a_snapshot_takes_the_place_of_the_log_before_it(self) -> None:
        desk = Desk(self.SETTINGS)
        for number in range(20):
            desk.create_topic(f"t{number}", 2)
        desk.advance(61)
        disk = desk.disks["data"]
        (snapshot,) = snapshots(disk, METADATA_DIRECTORY)
        segments = [name for name in disk.list(METADATA_DIRECTORY) if name.endswith(".log")]
        assert snapshot.end_offset > 0
        assert min(int(name[:20]) for name in segments) > 0, "segments below the snapshot are gone"
        again = restarted(desk)
        assert sorted(again.node.controller.metadata.image.topics) == sorted(
            f"t{number}" for number in range(20)
        )
        loaded = load(disk, METADATA_DIRECTORY)
        assert image_hash(loaded.image) == image_hash(again.node.controller.metadata.image)

    def test_an_unfinished_snapshot_is_no_snapshot(self) -> None:
        desk = Desk()
        desk.create_topic("t")
        disk = desk.disks["data"]
        for name in (f"{5:020d}-{1:010d}.checkpoint.part", f"{4:020d}-{1:010d}.checkpoint"):
            file = disk.open(f"{METADATA_DIRECTORY}/{name}", create=True)
            file.append(b"half a snapsh")
            file.close()
        assert sorted(restarted(desk).node.controller.metadata.image.topics) == ["t"]
        assert not [name for name in disk.list(METADATA_DIRECTORY) if name.endswith(".part")]

    def test_a_failed_snapshot_does_no_harm(self) -> None:
        disk = FaultyDisk(MemoryDisk(), [Fault(Fail(errno.ENOSPC), "append", ".checkpoint")])
        desk = Desk(self.SETTINGS, disks={"data": disk})
        for number in range(40):
            desk.create_topic(f"t{number}", 2)
        assert desk.halted is None
        assert len(snapshots(disk, METADATA_DIRECTORY)) == 1, "the next one succeeded"
        assert len(restarted(desk).node.controller.metadata.image.topics) == 40

    def test_a_failure_while_the_log_is_trimmed_ends_the_node(self) -> None:
        """The snapshot is whole, and the disk refuses to rename the segments before it."""
        disk = FaultyDisk(MemoryDisk(), [Fault(Fail(errno.EIO), "rename", ".log")])
        desk = Desk(self.SETTINGS, disks={"data": disk})
        made = 0
        while desk.halted is None and made < 40:
            made += 1
            desk.create_topic(f"t{made}", 2)
        assert desk.halted is not None
        assert desk.halted.startswith("the metadata directory data failed")
        assert desk.node.directories["data"].is_offline
        assert len(snapshots(disk, METADATA_DIRECTORY)) == 1
        assert len(restarted(desk).node.controller.metadata.image.topics) == made


class TestTrouble:
    def test_a_full_disk_refuses_and_changes_nothing(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        desk = Desk(disks={"data": disk})
        desk.create_topic("before")
        end = desk.node.controller.metadata.end_offset
        disk.space_bytes = 10
        (result,) = desk.ask(create("t"), 7).topics
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t" not in desk.node.controller.metadata.image.topics
        assert desk.node.controller.metadata.end_offset == end
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="auto")])
        (topic,) = desk.ask(asked, 12).topics
        assert topic.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.space_bytes = None
        (result,) = desk.ask(create("t"), 7).topics
        assert result.error_code == 0
        assert sorted(restarted(desk).node.controller.metadata.image.topics) == ["before", "t"]

    def test_a_failed_append_ends_the_node_too(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        desk = Desk(disks={"data": disk})
        disk.faults.append(Fault(Fail(), "append", METADATA_DIRECTORY, times=100))
        (result,) = desk.ask(create("t"), 7).topics
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t" not in desk.node.controller.metadata.image.topics
        assert desk.halted is not None

    def test_a_directory_that_fails_while_another_decision_waits_ends_the_node(self) -> None:
        """A flush has ended, and what it committed removes a topic, which fails: the flush that would follow
        for the next decision has no log any more.
        """
        disk = FaultyDisk(MemoryDisk())
        desk = Desk(disks={"data": disk})
        desk.create_topic("gone")
        desk.ask(
            desk.produce_request("gone", build_batch([(0, None, b"value", ())])), 9
        )  # it has a directory now
        desk.runs_jobs = False
        deleting, creating = desk.connect(), desk.connect()
        topics = [DeleteTopicState(name="gone")]
        desk.send(deleting, DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=1_000), 6)
        desk.send(creating, create("next"), 7)
        disk.faults.append(Fault(Fail(errno.EIO), "rename", "gone-0"))
        desk.run_jobs()
        assert desk.halted is not None
        assert desk.halted.startswith("the metadata directory data failed")
        assert desk.receive(creating) is None, "nobody knows whether it is durable"

    def test_a_deletion_that_a_kill_left_unflushed_takes_no_records_before_it_is_durable(self) -> None:
        """The next start finds the deletion in the page cache. Had it removed the directory before the
        deletion is durable, a lost machine would bring the topic back without its records.
        """
        batch = build_batch([(0, None, b"value", ())])
        for seed in range(12):
            desk = Desk()
            desk.create_topic("t", flush_messages="1")
            desk.ask(desk.produce_request("t", batch), 9)
            desk.runs_jobs = False
            topics = [DeleteTopicState(name="t")]
            desk.send(desk.connect(), DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=1_000), 6)
            (disk,) = desk.disks.values()
            assert isinstance(disk, MemoryDisk)
            killed = disk.crash("killed")
            Node(
                Settings.parse(desk.texts), {"data": killed}, Random(1), "boot-1", desk.clock.now()
            )  # no job runs
            again = Desk(disks={"data": killed.crash("lost", Random(seed))}, boot_id="boot-2")
            held = again.node.broker.partitions.of_name("t")
            assert held is None or held[0].opened(again.clock.now()).log_end_offset == 1, seed

    def test_a_failed_fsync_ends_the_node_and_answers_nothing(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        desk = Desk(disks={"data": disk})
        disk.faults.append(Fault(Fail(), "sync", METADATA_DIRECTORY, times=100))
        assert desk.ask(create("t"), 7) is None
        assert desk.halted is not None
        assert "metadata" in desk.halted


class History:
    """What a script asked for and what was answered before the machine stopped."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.made: set[str] = set()
        self.doomed: set[str] = set()
        self.removed: set[str] = set()
        try:
            self.run(Desk({"metadata.log.max.record.bytes.between.snapshots": "1500"}, disks={"data": disk}))
        except DiskCrashed:
            return

    def run(self, desk: Desk) -> None:
        for number in range(8):
            name = f"t{number}"
            assert desk.ask(create(name, 2), 7).topics[0].error_code == 0
            self.made.add(name)
            if number % 3 == 2:
                self.doomed.add(name)
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1)
                assert desk.ask(request, 6).responses[0].error_code == 0
                self.removed.add(name)


@pytest.mark.parametrize("kind", ["killed", "lost"])
def test_what_was_answered_survives_a_crash_at_every_disk_call(kind: str) -> None:
    """The node stops at each change of the disk in turn, and starts again on what is left."""
    whole = FaultyDisk(MemoryDisk())
    History(whole)
    places = len(whole.changes())
    assert places > 60
    for place in range(places):
        memory = MemoryDisk()
        history = History(FaultyDisk(memory, [Fault(Crash(written=place % 7), skip=place)]))
        left = memory.crash(kind, Random(place))  # type: ignore[arg-type]
        boot_id = "boot-1" if kind == "killed" else "boot-2"
        desk = Desk(disks={"data": left}, seed=place, boot_id=boot_id)
        topics = set(desk.node.controller.metadata.image.topics)
        assert history.made - history.doomed <= topics, f"lost at disk call {place}"
        assert not topics & history.removed, f"came back at disk call {place}"
        assert desk.node.is_ready
        assert desk.ask(create("after"), 7).topics[0].error_code == 0
        assert set(restarted(desk, boot_id=boot_id).node.controller.metadata.image.topics) == topics | {
            "after"
        }
