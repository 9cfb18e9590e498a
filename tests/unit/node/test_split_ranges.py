"""SplitRanges: cuts of a range by bytes, for whoever reads a partition with many tasks."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.base.ids import NO_TOPIC_ID
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.split_ranges import SplitPartition, SplitRangesRequest, SplitTopic
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost


@pytest.fixture
def host() -> ManualHost:
    """Twenty batches of two records, about 1,100 bytes each."""
    host = ManualHost()
    host.create_topic("t", index_interval_bytes="0")
    batch = build_batch([(0, None, bytes(500), ())] * 2)
    for _ in range(20):
        assert (
            host.ask(host.produce_request("t", batch), 9).responses[0].partition_responses[0].error_code == 0
        )
    return host


def topic_id(host: ManualHost) -> bytes:
    answer = host.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    return answer.topics[0].topic_id


def split(host: ManualHost, of: bytes, partition: int, start: int, end: int, size: int) -> Any:
    asked = SplitPartition(
        partition_index=partition, start_offset=start, end_offset=end, bytes_per_split=size
    )
    answer = host.ask(SplitRangesRequest(topics=[SplitTopic(topic_id=of, partitions=[asked])]), 0)
    ((told,),) = [topic.partitions for topic in answer.topics]
    assert answer.topics[0].topic_id == of
    return told


def test_a_range_is_cut_where_batches_begin(host):
    told = split(host, topic_id(host), 0, 0, 40, 5_000)
    assert (told.error_code, told.log_start_offset) == (0, 0)
    assert 20_000 < told.total_bytes < 24_000
    assert 3 <= len(told.split_offsets) <= 5
    assert all(offset % 2 == 0 for offset in told.split_offsets)


def test_what_lies_outside_of_the_log_is_left_out(host):
    told = split(host, topic_id(host), 0, 30, 1 << 40, 1)
    assert told.error_code == 0
    assert told.split_offsets
    assert all(30 < offset < 40 for offset in told.split_offsets)


def test_who_asks_for_nothing_that_is_there_is_told_so(host):
    there = topic_id(host)
    assert split(host, NO_TOPIC_ID, 0, 0, 1, 1).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert split(host, there, 7, 0, 1, 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert split(host, there, 0, 0, 1, 0).error_code == ErrorCode.INVALID_REQUEST
    assert split(host, there, 0, 2, 1, 1).error_code == ErrorCode.INVALID_REQUEST
