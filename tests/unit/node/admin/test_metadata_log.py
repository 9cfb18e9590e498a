"""The metadata log: nothing is answered before it is durable, and nothing that was answered is lost."""

from __future__ import annotations

import errno
from random import Random

import pytest

from headrace.machines.metadata.snapshot import image_hash
from headrace.machines.raft.quorum_state import QuorumState
from headrace.node.metadata_files import METADATA_DIRECTORY, load, snapshots
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import read_whole
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000)


def restarted(host: ManualHost, **more: object) -> ManualHost:
    return ManualHost(disks=host.disks, seed=99, **more)  # type: ignore[arg-type]


class TestCommit:
    def test_a_topic_is_answered_once_it_is_durable_and_not_before(self) -> None:
        host = ManualHost()
        host.runs_jobs = False
        creator, reader = host.connect(), host.connect()
        host.send(creator, create("t"), 7)
        host.send(reader, MetadataRequest(topics=None), 12)
        assert host.receive(creator) is None
        assert host.receive(reader).topics == [], "a read does not tell what could still be lost"
        assert host.node.broker.partitions.of_name("t") is None
        host.run_jobs()
        assert host.receive(creator).topics[0].error_code == 0
        assert [topic.name for topic in host.ask(MetadataRequest(topics=None), 12).topics] == ["t"]
        assert host.node.broker.partitions.of_name("t") is not None

    def test_many_decisions_share_one_fsync(self) -> None:
        host = ManualHost()
        host.runs_jobs = False
        connections = [host.connect() for _ in range(20)]
        for number, connection in enumerate(connections):
            host.send(connection, create(f"t{number}"), 7)
        assert len(host.jobs) == 1, "the first one's flush is under way, the others wait for the next"
        host.run_job()
        host.settle()
        answered = [host.receive(connection) is not None for connection in connections]
        assert answered[0]
        host.run_jobs()
        for connection, was_answered in zip(connections, answered, strict=True):
            assert was_answered or host.receive(connection).topics[0].error_code == 0
        metadata = host.node.controller.metadata
        assert metadata.committed_offset == metadata.end_offset

    def test_not_ready_before_the_registration_is_durable(self) -> None:
        class Slow(ManualHost):
            def settle(self) -> None:
                self.runs_jobs = False
                super().settle()

        host = Slow()
        assert not host.node.is_ready
        host.run_jobs()
        assert host.node.is_ready

    def test_a_refused_request_still_waits_for_what_it_has_seen(self) -> None:
        host = ManualHost()
        host.runs_jobs = False
        first, second = host.connect(), host.connect()
        host.send(first, create("t"), 7)
        host.send(second, create("t"), 7)
        assert host.receive(second) is None, "'already exists' would be a lie after a crash"
        host.run_jobs()
        assert host.receive(second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


class TestRestart:
    def test_everything_is_there_again_in_a_new_epoch(self) -> None:
        host = ManualHost()
        host.create_topic("t", 3, retention_ms="5")
        before = host.node.controller.metadata
        again = restarted(host)
        after = again.node.controller.metadata
        assert after.leader_epoch == before.leader_epoch + 1
        assert after.image.brokers[1].epoch > before.image.brokers[1].epoch
        topic = after.image.topics["t"]
        assert topic.id == before.image.topics["t"].id
        assert [state.leader_epoch for state in topic.partitions.values()] == [1, 1, 1]
        assert after.image.topic_config("t") == {"retention.ms": "5"}
        state = QuorumState.from_bytes(read_whole(again.disks["data"], f"{METADATA_DIRECTORY}/quorum-state"))
        assert (state.leader_id, state.leader_epoch, state.voted_id) == (1, after.leader_epoch, 1)

    def test_the_cluster_keeps_its_name_and_producer_ids_are_not_given_twice(self) -> None:
        host = ManualHost()
        first = host.ask(InitProducerIdRequest(transactional_id=None), 5).producer_id
        again = restarted(host)
        assert again.node.directories.cluster_id == host.node.directories.cluster_id
        assert again.ask(InitProducerIdRequest(transactional_id=None), 5).producer_id >= first + 1000

    def test_ten_restarts_end_in_the_same_image_as_the_log_tells(self) -> None:
        host = ManualHost()
        host.create_topic("t", 2)
        for _ in range(10):
            host = restarted(host)
        loaded = load(host.disks["data"], METADATA_DIRECTORY)
        assert image_hash(loaded.image) == image_hash(host.node.controller.metadata.image)
        assert loaded.end_offset == host.node.controller.metadata.end_offset


class TestSnapshots:
    SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}

    def test_a_snapshot_takes_the_place_of_the_log_before_it(self) -> None:
        host = ManualHost(self.SETTINGS)
        for number in range(20):
            host.create_topic(f"t{number}", 2)
        host.advance(61)
        disk = host.disks["data"]
        (snapshot,) = snapshots(disk, METADATA_DIRECTORY)
        segments = [name for name in disk.list(METADATA_DIRECTORY) if name.endswith(".log")]
        assert snapshot.end_offset > 0
        assert min(int(name[:20]) for name in segments) > 0, "segments below the snapshot are gone"
        again = restarted(host)
        assert sorted(again.node.controller.metadata.image.topics) == sorted(
            f"t{number}" for number in range(20)
        )
        loaded = load(disk, METADATA_DIRECTORY)
        assert image_hash(loaded.image) == image_hash(again.node.controller.metadata.image)

    def test_a_decision_may_be_larger_than_a_snapshot_is_apart_from_the_next(self) -> None:
        """A segment has at most so many bytes, but a decision is one batch: it gets a segment that it fits
        into.
        """
        host = ManualHost(self.SETTINGS)
        host.create_topic("large", 100)
        host.create_topic("small", 1)
        again = restarted(host)
        topics = again.node.controller.metadata.image.topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"large": 100, "small": 1}

    def test_an_unfinished_snapshot_is_no_snapshot(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        disk = host.disks["data"]
        for name in (f"{5:020d}-{1:010d}.checkpoint.part", f"{4:020d}-{1:010d}.checkpoint"):
            file = disk.open(f"{METADATA_DIRECTORY}/{name}", create=True)
            file.append(b"half a snapsh")
            file.close()
        assert sorted(restarted(host).node.controller.metadata.image.topics) == ["t"]
        assert not [name for name in disk.list(METADATA_DIRECTORY) if name.endswith(".part")]

    def test_a_failed_snapshot_does_no_harm(self) -> None:
        disk = FaultyDisk(MemoryDisk(), [Fault(Fail(errno.ENOSPC), "append", ".checkpoint")])
        host = ManualHost(self.SETTINGS, disks={"data": disk})
        for number in range(40):
            host.create_topic(f"t{number}", 2)
        assert host.halted is None
        assert len(snapshots(disk, METADATA_DIRECTORY)) == 1, "the next one succeeded"
        assert len(restarted(host).node.controller.metadata.image.topics) == 40

    def test_a_failure_while_the_log_is_trimmed_ends_the_node(self) -> None:
        """The snapshot is whole, and the disk refuses to rename the segments before it."""
        disk = FaultyDisk(MemoryDisk(), [Fault(Fail(errno.EIO), "rename", ".log")])
        host = ManualHost(self.SETTINGS, disks={"data": disk})
        made = 0
        while host.halted is None and made < 40:
            made += 1
            host.create_topic(f"t{made}", 2)
        assert host.halted is not None
        assert host.halted.startswith("the metadata directory data failed")
        assert host.node.directories["data"].is_offline
        assert len(snapshots(disk, METADATA_DIRECTORY)) == 1
        assert len(restarted(host).node.controller.metadata.image.topics) == made


class TestTrouble:
    def test_a_full_disk_refuses_and_changes_nothing(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        host = ManualHost(disks={"data": disk})
        host.create_topic("before")
        end = host.node.controller.metadata.end_offset
        disk.space_bytes = 10
        (result,) = host.ask(create("t"), 7).topics
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t" not in host.node.controller.metadata.image.topics
        assert host.node.controller.metadata.end_offset == end
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="auto")])
        (topic,) = host.ask(asked, 12).topics
        assert topic.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.space_bytes = None
        (result,) = host.ask(create("t"), 7).topics
        assert result.error_code == 0
        assert sorted(restarted(host).node.controller.metadata.image.topics) == ["before", "t"]

    def test_a_flush_that_finds_no_descriptor_is_made_later(self) -> None:
        """The decision was in the log and in the image, the client was told that it had failed, and a stop
        waited for ever for its flush.
        """
        disk = FaultyDisk(MemoryDisk())
        host = ManualHost({"metadata.log.max.record.bytes.between.snapshots": "1000"}, disks={"data": disk})
        # the one file that a flush of a new segment opens before its job does
        fault = Fault(Fail(errno.EMFILE), "open", path=".txnindex", times=3)
        disk.faults = [fault]
        asked = []
        while fault.times == 3:
            asked.append(host.connect())
            host.send(asked[-1], create(f"t{len(asked)}"), 7)
            assert len(asked) < 100
        host.advance(10)
        for connection in asked:
            assert host.receive(connection).topics[0].error_code == 0
        assert host.halted is None
        host.node.shutdown(host.clock.now())
        host.settle()
        assert host.node.is_stopped

    def test_a_failed_append_ends_the_node_too(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        host = ManualHost(disks={"data": disk})
        disk.faults.append(Fault(Fail(), "append", METADATA_DIRECTORY, times=100))
        (result,) = host.ask(create("t"), 7).topics
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t" not in host.node.controller.metadata.image.topics
        assert host.halted is not None

    def test_a_directory_that_fails_while_another_decision_waits_ends_the_node(self) -> None:
        """A flush has ended, and what it committed removes a topic, which fails: the flush that would follow
        for the next decision has no log any more.
        """
        disk = FaultyDisk(MemoryDisk())
        host = ManualHost(disks={"data": disk})
        host.create_topic("gone")
        host.ask(
            host.produce_request("gone", build_batch([(0, None, b"value", ())])), 9
        )  # it has a directory now
        host.runs_jobs = False
        deleting, creating = host.connect(), host.connect()
        topics = [DeleteTopicState(name="gone")]
        host.send(deleting, DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=1_000), 6)
        host.send(creating, create("next"), 7)
        disk.faults.append(Fault(Fail(errno.EIO), "rename", "gone-0"))
        host.run_jobs()
        assert host.halted is not None
        assert host.halted.startswith("the metadata directory data failed")
        assert host.receive(creating) is None, "nobody knows whether it is durable"

    def test_a_deletion_that_a_kill_left_unflushed_takes_no_records_before_it_is_durable(self) -> None:
        """The next start finds the deletion in the page cache. Had it removed the directory before the
        deletion is durable, a lost host would bring the topic back without its records.
        """
        batch = build_batch([(0, None, b"value", ())])
        for seed in range(12):
            host = ManualHost()
            host.create_topic("t", flush_messages="1")
            host.ask(host.produce_request("t", batch), 9)
            host.runs_jobs = False
            topics = [DeleteTopicState(name="t")]
            host.send(host.connect(), DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=1_000), 6)
            (disk,) = host.disks.values()
            assert isinstance(disk, MemoryDisk)
            killed = disk.crash("killed")
            Node(
                Settings.parse(host.texts), {"data": killed}, Random(1), "boot-1", host.clock.now()
            )  # no job runs
            again = ManualHost(disks={"data": killed.crash("lost", Random(seed))}, boot_id="boot-2")
            held = again.node.broker.partitions.of_name("t")
            assert held is None or held.replicas[0].opened(again.clock.now()).log_end_offset == 1, seed

    def test_a_failed_fsync_ends_the_node_and_answers_nothing(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        host = ManualHost(disks={"data": disk})
        disk.faults.append(Fault(Fail(), "sync", METADATA_DIRECTORY, times=100))
        assert host.ask(create("t"), 7) is None
        assert host.halted is not None
        assert "metadata" in host.halted


class History:
    """What a script asked for and what was answered before the machine stopped."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.made: set[str] = set()
        self.doomed: set[str] = set()
        self.removed: set[str] = set()
        try:
            self.run(
                ManualHost({"metadata.log.max.record.bytes.between.snapshots": "1500"}, disks={"data": disk})
            )
        except DiskCrashed:
            return

    def run(self, host: ManualHost) -> None:
        for number in range(8):
            name = f"t{number}"
            assert host.ask(create(name, 2), 7).topics[0].error_code == 0
            self.made.add(name)
            if number % 3 == 2:
                self.doomed.add(name)
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1)
                assert host.ask(request, 6).responses[0].error_code == 0
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
        host = ManualHost(disks={"data": left}, seed=place, boot_id=boot_id)
        topics = set(host.node.controller.metadata.image.topics)
        assert history.made - history.doomed <= topics, f"lost at disk call {place}"
        assert not topics & history.removed, f"came back at disk call {place}"
        assert host.node.is_ready
        assert host.ask(create("after"), 7).topics[0].error_code == 0
        assert set(restarted(host, boot_id=boot_id).node.controller.metadata.image.topics) == topics | {
            "after"
        }
