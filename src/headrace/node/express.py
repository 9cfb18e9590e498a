"""The express lane of produce: what a connection said before is recognised, not decoded again.

A producer's requests differ in their correlation id and their records; the rest (client id, acks, topic,
partition) is the same bytes each time. The first request goes the ordinary way; if it was of the usual kind
(one topic, one partition, acks 1 or all, nothing to wait for) and succeeded, its bytes up to the records are
remembered with what they meant, and the next one that begins the same is appended and answered without a
message being built. A request that was refused is never remembered, nor one to an internal topic.

It is a short cut and nothing else: whatever is not quite usual, an error above all, takes the ordinary way,
whose answer the lane's equals byte for byte (a test compares them).
"""

from struct import Struct
from typing import Any, cast

from headrace.base.time import Now
from headrace.node.authorization import Access
from headrace.node.effects import Parts
from headrace.node.faults import FAULTS
from headrace.node.metrics import ApiMetrics, Metrics
from headrace.node.partition import Partition
from headrace.node.partitions import INTERNAL_TOPICS, Partitions
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.varint import encode_varint
from headrace.records.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL

LEARNED_ACKS = (1, -1)
VERSION_MIN = 7  # before it zstd is not allowed, which the ordinary way looks at
IDS_VERSION_MIN = 13

# Prefixes remembered per connection: one per partition that it writes to. Each is some 100 bytes.
PREFIXES_MAX = 256

_START = Struct(">hhi")  # API key, version, correlation id
_SIZE = Struct(">i")
_OFFSETS = Struct(">qqq")  # base offset, log append time, log start offset: side by side in the response
_SENTINEL = (0x7AC1_55ED_0FF5_E701, 0x7AC1_55ED_0FF5_E702, 0x7AC1_55ED_0FF5_E703)

# Every struct of a flexible request ends in a tag buffer: the partition's, the topic's, the request's.
_NO_TAGS = b"\0\0\0"


class Remembered:
    """What one prefix means, and the constant parts of its answer."""

    __slots__ = ("after", "before", "is_for_all", "metrics", "partition", "size")

    def __init__(
        self,
        partition: Partition,
        metrics: ApiMetrics,
        is_for_all: bool,
        size: bytes,
        before: bytes,
        after: bytes,
    ) -> None:
        self.partition = partition
        self.metrics = metrics
        self.is_for_all = is_for_all  # acks=all
        self.size = size
        self.before = before
        self.after = after

    def is_answered_by(self, answer: bytes) -> bool:
        """Whether the ordinary way gave what the lane would give: any refusal looks different."""
        before, after = self.before, self.after
        return (
            len(answer) == 8 + len(before) + _OFFSETS.size + len(after)
            and answer.startswith(self.size)
            and answer.startswith(before, 8)
            and answer.endswith(after)
        )


class ExpressLane:
    """One connection's memory of its produce requests, all of one version and one prefix length."""

    __slots__ = (
        "_access",
        "_is_flexible",
        "_metrics",
        "_prefix_end",
        "_prefixes",
        "_version",
        "_waiting",
    )

    def __init__(
        self,
        access: Access,
        waiting: Waiting,
        metrics: Metrics,
        version: int,
        is_flexible: bool,
        prefix_end: int,
    ) -> None:
        self._access = access
        self._waiting = waiting
        self._metrics = metrics
        self._version = version
        self._is_flexible = is_flexible
        self._prefix_end = prefix_end  # where the length of the records begins
        self._prefixes: dict[bytes, Remembered] = {}

    def serve(self, now: Now, frame: memoryview) -> Parts | None:
        """The answer to a request that is recognised; None: take the ordinary way, nothing has happened."""
        end = self._prefix_end
        if len(frame) < end + HEADER_BYTES:
            return None
        api_key, version, _ = _START.unpack_from(frame)
        if api_key != 0 or version != self._version:
            return None
        known = self._prefixes.get(bytes(frame[8:end]))
        if known is None or self._access.authorizer is not None or self._waiting.quotas is not None:
            return None
        partition = known.partition
        if not partition.takes_express or partition.opens_batches:
            return None  # opening may change a batch where it lies before the log refuses it
        if known.is_for_all and (len(partition.leader.isr) > 1 or partition.min_insync_replicas > 1):
            return None
        records = self._records(frame)
        if records is None or records[ATTRIBUTES_AT + 1] & TRANSACTIONAL:
            return None
        try:
            appended = partition.append(records, now)
        except FAULTS:
            return None  # nothing was appended; the ordinary way finds the same fault and names it
        known.metrics.requests += 1
        metrics = self._metrics
        metrics.produced_batches += 1
        metrics.produced_bytes += len(records)
        offsets = _OFFSETS.pack(appended.base_offset, appended.log_append_time_ms, appended.log_start_offset)
        return [b"".join((known.size, frame[4:8], known.before, offsets, known.after))]

    def _records(self, frame: memoryview) -> memoryview | None:
        """What follows the prefix, if it is exactly one field of records."""
        position = self._prefix_end
        if not self._is_flexible:
            position += 4
            (size,) = _SIZE.unpack_from(frame, position - 4)
            return frame[position:] if size == len(frame) - position and size >= HEADER_BYTES else None
        size = shift = 0
        while True:
            byte = frame[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                return None
        end = len(frame) - 3
        if size - 1 != end - position or size - 1 < HEADER_BYTES or frame[end:] != _NO_TAGS:
            return None
        return frame[position:end]

    def fits(self, version: int, prefix_end: int) -> bool:
        return version == self._version and prefix_end == self._prefix_end

    def remember(self, frame: memoryview, known: Remembered) -> None:
        if len(self._prefixes) >= PREFIXES_MAX:
            self._prefixes.clear()
        self._prefixes[bytes(frame[8 : self._prefix_end])] = known


class ExpressLanes:
    """Makes the lanes of all connections, from requests that were answered the ordinary way."""

    __slots__ = ("_access", "_metrics", "_partitions", "_waiting")

    def __init__(self, partitions: Partitions, access: Access, waiting: Waiting, metrics: Metrics) -> None:
        self._partitions = partitions
        self._access = access
        self._waiting = waiting
        self._metrics = metrics

    def learn(self, request: Request, parts: Parts, frame: memoryview, position: int) -> None:
        """After a produce request was answered the ordinary way: remember it, if it is of the usual kind.

        `position` is where the request's body begins in the frame.
        """
        body = request.body
        version = request.version
        if version < VERSION_MIN or body.acks not in LEARNED_ACKS or body.transactional_id is not None:
            return
        if len(body.topic_data) != 1 or len(body.topic_data[0].partition_data) != 1:
            return
        topic = body.topic_data[0]
        data = topic.partition_data[0]
        uses_ids = version >= IDS_VERSION_MIN
        partitions = (
            self._partitions.of_id(topic.topic_id) if uses_ids else self._partitions.of_name(topic.name)
        )
        if partitions is None or not 0 <= data.index < len(partitions) or not data.records:
            return
        partition = partitions[data.index]
        if partition.topic in INTERNAL_TOPICS or partition.opens_batches:
            return
        is_flexible = request.route.response.flexible
        size = len(data.records)
        length_bytes = len(encode_varint(size + 1)) if is_flexible else 4
        prefix_end = len(frame) - (len(_NO_TAGS) if is_flexible else 0) - size - length_bytes
        # the same can be said in other bytes: with tags, a longer length, or some left over at the end
        data.records = b""
        said = request.route.request.encode(body)[: -len(_NO_TAGS) - 1 if is_flexible else -4]
        if frame[position:prefix_end] != said:
            return
        known = _remembered(request, topic, partition)
        if not known.is_answered_by(b"".join(cast(list[bytes], parts))):
            return
        connection = request.connection
        lane = connection.express
        if not isinstance(lane, ExpressLane) or not lane.fits(version, prefix_end):
            lane = connection.express = ExpressLane(
                self._access, self._waiting, self._metrics, version, is_flexible, prefix_end
            )
        lane.remember(frame, known)


def _remembered(request: Request, topic: Any, partition: Partition) -> Remembered:
    """The answer's constant parts, cut out of an answer that the codec made."""
    base_offset, log_append_time_ms, log_start_offset = _SENTINEL
    result = PartitionProduceResponse(
        index=partition.index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(topic_id=topic.topic_id, partition_responses=[result])
            if request.version >= IDS_VERSION_MIN
            else TopicProduceResponse(name=topic.name, partition_responses=[result])
        ]
    )
    codec = request.route.response
    before, after = codec.encode(response).split(_OFFSETS.pack(*_SENTINEL))
    header_tags = b"\0" * codec.header_version
    size = 4 + len(header_tags) + len(before) + _OFFSETS.size + len(after)
    return Remembered(
        partition,
        request.route.metrics,
        request.body.acks != 1,
        _SIZE.pack(size),
        header_tags + before,
        after,
    )
