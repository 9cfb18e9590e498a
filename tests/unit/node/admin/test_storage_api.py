"""DeleteRecords, DescribeLogDirs and DescribeProducers: what admins ask of the logs."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from harness.disks import memory_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.checkpoints import LOG_STARTS
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def batch(count: int = 1, **more: Any) -> bytes:
    return build_batch([(1_700_000_000_000, None, b"value", ())] * count, **more)


def filled(count: int = 10, disk: Disk | None = None, **configs: str) -> ManualHost:
    host = ManualHost(disks={"data": disk or MemoryDisk()})
    host.create_topic("t", 2, **configs)
    for _ in range(count):
        host.ask(host.produce_request("t", batch()), 9)
    return host


def deletion(topic: str, partition: int, offset: int) -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=1000)


def delete(host: ManualHost, topic: str, partition: int, offset: int, version: int = 2) -> Any:
    (answer,) = host.ask(deletion(topic, partition, offset), version).topics
    (result,) = answer.partitions
    return result


def start_of(host: ManualHost, partition: int = 0) -> int:
    return host.partitions("t")[partition].opened(host.clock.now()).log_start_offset


def restarted(host: ManualHost, *, boot_id: str = "boot-1") -> ManualHost:
    """After a kill."""
    return ManualHost(disks={"data": memory_of(host.disks["data"]).clone()}, boot_id=boot_id)


class TestDeleteRecords:
    def test_a_topic_that_is_named_twice_begins_at_the_higher_offset_also_after_a_kill(self) -> None:
        host = filled()
        request = deletion("t", 0, 8)
        request.topics += deletion("t", 0, 5).topics
        answers = host.ask(request, 2).topics
        assert [one.partitions[0].low_watermark for one in answers] == [8, 8]
        assert start_of(restarted(host)) == 8

    @pytest.mark.parametrize("version", range(3))
    def test_the_log_starts_there_in_every_version(self, version: int) -> None:
        host = filled()
        result = delete(host, "t", 0, 4, version)
        assert (result.error_code, result.low_watermark) == (0, 4)
        (first, _) = host.partitions("t")
        assert first.log is not None
        assert first.log.log_start_offset == 4

    def test_minus_one_is_everything(self) -> None:
        assert delete(filled(), "t", 0, -1).low_watermark == 10

    def test_below_the_start_changes_nothing(self) -> None:
        host = filled()
        delete(host, "t", 0, 4)
        assert delete(host, "t", 0, 2).low_watermark == 4

    @pytest.mark.parametrize(
        ("topic", "partition", "offset", "code"),
        [
            ("t", 0, 11, ErrorCode.OFFSET_OUT_OF_RANGE),
            ("t", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
            ("t", 7, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", -1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("nope", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_refused(self, topic: str, partition: int, offset: int, code: ErrorCode) -> None:
        result = delete(filled(), topic, partition, offset)
        assert (result.error_code, result.low_watermark) == (code, -1)

    def test_a_deletion_that_found_no_space_does_not_happen_later(self) -> None:
        """The next checkpoint wrote the refused start: the records were served until a restart, then gone."""
        disk = FaultyDisk(MemoryDisk())
        host = filled(disk=disk)
        disk.faults = [Fault(Fail(errno.ENOSPC), "append", LOG_STARTS)]
        assert delete(host, "t", 0, 4).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert start_of(host) == 0
        host.ask(host.produce_request("t", batch()), 9)
        host.advance(120)
        assert start_of(restarted(host)) == 0
        assert delete(host, "t", 0, 3).low_watermark == 3
        assert start_of(restarted(host)) == 3

    def test_one_that_found_no_space_takes_nothing_from_others_that_wait(self) -> None:
        """Two more are ordered before the first fails: their starts are durable when they are answered."""
        disk = FaultyDisk(MemoryDisk())
        host = filled(disk=disk)
        host.ask(host.produce_request("t", batch(5), partition=1), 9)
        host.runs_jobs = False
        clients = []
        for partition, offset in ((0, 7), (0, 4), (1, 2)):
            clients.append(host.connect())
            host.send(clients[-1], deletion("t", partition, offset), 2)
        disk.faults = [Fault(Fail(errno.ENOSPC), "append", LOG_STARTS)]
        host.run_jobs()
        codes = [host.receive(client).topics[0].partitions[0].error_code for client in clients]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]
        assert (start_of(host), start_of(host, 1)) == (4, 2)
        again = restarted(host)
        assert start_of(again) >= 4
        assert start_of(again, 1) == 2
        host.runs_jobs = True
        host.advance(120)
        assert start_of(restarted(host)) == 4

    def test_a_checkpoint_that_was_ordered_meanwhile_does_not_bring_records_back(self) -> None:
        """It is written after the deletion that was ordered before it."""
        host = filled()
        host.runs_jobs = False
        client = host.connect()
        host.send(client, deletion("t", 0, 4), 2)
        host.advance(120)
        host.run_jobs()
        assert host.receive(client).topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert start_of(host) == start_of(restarted(host)) == 4

    def test_a_topic_deleted_meanwhile_leaves_its_start_to_nobody(self) -> None:
        """The next topic of its name starts at 0."""
        host = filled()
        host.runs_jobs = False
        client = host.connect()
        host.send(client, deletion("t", 0, 4), 2)
        held = host.jobs.popleft()
        host.runs_jobs = True
        host.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        host.create_topic("t", 2)
        for _ in range(10):
            host.ask(host.produce_request("t", batch()), 9)
        host.jobs.append(held)
        host.settle()
        answered = host.receive(client).topics[0].partitions[0]
        assert answered.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        host.advance(120)
        assert start_of(host) == 0
        assert start_of(restarted(host)) == 0
        assert start_of(restarted(host, boot_id="boot-2")) == 0

    def test_a_compacted_topic_keeps_its_newest_records(self) -> None:
        host = filled(0, cleanup_policy="compact")
        assert delete(host, "t", 0, 0).error_code == ErrorCode.POLICY_VIOLATION


class TestDescribeLogDirs:
    @pytest.mark.parametrize("version", range(1, 6))
    def test_sizes_in_every_version(self, version: int) -> None:
        host = filled()
        (result,) = host.ask(DescribeLogDirsRequest(topics=None), version).results
        assert (result.error_code, result.log_dir) == (0, "data")
        (topic,) = result.topics
        sizes = {partition.partition_index: partition.partition_size for partition in topic.partitions}
        assert sizes == {0: 10 * len(batch()), 1: 0}
        if version >= 4:
            assert result.usable_bytes > 0

    def test_chosen_ones_over_two_directories(self) -> None:
        host = ManualHost(disks={"one": MemoryDisk(), "two": MemoryDisk()})
        host.create_topic("t", 4)
        chosen = DescribableLogDirTopic(topic="t", partitions=[0, 1, 2, 99])
        results = host.ask(DescribeLogDirsRequest(topics=[chosen]), 4).results
        assert [result.log_dir for result in results] == ["one", "two"]
        found = [
            partition.partition_index
            for result in results
            for topic in result.topics
            for partition in topic.partitions
        ]
        assert sorted(found) == [0, 1, 2]
        assert all(result.topics for result in results), "partitions are spread over the directories"

    def test_a_failed_directory_says_so(self) -> None:
        broken = FaultyDisk(MemoryDisk())
        host = ManualHost({"metadata.log.dir": "sound"}, disks={"broken": broken, "sound": MemoryDisk()})
        host.create_topic("t", 4)
        broken.faults.append(Fault(Fail(), "append", ".log"))
        for index in range(4):
            host.ask(host.produce_request("t", batch(), partition=index), 9)
        results = host.ask(DescribeLogDirsRequest(topics=None), 4).results
        codes = {result.log_dir: result.error_code for result in results}
        assert codes == {"broken": ErrorCode.KAFKA_STORAGE_ERROR, "sound": 0}


class TestDescribeProducers:
    def test_an_idempotent_producer(self) -> None:
        host = filled(0)
        for sequence in (0, 3):
            records = batch(3, producer_id=7, producer_epoch=2, base_sequence=sequence)
            host.ask(host.produce_request("t", records), 9)
        topics = [TopicRequest(name="t", partition_indexes=[0, 1, 9])]
        (topic,) = host.ask(DescribeProducersRequest(topics=topics), 0).topics
        first, second, missing = topic.partitions
        (producer,) = first.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 5)
        assert (producer.last_timestamp, producer.current_txn_start_offset) == (1_700_000_000_000, -1)
        assert second.active_producers == []
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_each_partition_is_told_once(self) -> None:
        """An answer may be long; a client must not be able to multiply it."""
        host = filled(0)
        topics = [TopicRequest(name="t", partition_indexes=[0, 1, 0])] * 3
        (topic,) = host.ask(DescribeProducersRequest(topics=topics), 0).topics
        assert [partition.partition_index for partition in topic.partitions] == [0, 1]
