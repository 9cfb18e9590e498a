"""SplitRanges (key 30001, Headrace's own): where to cut ranges of offsets into parts of about so many bytes.

Kafka's clients can only ask how large a whole partition is; who shares one out between several readers wants
to know where in it the bytes lie.
"""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, INT64, UUID, Request, Response, Struct, array, field


class SplitPartition(Struct):
    partition_index: int = field(INT32)
    start_offset: int = field(INT64)
    end_offset: int = field(INT64)
    bytes_per_split: int = field(INT64)


class SplitTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[SplitPartition] = field(array(SplitPartition))


class SplitRangesRequest(Request, key=30001, versions="0", flexible="0+"):
    topics: list[SplitTopic] = field(array(SplitTopic))


class SplitPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    log_start_offset: int = field(INT64, default=-1)
    total_bytes: int = field(INT64, default=-1)  # of the range, roughly
    split_offsets: list[int] = field(array(INT64))  # strictly inside the range, rising


class SplitTopicResponse(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[SplitPartitionResponse] = field(array(SplitPartitionResponse))


class SplitRangesResponse(Response, key=30001, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    topics: list[SplitTopicResponse] = field(array(SplitTopicResponse))
