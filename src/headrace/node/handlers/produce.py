"""Produce, key 0, versions 3–13: append one batch to each named partition.

acks=0 gets no answer (an error closes the connection), acks=1 is answered once the record is in the log, acks=-1 once it is
below the high watermark. Where flush.messages was reached, both wait for the fsync.

This is the hot path: no work per record, no copy of records, no object that is not needed.
"""

from typing import Any

from headrace.base.time import Instant, Now
from headrace.node.authorization import Operation, Resource
from headrace.node.faults import FAULTS, code_of
from headrace.node.leadership import endpoints
from headrace.node.node import Node
from headrace.node.parking import Parked
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.records.batch import CODEC_MASK, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL, read_header

ALL = -1
ZSTD = 4
ZSTD_VERSION_MIN = 7
IDS_VERSION_MIN = 13
LEADER_VERSION_MIN = 10
NO_OFFSET = -1


def handle(node: Node, request: Request) -> ProduceResponse | Parked | None:
    body: ProduceRequest = request.body
    acks = body.acks
    version = request.version
    now = request.now
    uses_ids = version >= IDS_VERSION_MIN
    waits: list[Wait] | None = None
    failure: ErrorCode | None = None
    leaders: list[int] = []  # of partitions that are led elsewhere
    responses: list[TopicProduceResponse] = []
    for topic in body.topic_data:
        partitions = node.partitions.of_id(topic.topic_id) if uses_ids else node.partitions.of_name(topic.name)
        refusal = None
        if acks not in (1, ALL, 0):
            refusal = ErrorCode.INVALID_REQUIRED_ACKS
        elif partitions is None:
            refusal = ErrorCode.UNKNOWN_TOPIC_ID if uses_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif node.authorizer is not None and not node.allows(
            request, Operation.WRITE, Resource.TOPIC, partitions[0].topic
        ):
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        results: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            index = data.index
            if refusal is not None or partitions is None:
                failure = refusal
                results.append(refused(index, failure))
                continue
            if not 0 <= index < len(partitions):
                failure = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                results.append(refused(index, failure))
                continue
            partition = partitions[index]
            if partition.leader_id != node.id:
                failure = ErrorCode.NOT_LEADER_OR_FOLLOWER
                result = refused(index, failure)
                result.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader_id, leader_epoch=partition.leader.epoch
                )
                leaders.append(partition.leader_id)
                results.append(result)
                continue
            records: Any = data.records
            try:
                if acks == ALL and not partition.leader.has_enough(partition.min_insync_replicas):
                    failure = ErrorCode.NOT_ENOUGH_REPLICAS
                    results.append(refused(index, failure))
                    continue
                code, why = inadmissible(records, version)
                if code is not None:
                    failure = code
                    results.append(refused(index, code, why))
                    continue
                appended = partition.append(records, now)
            except FAULTS as fault:
                failure = code_of(fault)
                results.append(refused(index, failure, str(fault)))
                if failure is ErrorCode.KAFKA_STORAGE_ERROR:
                    node.partitions.storage_failed(now, partition, fault)
                continue
            node.metrics.produced_batches += 1
            node.metrics.produced_bytes += len(records)
            result = PartitionProduceResponse(
                index=index,
                base_offset=appended.base_offset,
                log_append_time_ms=appended.log_append_time_ms,
                log_start_offset=appended.log_start_offset,
            )
            results.append(result)
            end = appended.last_offset + 1
            if (acks == ALL and end > partition.leader.high_watermark) or partition.must_await_flush(appended):
                if waits is None:
                    waits = []
                waits.append(Wait(partition, result, end, acks == ALL))
        responses.append(
            TopicProduceResponse(topic_id=topic.topic_id, partition_responses=results)
            if uses_ids
            else TopicProduceResponse(name=topic.name, partition_responses=results)
        )
    if acks == 0:
        if failure is not None:
            # the client awaits no answer, so a broken connection is the only way to tell it (as Kafka does)
            node.close(request.connection, f"produce with acks=0 failed: {failure.name}")
        return None
    response = ProduceResponse(responses=responses)
    if leaders and version >= LEADER_VERSION_MIN:
        response.node_endpoints = endpoints(node, request, leaders, NodeEndpoint)
    if waits is not None:
        return ParkedProduce(node, request, response, waits, body.timeout_ms)
    return response


def inadmissible(records: Any, version: int) -> tuple[ErrorCode | None, str]:
    """What a produce request may not carry whatever the log thinks of it."""
    if records is None or len(records) < HEADER_BYTES:
        return ErrorCode.INVALID_RECORD, "a produce request holds exactly one record batch per partition"
    header = read_header(records)
    if header[3] != MAGIC:
        return ErrorCode.INVALID_RECORD, f"record batches have message format 2, not {header[3]}"
    size = header[1] + LENGTH_OVERHEAD
    if HEADER_BYTES <= size < len(records):
        return ErrorCode.INVALID_RECORD, "a produce request holds exactly one record batch per partition"
    attributes = header[5]
    if attributes & (CODEC_MASK | TRANSACTIONAL):
        if attributes & CODEC_MASK == ZSTD and version < ZSTD_VERSION_MIN:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later"
        if attributes & TRANSACTIONAL:
            return ErrorCode.INVALID_TXN_STATE, "no transaction is open for this producer"
    return None, ""


def refused(index: int, code: ErrorCode | None, message: str | None = None) -> PartitionProduceResponse:
    assert code is not None
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=NO_OFFSET, error_message=message or None
    )


class Wait:
    """One partition's part of an answer that is not true yet."""

    __slots__ = ("end", "for_high_watermark", "partition", "result")

    def __init__(
        self, partition: Partition, result: PartitionProduceResponse, end: int, for_high_watermark: bool
    ) -> None:
        self.partition = partition
        self.result = result
        self.end = end  # one past the last record
        self.for_high_watermark = for_high_watermark

    def outcome(self) -> ErrorCode | None:
        """NONE once it holds, an error once it cannot, None while it is open."""
        partition = self.partition
        if partition.is_deleted:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.is_offline or partition.log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.for_high_watermark:
            if partition.leader.high_watermark < self.end:
                return None
            if not partition.leader.has_enough(partition.min_insync_replicas):
                return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if partition.config.flush_messages < 2 and partition.log.flushed_offset < self.end:
            return None
        return ErrorCode.NONE


class ParkedProduce(Parked):
    """Answered when all its partitions hold what was promised, or when the client's timeout is over."""

    __slots__ = ("_at", "_open", "_response")

    def __init__(
        self, node: Node, request: Request, response: ProduceResponse, waits: list[Wait], timeout_ms: int
    ) -> None:
        super().__init__(node, request)
        self._response = response
        self._open = waits
        self._at = request.now.after_ms(max(timeout_ms, 0))
        request.body = None  # it views the connection's buffer
        for wait in waits:
            self.wait_for(wait.partition)

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> ProduceResponse | None:
        still_open: list[Wait] = []
        for wait in self._open:
            outcome = wait.outcome()
            if outcome is None:
                if not is_expired:
                    still_open.append(wait)
                    continue
                outcome = ErrorCode.REQUEST_TIMED_OUT
            if outcome is not ErrorCode.NONE:
                wait.result.error_code = outcome
                wait.result.base_offset = NO_OFFSET
                wait.result.log_append_time_ms = -1
                wait.result.log_start_offset = -1
        self._open = still_open
        return None if still_open else self._response
