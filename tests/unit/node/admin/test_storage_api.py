"""DeleteRecords, DescribeLogDirs and DescribeProducers: what admins ask of the logs."""

from __future__ import annotations

from typing import Any

import pytest

from harness.desk import Desk
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.records.builder import build_batch
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def batch(count: int = 1, **more: int) -> bytes:
    return build_batch([(1_700_000_000_000, None, b"value", ())] * count, **more)


def filled(count: int = 10, **configs: str) -> Desk:
    desk = Desk()
    desk.create_topic("t", 2, **configs)
    for _ in range(count):
        desk.ask(desk.produce_request("t", batch()), 9)
    return desk


def delete(desk: Desk, topic: str, partition: int, offset: int, version: int = 2) -> Any:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
            )
        ]
    )
    (answer,) = desk.ask(request, version).topics
    (result,) = answer.partitions
    return result


class TestDeleteRecords:
    @pytest.mark.parametrize("version", range(3))
    def test_the_log_starts_there_in_every_version(self, version: int) -> None:
        desk = filled()
        result = delete(desk, "t", 0, 4, version)
        assert (result.error_code, result.low_watermark) == (0, 4)
        (first, _) = desk.node.broker.partitions.of_name("t") or []
        assert first.log is not None
        assert first.log.log_start_offset == 4

    def test_minus_one_is_everything(self) -> None:
        assert delete(filled(), "t", 0, -1).low_watermark == 10

    def test_below_the_start_changes_nothing(self) -> None:
        desk = filled()
        delete(desk, "t", 0, 4)
        assert delete(desk, "t", 0, 2).low_watermark == 4

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

    def test_a_compacted_topic_keeps_its_newest_records(self) -> None:
        desk = filled(0, cleanup_policy="compact")
        assert delete(desk, "t", 0, 0).error_code == ErrorCode.POLICY_VIOLATION


class TestDescribeLogDirs:
    @pytest.mark.parametrize("version", range(1, 6))
    def test_sizes_in_every_version(self, version: int) -> None:
        desk = filled()
        (result,) = desk.ask(DescribeLogDirsRequest(topics=None), version).results
        assert (result.error_code, result.log_dir) == (0, "data")
        (topic,) = result.topics
        sizes = {partition.partition_index: partition.partition_size for partition in topic.partitions}
        assert sizes == {0: 10 * len(batch()), 1: 0}
        if version >= 4:
            assert result.usable_bytes > 0

    def test_chosen_ones_over_two_directories(self) -> None:
        desk = Desk(disks={"one": MemoryDisk(), "two": MemoryDisk()})
        desk.create_topic("t", 4)
        chosen = DescribableLogDirTopic(topic="t", partitions=[0, 1, 2, 99])
        results = desk.ask(DescribeLogDirsRequest(topics=[chosen]), 4).results
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
        desk = Desk({"metadata.log.dir": "sound"}, disks={"broken": broken, "sound": MemoryDisk()})
        desk.create_topic("t", 4)
        broken.faults.append(Fault(Fail(), "append", ".log"))
        for index in range(4):
            desk.ask(desk.produce_request("t", batch(), partition=index), 9)
        results = desk.ask(DescribeLogDirsRequest(topics=None), 4).results
        codes = {result.log_dir: result.error_code for result in results}
        assert codes == {"broken": ErrorCode.KAFKA_STORAGE_ERROR, "sound": 0}


class TestDescribeProducers:
    def test_an_idempotent_producer(self) -> None:
        desk = filled(0)
        for sequence in (0, 3):
            records = batch(3, producer_id=7, producer_epoch=2, base_sequence=sequence)
            desk.ask(desk.produce_request("t", records), 9)
        topics = [TopicRequest(name="t", partition_indexes=[0, 1, 9])]
        (topic,) = desk.ask(DescribeProducersRequest(topics=topics), 0).topics
        first, second, missing = topic.partitions
        (producer,) = first.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 5)
        assert (producer.last_timestamp, producer.current_txn_start_offset) == (1_700_000_000_000, -1)
        assert second.active_producers == []
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_each_partition_is_told_once(self) -> None:
        """An answer may be long; a client must not be able to multiply it."""
        desk = filled(0)
        topics = [TopicRequest(name="t", partition_indexes=[0, 1, 0])] * 3
        (topic,) = desk.ask(DescribeProducersRequest(topics=topics), 0).topics
        assert [partition.partition_index for partition in topic.partitions] == [0, 1]
