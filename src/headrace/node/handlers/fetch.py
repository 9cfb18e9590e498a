"""Fetch, key 1, versions 4–18: whole batches from the offset on, at once or as soon as there are enough.

A fetch with nothing to tell is parked until min_bytes have gathered, an error turns up, or max_wait is over;
woken, it looks only at the partitions that moved. One whose offset lies in an older segment than the end of
its partition does not wait, as in Kafka: a read ends with its segment. At least one batch is always returned,
whatever the limits say (KIP-74), beginning with the one that contains the offset.
"""

from typing import Any

from headrace.base.ids import TopicId
from headrace.base.time import Now
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPlan,
    FetchSessions,
    SessionRefused,
    names_one,
    reader_of,
    replica_id_of,
)
from headrace.node.metadata_log import MetadataLog
from headrace.node.parked_fetches import ParkedFetch, ParkedSessionFetch
from headrace.node.partition import READ_COMMITTED, Partition
from headrace.node.partitions import Partitions, TopicReplicas
from headrace.node.quotas import ClientMeters, Quotas
from headrace.node.replica_feeds import ReplicaFeeds
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Parked, Waiting
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
from headrace.protocol.parts import total_size
from headrace.storage.log import PartitionLog

CONSUMER = -1
DEBUGGER = -2  # reads up to the log end and is nobody's replica
LEADER_VERSION_MIN = 12
IDS_VERSION_MIN = 13
ENDPOINTS_VERSION_MIN = 16
SIZE_BYTES = 4  # of a frame: counted for the quota, as Kafka does; its header is not


class Fetch:
    def __init__(
        self,
        partitions: Partitions,
        metadata: MetadataLog,
        fetch_sessions: FetchSessions,
        feeds: ReplicaFeeds,
        settings: LiveSettings,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._feeds = feeds
        self._partitions = partitions
        self._metadata = metadata
        self._fetch_sessions = fetch_sessions
        self._settings = settings
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> FetchResponse | Parked:
        body: FetchRequest = request.body
        if body.replica_state is not None and self._feeds.is_follower(request):
            request.is_exempt = True
            return self._feeds.handle(request)
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
            plan = self._fetch_sessions.plan(
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
                reader_of(body, self._access),
            )
        except SessionRefused as refused:
            return FetchResponse(error_code=refused.code, session_id=NO_SESSION)
        gathering = self.gathering(request, plan)
        gathering.gather(request.now)
        request.is_usual = (
            len(plan.wanted) == 1
            and body.session_epoch != INITIAL_EPOCH
            and names_one(body)
            and not gathering.is_denied
        )
        if body.max_wait_ms <= 0 or gathering.is_enough or plan.is_empty or not self._waiting.has_room:
            return gathering.response(request.now)
        if plan.session is not None and plan.is_incremental:
            return ParkedSessionFetch(self._waiting, request, gathering, plan.session)
        return ParkedFetch(self._waiting, request, gathering)

    def gathering(self, request: Request, plan: FetchPlan) -> "Gathering":
        return Gathering(
            request,
            plan,
            self._settings.current.fetch_max_bytes,
            self._partitions,
            self._metadata,
            self._fetch_sessions,
            self._access,
            self._waiting.quotas,
        )


class Gathering:
    """What a fetch finds in its partitions: looking up costs no I/O."""

    __slots__ = (
        "_access",
        "_allowed",
        "_body",
        "_bytes_max",
        "_found",
        "_is_complete",
        "_leaders",
        "_limit",
        "_metadata",
        "_partitions",
        "_plan",
        "_quotas",
        "_read",
        "_replica_id",
        "_request",
        "_sessions",
        "_total",
        "min_bytes",
        "sizes",
        "wanted",
    )

    def __init__(
        self,
        request: Request,
        plan: FetchPlan,
        bytes_max: int,
        partitions: Partitions,
        metadata: MetadataLog,
        sessions: FetchSessions,
        access: Access,
        quotas: Quotas,
    ) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._sessions = sessions
        self._access = access
        self._quotas = quotas
        self._request = request
        self._body: FetchRequest = request.body
        self._plan = plan
        self._replica_id = replica_id_of(self._body)
        self._bytes_max = min(self._body.max_bytes, bytes_max)
        self._limit = self._bytes_max
        self.min_bytes = min(self._body.min_bytes, self._limit)  # more would never fit
        self._found: list[tuple[str | bytes, PartitionData]] = []
        self._allowed: dict[str, bool] = {}  # topics that were asked about, while there is an authorizer
        self._total = 0
        self._is_complete = False  # there is a fault to tell, or more would not fit
        self._leaders: list[int] = []  # of partitions that were refused for being led elsewhere, or later
        self.wanted: dict[Partition, Any] = {}  # what is asked of each partition that was found
        self.sizes: dict[Partition, int] = {}  # bytes found in each, unless there are none
        self._read: dict[Partition, PartitionData] = {}  # those that have been read to their end

    @property
    def is_enough(self) -> bool:
        return self._is_complete or self._total >= self.min_bytes

    @property
    def is_denied(self) -> bool:
        """Whether the client has no right to read some of it."""
        return False in self._allowed.values()

    def gather(self, now: Now) -> None:
        if self._quotas.version is not None:
            meters = self._meters(now)
            limit = self._bytes_max
            self._limit = limit if meters is None else meters.fetch_bytes_max(limit, now.mono)
            self.min_bytes = min(self._body.min_bytes, self._limit)
        self._found = []
        self._total = 0
        self._is_complete = False
        self._leaders = []
        self.wanted = {}
        self.sizes = {}
        self._read = {}
        uses_ids = self._request.version >= IDS_VERSION_MIN
        table = self._partitions
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if uses_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_guarded = self._access.rights is not None
        self._allowed.clear()
        for topic, wanted in self._plan.wanted:
            known = table.of_id(topic) if uses_ids else table.of_name(topic)  # type: ignore[arg-type]
            if is_guarded and not self._may_read(topic, known):
                # before existence: who may not read a topic does not learn whether there is one
                self._fail(topic, wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif known is None:
                self._fail(topic, wanted, unknown)
            elif (partition := known.replicas.get(wanted.partition)) is None:
                self._refuse(topic, wanted, known.absence(wanted.partition), known.id)
            else:
                self._gather_partition(now, topic, wanted, partition)

    def _may_read(self, topic: str | bytes, known: TopicReplicas | None) -> bool:
        """An unknown id names no topic to ask about. A replica needs another right, for all topics."""
        if self._replica_id >= 0:
            operation, resource, name = Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
        elif isinstance(topic, str) or known is not None:
            name = topic if isinstance(topic, str) else known.name  # type: ignore[union-attr]
            operation, resource = Operation.READ, Resource.TOPIC
        else:
            return True
        is_allowed = self._allowed.get(name)
        if is_allowed is None:
            is_allowed = self._access.allows(self._request, operation, resource, name)
            self._allowed[name] = is_allowed
        return is_allowed

    def _gather_partition(self, now: Now, topic: str | bytes, wanted: Any, partition: Partition) -> None:
        fault = partition.leadership_fault(wanted.current_leader_epoch)
        if fault is not None:
            self._refuse(topic, wanted, fault, partition.topic_id)
            return
        try:
            log = partition.log or partition.opened(now)
            leader = partition.leader
            assert leader is not None
            high_watermark = leader.high_watermark
            stable_offset = log.last_stable_offset(high_watermark)
            replica_id = self._replica_id
            isolation = self._body.isolation_level
            if replica_id == CONSUMER:
                end = stable_offset if isolation == READ_COMMITTED else high_watermark
            else:
                end = log.log_end_offset
                if replica_id >= 0:
                    self._fail(topic, wanted, _stranger(wanted))
                    return
            data = PartitionData(
                partition_index=wanted.partition,
                high_watermark=high_watermark,
                last_stable_offset=stable_offset,
                log_start_offset=log.log_start_offset,
                aborted_transactions=[] if isolation == READ_COMMITTED else None,
                records=b"",
            )
            if wanted.last_fetched_epoch >= 0 and _diverges(log, wanted, data):
                self._is_complete = True
            else:
                span = log.read(
                    wanted.fetch_offset,
                    max_bytes=max(0, min(wanted.partition_max_bytes, self._limit - self._total)),
                    limit_offset=end,
                    at_least_one=self._total == 0,
                )
                if span is not None:
                    data.records = span
                    self._total += span.size
                    self.sizes[partition] = span.size
                    if log.ends_in_later_segment(wanted.fetch_offset, end):
                        self._is_complete = True
                    if isolation == READ_COMMITTED:
                        data.aborted_transactions = [
                            AbortedTransaction(producer_id=producer_id, first_offset=first)
                            for producer_id, first in log.aborted_transactions(wanted.fetch_offset, end)
                        ]
        except FAULTS as fault_raised:
            self._fail(topic, wanted, code_of(fault_raised))
            return
        self.wanted[partition] = wanted
        if wanted.fetch_offset >= end and wanted.last_fetched_epoch < 0 and replica_id == CONSUMER:
            self._read[partition] = data
        self._found.append((topic, data))

    def measure(self, partition: Partition) -> int | None:
        """How many bytes a partition that was found before has by now; None: look at all of them again."""
        log = partition.log
        wanted = self.wanted[partition]
        if (
            log is None
            or partition.is_deleted
            or partition.is_offline
            or self._replica_id != CONSUMER
            or wanted.last_fetched_epoch >= 0
            or partition.leadership_fault(wanted.current_leader_epoch) is not None
        ):
            return None
        end = partition.visible_end(self._body.isolation_level)
        try:
            span = log.read(
                wanted.fetch_offset,
                max_bytes=max(0, wanted.partition_max_bytes),
                limit_offset=end,
                at_least_one=True,
            )
        except FAULTS:
            return None
        if span is None:
            return 0
        return None if log.ends_in_later_segment(wanted.fetch_offset, end) else span.size

    def look_again(self, now: Now) -> None:
        """At what its session has by now."""
        self._plan.look_again()
        self.gather(now)

    def forget(self) -> None:
        """It has to wait: what was found so far is looked up again when it is answered."""
        self._found = []
        self._read = {}

    def settle(self, *, waits: bool) -> None:
        """Let the session be woken by what is quiet, or by all that was found if the fetch has to wait."""
        session = self._plan.session
        if session is None:
            return
        uses_ids = session.uses_ids
        # the session may be read in another way, or with other rights, by now
        may_rest = session.reader == reader_of(self._body, self._access)
        for partition, wanted in self.wanted.items():
            data = self._read.get(partition) if may_rest else None
            if data is not None or waits:
                key = (partition.topic_id if uses_ids else partition.topic, partition.index)
                session.wait_on(key, partition, wanted, data)

    def _fail(self, topic: str | bytes, wanted: Any, code: ErrorCode) -> PartitionData:
        self._is_complete = True
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        self._found.append((topic, data))
        return data

    def _refuse(self, topic: str | bytes, wanted: Any, code: ErrorCode, topic_id: TopicId) -> None:
        """With the leader that the client should ask, as far as the metadata tell (KIP-951)."""
        data = self._fail(topic, wanted, code)
        if (
            code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            and self._request.version >= LEADER_VERSION_MIN
        ):
            state = self._metadata.image.topics_by_id[topic_id].partitions[wanted.partition]
            data.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
            self._leaders.append(state.leader)

    def _meters(self, now: Now) -> ClientMeters | None:
        return self._quotas.of(now, self._request.connection, self._request.client_id)

    def response(self, now: Now) -> FetchResponse:
        """Of what was found, or an empty one if the client is throttled. The session knows afterwards what
        the client has been told.
        """
        plan = self._plan
        news = [(topic, data) for topic, data in self._found if plan.has_news(topic, data)]
        response = FetchResponse(session_id=plan.session_id, responses=self._topics(news))
        if self._leaders and self._request.version >= ENDPOINTS_VERSION_MIN:
            listener = self._request.connection.listener
            response.node_endpoints = [
                NodeEndpoint(node_id=id, host=endpoint.host, port=endpoint.port)
                for id, endpoint in self._metadata.image.endpoints(self._leaders, listener)
            ]
        if self._quotas.version is not None:
            throttle_ms = self._throttle_ms(now, response)
            if throttle_ms:
                return self._throttled(throttle_ms)
        if plan.session is not None:
            for topic, data in self._found:
                plan.tell(plan.session, topic, data)
            self.settle(waits=False)
        return response

    def _topics(self, news: list[tuple[str | bytes, PartitionData]]) -> list[FetchableTopicResponse]:
        uses_ids = self._request.version >= IDS_VERSION_MIN
        topics: list[FetchableTopicResponse] = []
        last: FetchableTopicResponse | None = None
        last_topic: str | bytes | None = None
        for topic, data in news:
            if last is None or topic != last_topic:
                last = (
                    FetchableTopicResponse(topic_id=topic, partitions=[])  # type: ignore[arg-type]
                    if uses_ids
                    else FetchableTopicResponse(topic=topic, partitions=[])  # type: ignore[arg-type]
                )
                last_topic = topic
                topics.append(last)
            last.partitions.append(data)
        return topics

    def _throttle_ms(self, now: Now, response: FetchResponse) -> int:
        meters = self._meters(now)
        if meters is None:
            return 0
        size = SIZE_BYTES + total_size(self._request.route.response.encode_parts(response))
        return self._quotas.fetched(now, meters, size)

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        """As in Kafka: a session that this fetch would have begun is not begun, another one goes on."""
        plan = self._plan
        if plan.session is not None and not plan.is_incremental:
            self._sessions.forget(plan.session_id)
            return FetchResponse(session_id=NO_SESSION, throttle_time_ms=throttle_ms)
        return FetchResponse(session_id=plan.session_id, throttle_time_ms=throttle_ms)


def _stranger(wanted: Any) -> ErrorCode:
    """What somebody is told who pretends to be a replica (CVE-2018-1288)."""
    if wanted.current_leader_epoch >= 0:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _diverges(log: PartitionLog, wanted: Any, data: PartitionData) -> bool:
    """KIP-595: the reader's log differs from ours; the answer says from which offset on."""
    epoch, end = log.epoch_end_offset(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset:
        return False
    data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
    return True
