"""Fast path of Produce: a short cut for a connection that repeats the same request with other records.

A producer's requests differ in their correlation id and their records; all other bytes (client id, acks,
topic, partition) are the same each time. The first request takes the ordinary path. If it was of the usual
kind (one topic, one partition, acks 1 or all, nothing to wait for but the followers) and succeeded, the fast
path stores its bytes up to the records, with their meaning. The next request that begins with the same bytes
is appended and answered without building message objects; where followers have to get the records first, its
finished answer waits for them. Requests that were refused, and those to internal topics, are not stored.

Anything unusual, above all an error, takes the ordinary path. A test checks that both give the same bytes.
"""

from struct import Struct
from typing import Any, Protocol, cast

from headrace.base.time import Instant, Now
from headrace.machines.replication.leader import PartitionLeader
from headrace.node.authorization import Access
from headrace.node.connection import Connection, FastPath
from headrace.node.effects import Parts
from headrace.node.error_codes import FAULTS, Refused
from headrace.node.handlers.produce import commit_outcome, refused
from headrace.node.metrics import ApiMetrics, Metrics
from headrace.node.partition import Partition
from headrace.node.partitions import INTERNAL_TOPICS, Partitions
from headrace.node.quotas import Quotas, RememberedMeters
from headrace.node.routes import Request, Route
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import answer_frame
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.varint import encode_varint
from headrace.records.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL
from headrace.storage.writing_ahead import LARGE_BYTES

LEARNED_ACKS = (1, -1)
VERSION_MIN = 7  # before it zstd is not allowed, which the ordinary way looks at
IDS_VERSION_MIN = 13

# Prefixes remembered per connection: one per partition that it writes to. Each is some 100 bytes.
PREFIXES_MAX = 256
PREFIX_BYTES_MAX = 1_024  # a longer one, with a very long client id, is not remembered

_START = Struct(">hhi")  # API key, version, correlation id
_SIZE = Struct(">i")
_OFFSETS = Struct(">qqq")  # base offset, log append time, log start offset: side by side in the response
_SENTINEL = (0x7AC1_55ED_0FF5_E701, 0x7AC1_55ED_0FF5_E702, 0x7AC1_55ED_0FF5_E703)
_THROTTLE_SENTINEL = _SIZE.pack(0x7AC1_55EE)

# What `serve` returns for a request whose answer leaves later, behind others or when it is true.
LATER: Parts = []

# Every struct of a flexible request ends in a tag buffer: the partition's, the topic's, the request's.
_NO_TAGS = b"\0\0\0"


class RememberedProduce:
    """What one prefix means, and the constant parts of its answer."""

    __slots__ = (
        "_codec",
        "_name",
        "after",
        "before",
        "is_for_all",
        "meters",
        "metrics",
        "partition",
        "rights",
        "size",
        "throttle_at",
        "timeout_ms",
    )

    def __init__(
        self,
        rights: object | None,
        client_id: str | None,
        route: Route,
        body: ProduceRequest,
        name: dict[str, Any],
        partition: Partition,
        before: bytes,
        after: bytes,
    ) -> None:
        self.rights = rights  # with which it was allowed
        self._codec = route.response
        self._name = name  # by which the topic was named: {"topic_id": …} or {"name": …}
        self.partition = partition
        self.metrics: ApiMetrics = route.metrics
        self.is_for_all = body.acks != 1
        self.timeout_ms = max(body.timeout_ms, 0)
        header_tags = b"\0" * self._codec.header_version
        self.size = _SIZE.pack(4 + len(header_tags) + len(before) + _OFFSETS.size + len(after))
        self.before = header_tags + before
        throttle_at = after.index(_THROTTLE_SENTINEL)
        self.after = told_throttle(after, throttle_at, 0)
        self.throttle_at = 8 + len(self.before) + _OFFSETS.size + throttle_at  # in the whole answer
        self.meters = RememberedMeters(client_id)

    def refusal(self, correlation_id: int, code: ErrorCode, throttle_ms: int) -> Parts:
        result = refused(self.partition.index, Refused(code))
        topic = TopicProduceResponse(partition_responses=[result], **self._name)
        response = ProduceResponse(responses=[topic], throttle_time_ms=throttle_ms)
        return answer_frame(self._codec, correlation_id, response)

    def arrived(self, now: Now, quotas: Quotas, connection: Connection, size: int) -> None:
        """Counts the bytes of a request whose answer has to wait."""
        meters = self.meters.current(now, quotas, connection)
        if meters is not None and meters.produce is not None:
            meters.produce.add(size, now.mono)

    def throttle_ms(self, now: Now, quotas: Quotas, connection: Connection, size: int = 0) -> int:
        """Of a request that is answered now."""
        meters = self.meters.current(now, quotas, connection)
        return 0 if meters is None else quotas.produced(now, meters, size)

    def is_answered_by(self, answer: bytes) -> bool:
        """Whether the ordinary path gave the same answer as the fast path would: an error does not."""
        before, after = self.before, self.after
        return (
            len(answer) == 8 + len(before) + _OFFSETS.size + len(after)
            and answer.startswith(self.size)
            and answer.startswith(before, 8)
            and answer.endswith(after)
        )


class Remembered(Protocol):
    """What a fast path knows of requests that resemble each other, as far as a parked answer needs it."""

    @property
    def partition(self) -> Partition: ...

    @property
    def metrics(self) -> ApiMetrics: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def throttle_at(self) -> int: ...

    def refusal(self, correlation_id: int, code: ErrorCode, throttle_ms: int, /) -> Parts: ...

    def throttle_ms(self, now: Now, quotas: Quotas, connection: Connection, /) -> int: ...


class ParkedAnswer(Parked):
    """A finished answer that waits until its records are committed. `CommitQueue` watches its time."""

    __slots__ = ("_answer", "_end", "_known", "_leader", "_started_at")

    def __init__(
        self,
        waiting: Waiting,
        known: Remembered,
        leader: PartitionLeader,
        end: int,
        answer: bytes,
        now: Now,
    ) -> None:
        # not the request of `Parked`, which a fast path never makes
        self.waiting = waiting
        self.is_done = False
        self.is_awake = False
        self.moved = None
        self._known = known
        self._leader = leader  # in whose epoch the records were appended
        self._end = end
        self._answer = answer
        self._started_at: Instant = now.mono

    def deadline(self) -> Instant | None:
        return None

    def forget(self) -> None:
        self.is_done = True

    def woken(self, now: Now) -> None:
        partition = self._known.partition
        code = commit_outcome(partition, self._leader, self._end)
        if code is None:
            partition.await_commit(self._end, self, now.after_ms(self._known.timeout_ms))
        else:
            self._settle(now, code)

    def expired(self, now: Now) -> None:
        self._settle(now, ErrorCode.REQUEST_TIMED_OUT)

    def _settle(self, now: Now, code: ErrorCode) -> None:
        known, waiting, answer = self._known, self.waiting, self._answer
        known.metrics.observe(now.mono - self._started_at)
        throttle_ms = 0
        if waiting.quotas.version is not None and self.pending is not None:
            connection = self.pending.connection
            throttle_ms = known.throttle_ms(now, waiting.quotas, connection)
            if throttle_ms:
                answer = told_throttle(answer, known.throttle_at, throttle_ms)
                waiting.mute(now, connection, throttle_ms)
        if code is ErrorCode.NONE:
            waiting.send(self, [answer])
        else:
            (correlation_id,) = _SIZE.unpack_from(answer, 4)
            waiting.send(self, known.refusal(correlation_id, code, throttle_ms))

    def failed(self) -> None:
        if self.pending is not None:
            self.waiting.give_up(self.pending.connection)


class ProduceFastPath:
    """One connection's memory of its produce requests, all of one version and one prefix length."""

    __slots__ = (
        "_access",
        "_connection",
        "_is_flexible",
        "_metrics",
        "_prefix_end",
        "_prefixes",
        "_quotas",
        "_version",
        "_waiting",
        "next",
    )

    may_queue = True  # behind requests of the connection that wait

    def __init__(
        self,
        access: Access,
        waiting: Waiting,
        metrics: Metrics,
        connection: Connection,
        version: int,
        is_flexible: bool,
        prefix_end: int,
    ) -> None:
        self._access = access
        self._connection = connection
        self._waiting = waiting
        self._quotas = waiting.quotas
        self._metrics = metrics
        self._version = version
        self._is_flexible = is_flexible
        self._prefix_end = prefix_end  # where the length of the records begins
        self.next: FastPath | None = None
        self._prefixes: dict[bytes, RememberedProduce] = {}

    def serve(self, now: Now, frame: memoryview) -> Parts | None:
        """The answer to a request that is recognised, or LATER; None: take the ordinary way, nothing has
        happened.
        """
        end = self._prefix_end
        if not end + HEADER_BYTES <= len(frame) < LARGE_BYTES:
            return None
        api_key, version, _ = _START.unpack_from(frame)
        if api_key != 0 or version != self._version:
            return None
        known = self._prefixes.get(bytes(frame[8:end]))
        if known is None or known.rights is not self._access.rights:
            return None
        partition = known.partition
        if not partition.takes_fast_path or partition.opens_batches:
            return None  # opening may change a batch where it lies before the log refuses it
        leader: PartitionLeader | None = None  # who has to commit the records before the answer leaves
        if known.is_for_all:
            leader = partition.leader
            if leader is None or len(leader.isr) < partition.min_insync_replicas:
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
        answer = b"".join((known.size, frame[4:8], known.before, offsets, known.after))
        if leader is not None and leader.high_watermark <= appended.last_offset:
            if self._quotas.version is not None:
                known.arrived(now, self._quotas, self._connection, len(frame))
            self._park(now, known, leader, appended.last_offset + 1, answer)
            return LATER
        quotas = self._quotas
        if quotas.version is not None:
            meters = known.meters.current(now, quotas, self._connection)
            if meters is not None and not meters.takes(meters.produce, len(frame), now.mono):
                throttle_ms = quotas.produced(now, meters, len(frame))
                if throttle_ms:
                    answer = told_throttle(answer, known.throttle_at, throttle_ms)
                    self._waiting.mute(now, self._connection, throttle_ms)
        if self._connection.pending:
            self._waiting.queue_behind(self._connection, [answer])
            return LATER
        return [answer]

    def _park(
        self, now: Now, known: RememberedProduce, leader: PartitionLeader, end: int, answer: bytes
    ) -> None:
        parked = ParkedAnswer(self._waiting, known, leader, end, answer, now)
        self._waiting.park_finished(parked, self._connection)
        known.partition.await_commit(end, parked, now.after_ms(known.timeout_ms))

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

    def remember(self, frame: memoryview, known: RememberedProduce) -> None:
        if len(self._prefixes) >= PREFIXES_MAX:
            self._prefixes.clear()
        self._prefixes[bytes(frame[8 : self._prefix_end])] = known


class ProduceFastPaths:
    """Makes the fast paths of all connections, from requests that were answered the ordinary way."""

    __slots__ = ("_access", "_metrics", "_partitions", "_waiting")

    def __init__(self, partitions: Partitions, access: Access, waiting: Waiting, metrics: Metrics) -> None:
        self._partitions = partitions
        self._access = access
        self._waiting = waiting
        self._metrics = metrics

    def learn(self, request: Request, parts: Parts | None, frame: memoryview, position: int) -> None:
        """After a produce request to one partition was answered the ordinary way, or waits for nothing but
        followers: remember it, if the fast path can serve its like.

        `position` is where the request's body begins in the frame.
        """
        body = request.body
        if parts is None:
            request.body = None  # it views the connection's buffer
        version = request.version
        if version < VERSION_MIN or body.acks not in LEARNED_ACKS or body.transactional_id is not None:
            return
        topic = body.topic_data[0]
        data = topic.partition_data[0]
        uses_ids = version >= IDS_VERSION_MIN
        replicas = (
            self._partitions.of_id(topic.topic_id) if uses_ids else self._partitions.of_name(topic.name)
        )
        partition = replicas.replicas.get(data.index) if replicas is not None else None
        if partition is None or not data.records:
            return
        if partition.topic in INTERNAL_TOPICS or partition.opens_batches:
            return
        is_flexible = request.route.response.flexible
        size = len(data.records)
        length_bytes = len(encode_varint(size + 1)) if is_flexible else 4
        prefix_end = len(frame) - (len(_NO_TAGS) if is_flexible else 0) - size - length_bytes
        if prefix_end > PREFIX_BYTES_MAX:
            return
        # the same can be said in other bytes: with tags, a longer length, or some left over at the end
        data.records = b""
        said = request.route.request.encode(body)[: -len(_NO_TAGS) - 1 if is_flexible else -4]
        if frame[position:prefix_end] != said:
            return
        known = _remembered(self._access.rights, request, body, partition)
        if parts is not None and not known.is_answered_by(b"".join(cast(list[bytes], parts))):
            return
        connection = request.connection
        path = connection.path_of(ProduceFastPath)
        if path is None or not path.fits(version, prefix_end):
            path = ProduceFastPath(
                self._access, self._waiting, self._metrics, connection, version, is_flexible, prefix_end
            )
            connection.put_path(path)
        path.remember(frame, known)


def _remembered(
    rights: object | None, request: Request, body: ProduceRequest, partition: Partition
) -> RememberedProduce:
    """The answer's constant parts, cut out of an answer that the codec made."""
    base_offset, log_append_time_ms, log_start_offset = _SENTINEL
    result = PartitionProduceResponse(
        index=partition.index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    topic = body.topic_data[0]
    name: dict[str, Any] = (
        {"topic_id": topic.topic_id} if request.version >= IDS_VERSION_MIN else {"name": topic.name}
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(partition_responses=[result], **name)],
        throttle_time_ms=_SIZE.unpack(_THROTTLE_SENTINEL)[0],
    )
    before, after = request.route.response.encode(response).split(_OFFSETS.pack(*_SENTINEL))
    return RememberedProduce(rights, request.client_id, request.route, body, name, partition, before, after)


def told_throttle(answer: bytes, at: int, throttle_ms: int) -> bytes:
    """The answer with its throttle time, which is at this place."""
    return answer[:at] + _SIZE.pack(throttle_ms) + answer[at + _SIZE.size :]
