"""Fetch, key 1, versions 4–18: whole batches from the offset on, at once or as soon as there are enough.

A fetch with nothing to tell is parked until min_bytes have gathered, an error turns up, or max_wait is
over. At least one batch is always returned, whatever the limits say (KIP-74), beginning with the one that
contains the offset.
"""

from typing import Any

from headrace.base.limits import FETCH_WAIT_MS_MAX
from headrace.base.time import Instant, Now
from headrace.node.authorization import Operation, Resource
from headrace.node.faults import FAULTS, code_of
from headrace.node.fetch_sessions import NO_SESSION, FetchPlan, SessionRefused
from headrace.node.leadership import endpoints, leadership_fault
from headrace.node.node import Node
from headrace.node.parking import Parked
from headrace.node.partition import READ_COMMITTED, Partition
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from headrace.storage.log import PartitionLog

CONSUMER = -1
DEBUGGER = -2  # reads up to the log end and is nobody's replica
LEADER_VERSION_MIN = 12
IDS_VERSION_MIN = 13
ENDPOINTS_VERSION_MIN = 16


def handle(node: Node, request: Request) -> FetchResponse | Parked:
    body: FetchRequest = request.body
    uses_ids = request.version >= IDS_VERSION_MIN
    wanted: list[tuple[str | bytes, Any]] = [
        (topic.topic_id if uses_ids else topic.topic, partition)
        for topic in body.topics
        for partition in topic.partitions
    ]
    if len(wanted) > 1:
        # each once, as Kafka does: a fetch that waits looks at all of them again at every append
        wanted = [(key[0], last) for key, last in {(t, p.partition): p for t, p in wanted}.items()]
    try:
        plan = node.fetch_sessions.plan(
            request.now,
            body.session_id,
            body.session_epoch,
            uses_ids,
            wanted,
            [
                (topic.topic_id if uses_ids else topic.topic, index)
                for topic in body.forgotten_topics_data
                for index in topic.partitions
            ],
        )
    except SessionRefused as refused:
        return FetchResponse(error_code=refused.code, session_id=NO_SESSION)
    gathering = Gathering(node, request, plan)
    gathering.gather(request.now)
    if body.max_wait_ms <= 0 or gathering.is_enough or not plan.wanted or not node.has_room_to_park:
        return gathering.response()
    return ParkedFetch(node, request, gathering)


class Gathering:
    """What a fetch has found so far; gathered anew each time it is woken, for looking up costs no I/O."""

    __slots__ = (
        "_body",
        "_found",
        "_has_fault",
        "_leaders",
        "_node",
        "_plan",
        "_request",
        "_total",
        "waitables",
    )

    def __init__(self, node: Node, request: Request, plan: FetchPlan) -> None:
        self._node = node
        self._request = request
        self._body: FetchRequest = request.body
        self._plan = plan
        self._found: list[tuple[str | bytes, PartitionData]] = []
        self._total = 0
        self._has_fault = False
        self._leaders: list[int] = []  # of partitions that were refused for being led elsewhere, or later
        self.waitables: list[Partition] = []

    @property
    def is_enough(self) -> bool:
        return self._has_fault or self._total >= self._body.min_bytes

    def gather(self, now: Now) -> None:
        node = self._node
        body = self._body
        self._found = []
        self._total = 0
        self._has_fault = False
        self._leaders = []
        self.waitables = []
        limit = min(body.max_bytes, node.settings.fetch_max_bytes)
        uses_ids = self._request.version >= IDS_VERSION_MIN
        table = node.partitions
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if uses_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic, wanted in self._plan.wanted:
            partitions = table.of_id(topic) if uses_ids else table.of_name(topic)  # type: ignore[arg-type]
            if partitions is None:
                self._fail(topic, wanted, unknown)
            elif not 0 <= wanted.partition < len(partitions):
                self._fail(topic, wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif node.authorizer is not None and not node.allows(
                self._request, Operation.READ, Resource.TOPIC, partitions[0].topic
            ):
                self._fail(topic, wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                self._gather_partition(now, topic, wanted, partitions[wanted.partition], limit)

    def _gather_partition(
        self, now: Now, topic: str | bytes, wanted: Any, partition: Partition, limit: int
    ) -> None:
        fault = leadership_fault(partition, wanted.current_leader_epoch)
        if fault is not None:
            data = self._fail(topic, wanted, fault)
            if fault is not ErrorCode.UNKNOWN_LEADER_EPOCH and self._request.version >= LEADER_VERSION_MIN:
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader_id, leader_epoch=partition.leader.epoch
                )
                self._leaders.append(partition.leader_id)
            return
        try:
            log = partition.log or partition.opened(now)
            replica_id = self._replica_id()
            isolation = self._body.isolation_level
            if replica_id == CONSUMER:
                end = partition.visible_end(isolation)
            else:
                end = log.log_end_offset
                if replica_id >= 0 and (replica_id not in partition.replicas or replica_id == self._node.id):
                    self._fail(topic, wanted, _stranger(wanted))
                    return
            data = PartitionData(
                partition_index=wanted.partition,
                high_watermark=partition.leader.high_watermark,
                last_stable_offset=log.last_stable_offset(partition.leader.high_watermark),
                log_start_offset=log.log_start_offset,
                aborted_transactions=[] if isolation == READ_COMMITTED else None,
                records=b"",
            )
            if wanted.last_fetched_epoch >= 0 and _diverges(log, wanted, data):
                self._has_fault = True
            else:
                span = log.read(
                    wanted.fetch_offset,
                    max_bytes=max(0, min(wanted.partition_max_bytes, limit - self._total)),
                    limit_offset=end,
                    at_least_one=self._total == 0,
                )
                if span is not None:
                    data.records = span
                    self._total += span.size
                    if isolation == READ_COMMITTED:
                        data.aborted_transactions = [
                            AbortedTransaction(producer_id=producer_id, first_offset=first)
                            for producer_id, first in log.aborted_transactions(wanted.fetch_offset, end)
                        ]
        except FAULTS as fault_raised:
            self._fail(topic, wanted, code_of(fault_raised))
            return
        self.waitables.append(partition)
        self._found.append((topic, data))

    def _replica_id(self) -> int:
        state = self._body.replica_state
        return state.replica_id if state is not None else self._body.replica_id

    def _fail(self, topic: str | bytes, wanted: Any, code: ErrorCode) -> PartitionData:
        self._has_fault = True
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        self._found.append((topic, data))
        return data

    def response(self) -> FetchResponse:
        plan = self._plan
        uses_ids = self._request.version >= IDS_VERSION_MIN
        topics: list[FetchableTopicResponse] = []
        last: FetchableTopicResponse | None = None
        last_topic: str | bytes | None = None
        for topic, data in self._found:
            if not plan.has_news(topic, data):
                continue
            if last is None or topic != last_topic:
                last = (
                    FetchableTopicResponse(topic_id=topic, partitions=[])  # type: ignore[arg-type]
                    if uses_ids
                    else FetchableTopicResponse(topic=topic, partitions=[])  # type: ignore[arg-type]
                )
                last_topic = topic
                topics.append(last)
            last.partitions.append(data)
        response = FetchResponse(session_id=plan.session_id, responses=topics)
        if self._leaders and self._request.version >= ENDPOINTS_VERSION_MIN:
            response.node_endpoints = endpoints(self._node, self._request, self._leaders, NodeEndpoint)
        return response


def _stranger(wanted: Any) -> ErrorCode:
    """Somebody claims to be a replica and is none: never believed (CVE-2018-1288)."""
    if wanted.current_leader_epoch >= 0:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _diverges(log: PartitionLog, wanted: Any, data: PartitionData) -> bool:
    """KIP-595: the reader's history is not ours; tell where they part."""
    epoch, end = log.epoch_end_offset(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset:
        return False
    data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
    return True


class ParkedFetch(Parked):
    __slots__ = ("_at", "_gathering")

    def __init__(self, node: Node, request: Request, gathering: Gathering) -> None:
        super().__init__(node, request)
        self._gathering = gathering
        self._at = request.now.after_ms(min(request.body.max_wait_ms, FETCH_WAIT_MS_MAX))
        request.body.topics = []  # the plan holds what is needed of them
        for partition in gathering.waitables:
            self.wait_for(partition)

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> FetchResponse | None:
        self._gathering.gather(now)
        if is_expired or self._gathering.is_enough:
            return self._gathering.response()
        return None
