"""Fast path of Fetch: a short cut for a consumer that reads one partition batch after batch.

Its fetches differ in the correlation id, the epoch of the session and the offset; all other bytes are the
same each time. The first fetch takes the ordinary path. If it asked for one partition, without a session or
in a session with no other partition, the fast path stores the bytes around these fields, their meaning, and
the constant parts of the answer. The next fetch with the same bytes is answered, or waits for records,
without building message objects.

As for produce (produce_fast_path.py), anything unusual takes the ordinary path: errors, aborted transactions,
answers without records. A test compares the answers of both.
"""

from struct import Struct
from typing import Any

from headrace.base.limits import FETCH_WAIT_MS_MAX
from headrace.base.time import Now
from headrace.machines.replication.leader import PartitionLeader
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.connection import Connection, FastPath
from headrace.node.effects import Parts
from headrace.node.error_codes import FAULTS
from headrace.node.fetch_frames import places_of
from headrace.node.fetch_sessions import (
    FINAL_EPOCH,
    CachedPartition,
    FetchSession,
    FetchSessions,
    replica_id_of,
)
from headrace.node.handlers.fetch import CONSUMER, IDS_VERSION_MIN, SIZE_BYTES, Fetch
from headrace.node.parked_fetches import ParkedFastFetch
from headrace.node.partition import READ_COMMITTED, Partition
from headrace.node.partitions import Partitions
from headrace.node.produce_fast_path import LATER
from headrace.node.quotas import RememberedMeters
from headrace.node.routes import FETCH, Request, Route
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Waiting
from headrace.protocol.framing import answer_frame, response_frame
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.varint import encode_varint
from headrace.storage.disk import Span
from headrace.storage.log import PartitionLog

VERSION_MIN = 7  # before it there are no sessions, and no current client

# Remembered per connection: one per partition that its consumer reads alone. Each is about a kilobyte.
FETCHES_MAX = 256
FETCH_BYTES_MAX = 1_024  # a longer one, with a very long name, is not remembered

_START = Struct(">hhi")  # API key, version, correlation id
_EPOCH = Struct(">i")
_OFFSET = Struct(">q")
_SIZES = Struct(">i")
_OFFSETS = Struct(">qqq")  # high watermark, last stable offset, log start offset: side by side in the answer
_SENTINEL = (0x7AC1_55ED_0FF5_E702, 0x7AC1_55ED_0FF5_E703, 0x7AC1_55ED_0FF5_E704)


class _OneByte:
    """Placeholder for the records while the constant parts of an answer are cut out of an encoded answer."""

    size = 1


class RememberedFetch:
    """What the fetches of one partition have in common, and the constant parts of their answers."""

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_constant_bytes",
        "_header_bytes",
        "_is_flexible",
        "body",
        "cached",
        "client_id",
        "is_committed",
        "key",
        "leader_epoch",
        "max_bytes",
        "max_wait_ms",
        "meters",
        "min_bytes",
        "partition",
        "partition_max_bytes",
        "rights",
        "route",
        "session_id",
    )

    def __init__(
        self,
        rights: object | None,
        client_id: str | None,
        route: Route,
        body: FetchRequest,
        topic: str | bytes,
        partition: Partition,
        session: FetchSession | None,
    ) -> None:
        wanted = body.topics[0].partitions[0]
        self.rights = rights  # with which it was allowed
        self.client_id = client_id
        self.meters = RememberedMeters(client_id)
        self.route = route
        self.body = body
        self.partition = partition
        # not the session itself: it may end, with all of its partitions, long before the connection
        self.session_id = 0 if session is None else session.id
        self.key = (topic, wanted.partition)
        self.cached: CachedPartition | None = None if session is None else session.partitions[self.key]
        self.leader_epoch = wanted.current_leader_epoch
        self.max_bytes = body.max_bytes
        self.partition_max_bytes = wanted.partition_max_bytes
        self.min_bytes = body.min_bytes
        self.max_wait_ms = min(body.max_wait_ms, FETCH_WAIT_MS_MAX)
        self.is_committed = body.isolation_level == READ_COMMITTED
        self._is_flexible = route.response.flexible
        self._before, self._between, self._after = self._answer_parts(route, body, wanted)
        # what a frame has besides its size, and the length of the records
        self._header_bytes = 4 + route.response.header_version
        self._constant_bytes = 4 + len(self._before) + _OFFSETS.size + len(self._between) + len(self._after)

    def _answer_parts(self, route: Route, body: FetchRequest, wanted: FetchPartition) -> tuple[bytes, ...]:
        """Cut out of an encoded answer: the bytes before the offsets, those between them and the length of
        the records, and those after the records.
        """
        high_watermark, last_stable_offset, log_start_offset = _SENTINEL
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=[] if self.is_committed else None,
            records=_OneByte(),  # the codec asks nothing but its size
        )
        name: dict[str, Any] = (
            {"topic_id": body.topics[0].topic_id}
            if route.version >= IDS_VERSION_MIN
            else {"topic": body.topics[0].topic}
        )
        answer = FetchResponse(
            session_id=self.session_id,
            responses=[FetchableTopicResponse(partitions=[data], **name)],
        )
        parts = route.response.encode_parts(answer)
        at = next(i for i, part in enumerate(parts) if type(part) is _OneByte)
        head = _joined(response_frame(0, route.response.header_version, parts[:at]))[8:]
        before, between = head.split(_OFFSETS.pack(*_SENTINEL))
        length_bytes = 1 if self._is_flexible else 4
        return before, between[:-length_bytes], _joined(parts[at + 1 :])

    def is_served_here(self) -> bool:
        """Whether the answer would contain records and nothing unusual, such as an error."""
        partition = self.partition
        return (
            partition.is_led_here
            and self.leader_epoch in (-1, partition.leader_epoch)
            and not partition.is_deleted
            and not partition.is_offline
        )

    def is_wanted_by(self, session: FetchSession | None) -> bool:
        """Whether the session, if there is one, still has this partition."""
        return session is None or session.partitions.get(self.key) is self.cached

    def find(self, log: PartitionLog, leader: PartitionLeader, offset: int, bytes_max: int) -> "Found | None":
        """What can be read from `offset` on; None: take the ordinary path."""
        high_watermark = leader.high_watermark
        try:
            stable_offset = log.last_stable_offset(high_watermark)
            end = stable_offset if self.is_committed else high_watermark
            limit = min(self.max_bytes, bytes_max)
            span = log.read(
                offset,
                max_bytes=max(0, min(self.partition_max_bytes, limit)),
                limit_offset=end,
                at_least_one=True,
            )
            if span is None:
                if min(self.min_bytes, limit) <= 0:
                    return None  # it does not wait
                return Found(None, False, high_watermark, stable_offset, log.log_start_offset)
            if self.is_committed and log.aborted_transactions(offset, end):
                return None
            is_enough = span.size >= min(self.min_bytes, limit) or log.ends_in_later_segment(offset, end)
        except FAULTS:
            return None
        return Found(span, is_enough, high_watermark, stable_offset, log.log_start_offset)

    def quota_bytes(self, size: int) -> int:
        """What an answer with so many bytes of records counts for a quota, as in `Gathering.response`."""
        length_bytes = len(encode_varint(size + 1)) if self._is_flexible else 4
        return SIZE_BYTES + self._constant_bytes - self._header_bytes + length_bytes + size

    def throttled(self, correlation_id: int, throttle_ms: int) -> Parts:
        response = FetchResponse(session_id=self.session_id, throttle_time_ms=throttle_ms)
        return answer_frame(self.route.response, correlation_id, response)

    def answer(self, correlation: bytes | memoryview, found: "Found") -> Parts:
        span = found.span
        assert span is not None
        if self.cached is not None:
            self.cached.high_watermark = found.high_watermark
            self.cached.log_start_offset = found.log_start_offset
        length = encode_varint(span.size + 1) if self._is_flexible else _SIZES.pack(span.size)
        head = b"".join(
            (
                _SIZES.pack(self._constant_bytes + len(length) + span.size),
                correlation,
                self._before,
                _OFFSETS.pack(found.high_watermark, found.last_stable_offset, found.log_start_offset),
                self._between,
                length,
            )
        )
        return [head, span, self._after] if self._after else [head, span]

    def wanted_at(self, offset: int) -> FetchPartition:
        """The request's partition with this offset, in the form that the ordinary path reads."""
        like = self.body.topics[0].partitions[0]
        return FetchPartition(
            partition=like.partition,
            current_leader_epoch=like.current_leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=like.last_fetched_epoch,
            log_start_offset=like.log_start_offset,
            partition_max_bytes=like.partition_max_bytes,
        )


class Found:
    __slots__ = ("high_watermark", "is_enough", "last_stable_offset", "log_start_offset", "span")

    def __init__(
        self,
        span: Span | None,
        is_enough: bool,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
    ) -> None:
        self.span = span
        self.is_enough = is_enough
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset


class FetchFastPath:
    """The fetches of one connection that the fast path knows, all of one version."""

    __slots__ = (
        "_access",
        "_fetches",
        "_places",
        "_sessions",
        "_settings",
        "_version",
        "connection",
        "fetch",
        "next",
        "waiting",
    )

    may_queue = False  # a fetch behind another one is unusual

    def __init__(
        self,
        fetch: Fetch,
        sessions: FetchSessions,
        settings: LiveSettings,
        access: Access,
        waiting: Waiting,
        connection: Connection,
        version: int,
    ) -> None:
        self.fetch = fetch
        self.waiting = waiting
        self.connection = connection
        self._sessions = sessions
        self._settings = settings
        self._access = access
        self._version = version
        self.next: FastPath | None = None
        self._places: dict[int, tuple[int, int]] = {}  # by a frame's length: where epoch and offset are
        self._fetches: dict[bytes, RememberedFetch] = {}

    def serve(self, now: Now, frame: memoryview) -> Parts | None:
        """The answer to a known fetch, or LATER; None: take the ordinary path, nothing was changed."""
        places = self._places.get(len(frame))
        if places is None:
            return None
        api_key, version, correlation_id = _START.unpack_from(frame)
        if api_key != FETCH or version != self._version:
            return None
        epoch_at, offset_at = places
        known = self._fetches.get(_key(frame, epoch_at, offset_at))
        waiting = self.waiting
        if known is None or known.rights is not self._access.rights:
            return None
        (epoch,) = _EPOCH.unpack_from(frame, epoch_at)
        session = None
        if known.cached is None:
            if epoch != FINAL_EPOCH:
                return None
        else:
            session = self._sessions.get(known.session_id)
            if session is None or epoch != session.epoch:
                return None
            if len(session.partitions) != 1 or not known.is_wanted_by(session):
                return None
        (offset,) = _OFFSET.unpack_from(frame, offset_at)
        found = self.find(now, known, offset)
        if found is None:
            return None
        must_wait = found.span is None or not found.is_enough
        if must_wait and (known.max_wait_ms <= 0 or not waiting.has_room):
            return None
        known.route.metrics.requests += 1
        if session is not None:
            self._sessions.go_on(now, session)
            assert known.cached is not None
            known.cached.wanted = known.wanted_at(offset)
            session.busy[known.key] = known.cached
        if must_wait:
            parked = ParkedFastFetch(self, known, session, offset, correlation_id, now)
            waiting.park_on(self.connection, parked)
            return LATER
        if waiting.quotas.version is not None:
            assert found.span is not None
            throttle_ms = self.throttle_ms(now, known, found.span)
            if throttle_ms:
                return known.throttled(correlation_id, throttle_ms)
        return known.answer(frame[4:8], found)

    def throttle_ms(self, now: Now, known: RememberedFetch, span: Span) -> int:
        """Counts the answer, and mutes a client that is throttled: it gets an empty one."""
        waiting = self.waiting
        meters = known.meters.current(now, waiting.quotas, self.connection)
        if meters is None:
            return 0
        size = known.quota_bytes(span.size)
        if meters.takes(meters.fetch, size, now.mono):
            return 0
        throttle_ms = waiting.quotas.fetched(now, meters, size)
        if throttle_ms:
            waiting.mute(now, self.connection, throttle_ms)
        return throttle_ms

    def allows(self, known: RememberedFetch) -> bool:
        """Whether the client may still read the partition for which a fetch waits."""
        access, authorizer = self._access, self._access.authorizer
        if known.rights is access.rights or authorizer is None:
            return True
        return authorizer.allows(self.connection, Operation.READ, Resource.TOPIC, known.partition.topic)

    def find(self, now: Now, known: RememberedFetch, offset: int) -> Found | None:
        partition = known.partition
        log, leader = partition.log, partition.leader
        if log is None or leader is None or not known.is_served_here():
            return None
        bytes_max = self._settings.current.fetch_max_bytes
        if self.waiting.quotas.version is not None:
            meters = known.meters.current(now, self.waiting.quotas, self.connection)
            if meters is not None:
                bytes_max = meters.fetch_bytes_max(bytes_max, now.mono)
        return known.find(log, leader, offset, bytes_max)

    def fits(self, version: int) -> bool:
        return version == self._version

    def knows(self, frame: memoryview, session: FetchSession | None) -> bool:
        """Whether this fetch is stored already: the ordinary path answered it for another reason."""
        places = self._places.get(len(frame))
        known = None if places is None else self._fetches.get(_key(frame, *places))
        return (
            known is not None
            and known.rights is self._access.rights
            and known.is_wanted_by(session)
            and not known.partition.is_deleted
        )

    def remember(self, frame: memoryview, epoch_at: int, offset_at: int, known: RememberedFetch) -> None:
        if len(self._fetches) >= FETCHES_MAX:
            self._fetches.clear()
            self._places.clear()
        self._places[len(frame)] = epoch_at, offset_at
        self._fetches[_key(frame, epoch_at, offset_at)] = known


def _joined(parts: list[Any]) -> bytes:
    return b"".join(parts)


def _key(frame: memoryview, epoch_at: int, offset_at: int) -> bytes:
    """The bytes of the frame that do not change from fetch to fetch."""
    return bytes(frame[8:epoch_at]) + frame[epoch_at + 4 : offset_at] + frame[offset_at + 8 :]


class FetchFastPaths:
    """Makes the fast paths of all connections, from fetches that the ordinary path has answered."""

    __slots__ = ("_access", "_fetch", "_partitions", "_sessions", "_settings", "_waiting")

    def __init__(
        self,
        fetch: Fetch,
        partitions: Partitions,
        sessions: FetchSessions,
        settings: LiveSettings,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._fetch = fetch
        self._partitions = partitions
        self._sessions = sessions
        self._settings = settings
        self._access = access
        self._waiting = waiting

    def learn(self, request: Request, parts: Parts | None, frame: memoryview, position: int) -> None:
        """Stores a fetch of one partition that the ordinary path has answered or parked, if the fast path can
        serve the next one of its kind.
        """
        version, route, connection = request.version, request.route, request.connection
        if version < VERSION_MIN or len(frame) > FETCH_BYTES_MAX:
            return
        session = None
        if request.body.session_epoch != FINAL_EPOCH:
            session = self._sessions.get(request.body.session_id)
            if session is None or len(session.partitions) != 1:
                return
        elif request.body.session_id:
            return  # the end of a session
        path = connection.path_of(FetchFastPath)
        if path is not None and path.fits(version) and path.knows(frame, session):
            return
        body: FetchRequest = route.decode(frame, position)  # the session, or the fetch, keeps the other one
        wanted = body.topics[0].partitions[0]
        if replica_id_of(body) != CONSUMER or wanted.last_fetched_epoch >= 0:
            return
        topic = body.topics[0].topic_id if version >= IDS_VERSION_MIN else body.topics[0].topic
        partition = self._partition(topic, wanted.partition)
        if partition is None or (session is not None and (topic, wanted.partition) not in session.partitions):
            return
        places = places_of(body, version, frame)
        if places is None:
            return
        if path is None or not path.fits(version):
            path = FetchFastPath(
                self._fetch, self._sessions, self._settings, self._access, self._waiting, connection, version
            )
            connection.put_path(path)
        known = RememberedFetch(
            self._access.rights, request.client_id, route, body, topic, partition, session
        )
        path.remember(frame, *places, known)

    def _partition(self, topic: str | bytes, index: int) -> Partition | None:
        table = self._partitions
        known = table.of_id(topic) if isinstance(topic, bytes) else table.of_name(topic)
        return None if known is None else known.replicas.get(index)
