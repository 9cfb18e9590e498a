"""Produce, key 0, versions 3–13: append one batch to each named partition.

acks=0 gets no answer (an error closes the connection), acks=1 is answered once the record is in the log,
acks=-1 once it is below the high watermark. Where flush.messages was reached, both wait for the fsync. A
batch that cannot be appended at once waits in its partition's append queue (node/append_queue.py).

This is the hot path: no work per record, no copy of records, no object that is not needed.
"""

from typing import Any

from headrace.base.time import Instant, Now
from headrace.machines.replication.leader import PartitionLeader
from headrace.node.append_queue import HeldBatch, Permit
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.permits import Permits
from headrace.node.error_codes import FAULTS, Refused, refusal_of
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.metrics import Metrics
from headrace.node.partition import Partition
from headrace.node.partitions import INTERNAL_TOPICS, Partitions, TopicReplicas
from headrace.node.ports import Reports
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, MAGIC, MAGIC_AT, TRANSACTIONAL
from headrace.storage.appending import Appended
from headrace.storage.batch_validation import must_be_opened_first
from headrace.storage.errors import MustBeOpenedFirst
from headrace.storage.writing_ahead import LARGE_BYTES

ALL = -1
ZSTD = 4
ZSTD_VERSION_MIN = 7
IDS_VERSION_MIN = 13
LEADER_VERSION_MIN = 10
NO_OFFSET = -1
UNUSUAL = CODEC_MASK | TRANSACTIONAL
ONE_BATCH = "a produce request holds exactly one record batch of message format 2 per partition"


class Produce:
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        permits: Permits,
        access: Access,
        reports: Reports,
        waiting: Waiting,
        metrics: Metrics,
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._metadata = metadata
        self._permits = permits
        self._access = access
        self._reports = reports
        self._waiting = waiting
        self._metrics = metrics

    def handle(self, request: Request) -> ProduceResponse | Parked | None:
        body: ProduceRequest = request.body
        uses_ids = request.version >= IDS_VERSION_MIN
        waits: list[Wait] = []
        failure: ErrorCode | None = None
        leaders: list[int] = []  # of partitions that are led elsewhere
        responses: list[TopicProduceResponse] = []
        is_guarded = self._access.rights is not None
        whole = self._transactional_refusal(request) if is_guarded else None
        for topic in body.topic_data:
            known = (
                self._partitions.of_id(topic.topic_id) if uses_ids else self._partitions.of_name(topic.name)
            )
            denied = whole or self._denied(request, topic, known) if is_guarded else None
            results: list[PartitionProduceResponse] = []
            for data in topic.partition_data:
                try:
                    if denied is not None:
                        raise Refused(denied)
                    partition = self._addressed(request, known, data.index)
                    result = self._append(request, partition, data, waits)
                except Refused as refusal:
                    failure = refusal.code
                    result = refused(data.index, refusal)
                    if (
                        failure is ErrorCode.NOT_LEADER_OR_FOLLOWER
                        and known is not None
                        and request.version >= LEADER_VERSION_MIN
                    ):
                        result.current_leader = self._leader_of(known, data.index)
                        leaders.append(result.current_leader.leader_id)
                except FAULTS as fault:
                    reason = refusal_of(fault)
                    failure = reason.code
                    result = refused(data.index, reason, partition)
                    self._directories.storage_failed(request.now, partition, fault)
                results.append(result)
            responses.append(
                TopicProduceResponse(topic_id=topic.topic_id, partition_responses=results)
                if uses_ids
                else TopicProduceResponse(name=topic.name, partition_responses=results)
            )
        if body.acks == 0:
            if failure is not None:
                # the client awaits no answer: a broken connection is the only way to tell it (as Kafka does)
                self._reports.close(request.connection, f"produce with acks=0 failed: {failure.name}")
            return None
        request.is_usual = (
            failure is None and len(responses) == 1 and len(responses[0].partition_responses) == 1
        )
        response = ProduceResponse(responses=responses)
        if leaders:
            listener = request.connection.listener
            response.node_endpoints = [
                NodeEndpoint(node_id=id, host=endpoint.host, port=endpoint.port)
                for id, endpoint in self._metadata.image.endpoints(leaders, listener)
            ]
        if waits:
            request.is_usual = request.is_usual and waits[0].is_for_followers_alone
            return ParkedProduce(self._waiting, request, response, waits, body.timeout_ms)
        return response

    def _leader_of(self, topic: TopicReplicas, index: int) -> LeaderIdAndEpoch:
        state = self._metadata.image.topics_by_id[topic.id].partitions[index]
        return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)

    def _transactional_refusal(self, request: Request) -> ErrorCode | None:
        """Of all batches, if some are transactional and the client has no right to their transactional id."""
        body: ProduceRequest = request.body
        if not any(
            _is_transactional(data.records) for topic in body.topic_data for data in topic.partition_data
        ):
            return None
        if self._permits.may_write(body.transactional_id, request):
            return None
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def _denied(self, request: Request, topic: Any, known: TopicReplicas | None) -> ErrorCode | None:
        """Before anything is told about the topic: who may not write to it does not learn whether it exists.
        An unknown id names no topic to ask about.
        """
        if request.version < IDS_VERSION_MIN:
            name = topic.name
        elif known is not None:
            name = known.name
        else:
            return None
        is_allowed = self._access.allows(request, Operation.WRITE, Resource.TOPIC, name)
        return None if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _addressed(self, request: Request, topic: TopicReplicas | None, index: int) -> Partition:
        """The partition that is meant, if this broker leads it."""
        if topic is None:
            by_id = request.version >= IDS_VERSION_MIN
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = topic.replicas.get(index)
        if partition is None:
            raise Refused(topic.absence(index))
        if not partition.is_led_here:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.topic in INTERNAL_TOPICS:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION, "only coordinators may write to an internal topic"
            )
        return partition

    def _append(
        self, request: Request, partition: Partition, data: Any, waits: "list[Wait]"
    ) -> PartitionProduceResponse:
        """Append the batch; `waits` gets what is still missing for the answer to be true."""
        acks = request.body.acks
        records = data.records
        if records is None or len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
            raise Refused(ErrorCode.INVALID_RECORD, ONE_BATCH)
        permit: Permit | None = None
        if records[ATTRIBUTES_AT + 1] & UNUSUAL:
            permit = self._admissible(request, partition, records)
        if acks != 1 and acks != 0:
            if acks != ALL:
                raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
            leader = partition.leader
            if leader is not None and len(leader.isr) < partition.min_insync_replicas:
                raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        if partition.has_queue or (len(records) >= LARGE_BYTES and _is_written_ahead(partition, records)):
            must_be_opened = must_be_opened_first(records, partition.config)
            return hold(request, partition, data, waits, must_be_opened=must_be_opened, permit=permit)
        if permit is not None and permit.ask(request.now) is not None:
            return hold(request, partition, data, waits, must_be_opened=False, permit=permit)
        try:
            appended = partition.append(records, request.now)
        except MustBeOpenedFirst:
            return hold(request, partition, data, waits, must_be_opened=True, permit=permit)
        metrics = self._metrics
        metrics.produced_batches += 1
        metrics.produced_bytes += len(records)
        result = PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=appended.log_start_offset,
        )
        end = appended.last_offset + 1
        for_flush = partition.counts_messages and partition.must_await_flush(appended)
        leader = partition.leader
        if for_flush or (acks == ALL and leader is not None and end > leader.high_watermark):
            waits.append(Wait(partition, result, end, for_high_watermark=acks == ALL, for_flush=for_flush))
        return result

    def _admissible(self, request: Request, partition: Partition, records: memoryview) -> Permit | None:
        """Refuses what a produce request of this version may not carry, whatever the log thinks of it. What a
        transactional batch still needs is returned.
        """
        attributes = records[ATTRIBUTES_AT + 1]
        if attributes & CODEC_MASK == ZSTD and request.version < ZSTD_VERSION_MIN:
            raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
        return self._permits.to_write(request, partition, records) if attributes & TRANSACTIONAL else None


def _is_transactional(records: Any) -> bool:
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and records[MAGIC_AT] == MAGIC
        and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL)
    )


def _is_written_ahead(partition: Partition, records: memoryview) -> bool:
    """Whether a large batch is held, which copies it: not if the log refuses one of this size."""
    return len(records) <= partition.config.max_message_bytes and partition.append_queue.has_room(records)


def hold(
    request: Request,
    partition: Partition,
    data: Any,
    waits: "list[Wait]",
    *,
    must_be_opened: bool,
    permit: Permit | None,
) -> PartitionProduceResponse:
    """The batch waits in front of its log; the answer is filled in once its place is known."""
    queue = partition.append_queue
    if not queue.has_room(data.records):
        if permit is not None:
            permit.drop()
        raise Refused(
            ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be decompressed and checked; try again"
        )
    acks = request.body.acks
    held = HeldBatch(request.connection, data.records, closes_if_refused=acks == 0, permit=permit)
    result = PartitionProduceResponse(index=data.index)
    waits.append(Wait(partition, result, NO_OFFSET, for_high_watermark=acks == ALL, held=held))
    queue.hold(request.now, held, must_be_opened=must_be_opened)
    return result


def refused(index: int, refusal: Refused, partition: Partition | None = None) -> PartitionProduceResponse:
    result = PartitionProduceResponse(index=index)
    tell_refusal(result, refusal, partition)
    return result


def tell_refusal(result: PartitionProduceResponse, refusal: Refused, partition: Partition | None) -> None:
    result.error_code = refusal.code
    result.base_offset = NO_OFFSET
    result.log_append_time_ms = -1
    result.log_start_offset = -1
    result.error_message = refusal.message
    if refusal.record_errors:
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in refusal.record_errors
        ]
        if partition is not None and partition.log is not None:
            result.log_start_offset = partition.log.log_start_offset  # as Kafka, which looked at its log


def commit_outcome(partition: Partition, leader: PartitionLeader | None, end: int) -> ErrorCode | None:
    """Whether what was appended under that leader is committed up to `end` (0: only whether it still leads).
    NONE: it is; an error: it will not be, or nobody can tell; None: not yet.
    """
    if partition.is_deleted:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.is_offline or partition.log is None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if leader is None or leader is not partition.leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the offset may hold another leader's records by now
    if end:
        if leader.high_watermark < end:
            return None
        if not leader.has_enough(partition.min_insync_replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE


class Wait:
    """One partition's part of an answer that is not true yet."""

    __slots__ = ("end", "for_flush", "for_high_watermark", "held", "is_told", "leader", "partition", "result")

    def __init__(
        self,
        partition: Partition,
        result: PartitionProduceResponse,
        end: int,
        *,
        for_high_watermark: bool,
        for_flush: bool = False,
        held: HeldBatch | None = None,
    ) -> None:
        self.partition = partition
        self.leader = partition.leader  # in whose epoch the batch was, or will be, appended
        self.result = result
        self.end = end  # one past the last record
        self.for_high_watermark = for_high_watermark
        self.for_flush = for_flush
        self.held = held  # the batch, until its place in the log is known
        self.is_told = False  # the result says already why it failed

    def outcome(self) -> ErrorCode | None:
        """NONE once it holds, an error once it cannot, None while it is open."""
        if self.held is not None:
            placed = self.held.outcome
            if placed is None:
                return None
            if isinstance(placed, Refused):
                tell_refusal(self.result, placed, self.partition)
                self.is_told = True
                return placed.code
            self._place(placed)
        partition = self.partition
        code = commit_outcome(partition, self.leader, self.end if self.for_high_watermark else 0)
        if code is ErrorCode.NONE and self.for_flush:
            log = partition.log
            if log is not None and log.flushed_offset < self.end:
                return None
        return code

    @property
    def is_for_followers_alone(self) -> bool:
        return self.for_high_watermark and not self.for_flush and self.held is None

    def register(self, parked: "ParkedProduce") -> None:
        """Have the request woken when this may hold."""
        if self.held is not None:
            parked.wait_for(self.held)
            return
        if self.for_high_watermark:
            self.partition.await_commit(self.end, parked)
        if self.for_flush:
            parked.wait_for(self.partition)

    def _place(self, appended: Appended) -> None:
        """The batch has left the append queue."""
        self.held = None
        self.end = appended.last_offset + 1
        self.for_flush = self.partition.counts_messages and self.partition.must_await_flush(appended)
        self.result.base_offset = appended.base_offset
        self.result.log_append_time_ms = appended.log_append_time_ms
        self.result.log_start_offset = appended.log_start_offset

    def give_up(self, now: Now) -> None:
        if self.held is not None:
            self.partition.append_queue.withdraw(now, self.held)


class ParkedProduce(Parked):
    """Answered when all its partitions hold what was promised, or when the client's timeout is over."""

    __slots__ = ("_at", "_open", "_response")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        response: ProduceResponse,
        waits: list[Wait],
        timeout_ms: int,
    ) -> None:
        super().__init__(waiting, request)
        self._response = response
        self._open = waits
        self._at = request.now.after_ms(max(timeout_ms, 0))
        if not request.is_usual:  # else the fast path learns from it first
            request.body = None  # it views the connection's buffer
        for wait in waits:
            wait.register(self)
            if wait.held is not None and wait.held.outcome is not None:
                waiting.wake(wait.held)  # it was let through, or refused, at once

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> ProduceResponse | None:
        still_open: list[Wait] = []
        for wait in self._open:
            was_held = wait.held is not None
            outcome = wait.outcome()
            if outcome is None:
                if not is_expired:
                    still_open.append(wait)
                    if was_held and wait.held is None:
                        wait.register(self)
                    continue
                wait.give_up(now)
                outcome = ErrorCode.REQUEST_TIMED_OUT
            if outcome is not ErrorCode.NONE and not wait.is_told:
                tell_refusal(wait.result, Refused(outcome), None)
        self._open = still_open
        return None if still_open else self._response
