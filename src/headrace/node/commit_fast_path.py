"""Fast path of OffsetCommit: a short cut for a consumer that commits the same partition again.

A member's commits of one partition differ in their correlation id, the offset and its leader epoch; all other
bytes are the same each time. The first commit takes the ordinary path. If it was of the usual kind (one
topic, one partition, nothing refused), the fast path stores the bytes around the offset, their meaning, and
the batch that was written. For the next commit it asks the group's machine, as for every commit, and writes a
copy of that batch with the new offset. Where followers have to get it first, the finished answer waits for
them.

As for produce (produce_fast_path.py), anything unusual takes the ordinary path, and a test compares answers
and logs of both.
"""

from struct import Struct
from typing import TYPE_CHECKING, cast

from headrace.base.time import Now
from headrace.node.authorization import Access
from headrace.node.connection import Connection, FastPath
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics, OffsetsOf
from headrace.node.coordinators.shard import Shard
from headrace.node.effects import Parts
from headrace.node.error_codes import FAULTS
from headrace.node.handlers.offset_commit import IDS_SINCE, answered_topic, committer_of
from headrace.node.produce_fast_path import LATER, ParkedAnswer, told_throttle
from headrace.node.quotas import Quotas, RememberedMeters
from headrace.node.routes import OFFSET_COMMIT, Request, Route
from headrace.node.waiting import Waiting
from headrace.protocol.api import request_codec
from headrace.protocol.coordinator_records import Record, encode
from headrace.protocol.coordinator_records.groups import OffsetCommitKey, OffsetCommitValue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import answer_frame
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from headrace.records.batch import ATTRIBUTES_AT, BASE_TIMESTAMP_AT, CRC_AT, read_header
from headrace.records.builder import build_batch
from headrace.records.checksum import crc32c

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

VERSION_MIN = 6  # before it a commit has no leader epoch, or says how long it is to be kept

# Remembered per connection: one per partition that its member reads. Each is about a kilobyte.
COMMITS_MAX = 128
COMMIT_BYTES_MAX = 2_048  # a longer one, with a very long name or text, is not remembered

# What a client is told whose commit may be lost; in all other cases it looks for the coordinator again.
_REFUSALS = {
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

_START = Struct(">hhi")  # API key, version, correlation id
_PLACE = Struct(">qi")  # offset and leader epoch: side by side in the request and in the record
_TIMESTAMP = Struct(">q")
_TIMESTAMPS = Struct(">qq")  # base and maximum, side by side in a batch's header
_CRC = Struct(">I")
_PLACE_SENTINEL = (0x7AC1_55ED_0FF5_E701, 0x7AC1_55ED)
_TIME_SENTINEL = 0x7AC1_55ED_0FF5_E702


class RememberedCommit:
    """The constant parts of one member's commits of one partition."""

    __slots__ = (
        "_codec",
        "_topic",
        "answer",
        "batch",
        "committer",
        "loads",
        "meters",
        "metrics",
        "partition",
        "place_at",
        "record",
        "rights",
        "shard",
        "size",
        "throttle_at",
        "time_at",
        "timeout_ms",
    )

    def __init__(
        self,
        rights: object | None,
        client_id: str | None,
        route: Route,
        body: OffsetCommitRequest,
        shard: "Shard[Groups]",
        record: Record,
        answer: bytes,
    ) -> None:
        self.rights = rights  # with which it was allowed
        self.committer = committer_of(body, route.version)
        self.metrics = route.metrics
        self.partition = shard.partition
        self._codec = route.response
        self._topic = body.topics[0]
        self.shard = shard
        self.timeout_ms = shard.commit_timeout_ms
        self.loads = shard.loads  # another machine, made from the log, may know more than we remember
        self.record = record
        self.batch = build_batch([(0, *encode(record), ())])
        self.place_at = self.batch.index(_PLACE.pack(*_PLACE_SENTINEL))
        self.time_at = self.batch.index(_TIMESTAMP.pack(_TIME_SENTINEL))
        self.size, self.answer = answer[:4], answer[8:]  # the correlation id is between them
        self.throttle_at = 8 + route.response.header_version  # the first field of the answer
        self.meters = RememberedMeters(client_id)

    def throttle_ms(self, now: Now, quotas: Quotas, connection: Connection) -> int:
        """Of a commit that is answered now."""
        meters = self.meters.current(now, quotas, connection)
        return 0 if meters is None else quotas.answered(now, meters)

    def batch_of(self, offset: int, leader_epoch: int, wall_ms: int) -> bytearray:
        batch = bytearray(self.batch)
        _PLACE.pack_into(batch, self.place_at, offset, leader_epoch)
        _TIMESTAMP.pack_into(batch, self.time_at, wall_ms)
        _TIMESTAMPS.pack_into(batch, BASE_TIMESTAMP_AT, wall_ms, wall_ms)
        _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
        return batch

    def refusal(self, correlation_id: int, code: ErrorCode, throttle_ms: int) -> Parts:
        """The answer if this broker does not know whether the followers got the commit."""
        code = _REFUSALS.get(code, ErrorCode.NOT_COORDINATOR)
        response = OffsetCommitResponse(
            topics=[answer_about(self._topic, code)], throttle_time_ms=throttle_ms
        )
        return answer_frame(self._codec, correlation_id, response)


class CommitFastPath:
    """The commits of one connection that the fast path knows, all of one version."""

    __slots__ = (
        "_access",
        "_commits",
        "_connection",
        "_places",
        "_topics",
        "_topics_version",
        "_version",
        "_waiting",
        "next",
    )

    may_queue = True  # behind requests of the connection that wait

    def __init__(
        self,
        access: Access,
        waiting: Waiting,
        topics: ImageTopics,
        connection: Connection,
        version: int,
        topics_version: int,
    ) -> None:
        self._connection = connection
        self._access = access
        self._waiting = waiting
        self._topics = topics
        self._version = version
        self._topics_version = topics_version
        self._places: dict[int, int] = {}  # by a frame's length: where offset and leader epoch are
        self.next: FastPath | None = None
        self._commits: dict[bytes, RememberedCommit] = {}

    def serve(self, now: Now, frame: memoryview) -> Parts | None:
        """The answer to a known commit, or LATER; None: take the ordinary path, nothing was changed."""
        place_at = self._places.get(len(frame))
        if place_at is None:
            return None
        api_key, version, _ = _START.unpack_from(frame)
        if api_key != OFFSET_COMMIT or version != self._version:
            return None
        known = self._commits.get(bytes(frame[8:place_at]) + frame[place_at + _PLACE.size :])
        if known is None or known.rights is not self._access.rights:
            return None
        shard = known.shard
        machine = shard.current
        if machine is None or shard.loads != known.loads or self._topics.version != self._topics_version:
            return None
        partition = shard.partition
        leader = partition.leader
        if leader is None or leader.epoch != shard.epoch or not partition.takes_fast_path:
            return None
        if len(leader.isr) < partition.min_insync_replicas:
            return None
        offset, leader_epoch = _PLACE.unpack_from(frame, place_at)
        record = machine.commit_again(now, known.committer, known.record, offset, leader_epoch)
        if record is None:
            return None
        batch = known.batch_of(offset, leader_epoch, now.wall_ms)
        try:
            appended = partition.append(
                memoryview(batch), now, from_client=False, validated=read_header(batch)
            )
        except FAULTS:
            return None  # nothing was appended; the ordinary way meets the same fault and acts on it
        machine.replay(record)
        shard.arm(now)
        known.metrics.requests += 1
        answer = b"".join((known.size, frame[4:8], known.answer))
        end = appended.last_offset + 1
        if leader.high_watermark < end:
            shard.uncommitted.note(OffsetsOf(known.committer.group_id), end)
            parked = ParkedAnswer(self._waiting, known, leader, end, answer, now)
            self._waiting.park_finished(parked, self._connection)
            partition.await_commit(end, parked, now.after_ms(known.timeout_ms))
            return LATER
        quotas = self._waiting.quotas
        if quotas.version is not None:
            meters = known.meters.current(now, quotas, self._connection)
            if meters is not None and not meters.takes(None, 0, now.mono):
                throttle_ms = quotas.answered(now, meters)
                if throttle_ms:
                    answer = told_throttle(answer, known.throttle_at, throttle_ms)
                    self._waiting.mute(now, self._connection, throttle_ms)
        if self._connection.pending:
            self._waiting.queue_behind(self._connection, [answer])
            return LATER
        return [answer]

    def fits(self, version: int, topics_version: int) -> bool:
        return version == self._version and topics_version == self._topics_version

    def remember(self, frame: memoryview, place_at: int, known: RememberedCommit) -> None:
        if len(self._commits) >= COMMITS_MAX:
            self._commits.clear()
            self._places.clear()
        self._places[len(frame)] = place_at
        self._commits[bytes(frame[8:place_at]) + frame[place_at + _PLACE.size :]] = known


def joined_answer(route: Route, topic: OffsetCommitRequestTopic) -> bytes:
    """The answer to a successful commit of this one partition, with any correlation id."""
    response = OffsetCommitResponse(topics=[answer_about(topic, ErrorCode.NONE)])
    parts: Parts = answer_frame(route.response, 0, response)
    return b"".join(cast(list[bytes], parts))


def answer_about(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return answered_topic(topic, [topic.partitions[0].partition_index], [code])


class CommitFastPaths:
    """Makes the fast paths of all connections, from commits that the ordinary path has answered."""

    __slots__ = ("_access", "_groups", "_topics", "_waiting")

    def __init__(
        self, groups: GroupCoordinator, topics: ImageTopics, access: Access, waiting: Waiting
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._access = access
        self._waiting = waiting

    def learn(self, request: Request, parts: Parts | None, frame: memoryview, position: int) -> None:
        """Stores a commit of one partition that the ordinary path has answered or parked, if the fast path
        can serve the next one of its kind.
        """
        version = request.version
        if len(frame) > COMMIT_BYTES_MAX or version < VERSION_MIN:
            return
        route = request.route
        codec = request_codec(OFFSET_COMMIT, version)
        body: OffsetCommitRequest = codec.decode(frame, position)  # not in columns
        if version >= IDS_SINCE:
            body.topics[0].name = self._topics.name_of(body.topics[0].topic_id) or ""
        shard = self._groups.shard_of(request.now, body.group_id)
        if isinstance(shard, ErrorCode):
            return
        topic = body.topics[0]
        partition = topic.partitions[0]
        key = OffsetCommitKey(group=body.group_id, topic=topic.name, partition=partition.partition_index)
        committed = shard.machine.offsets.get(key.group, key.topic, key.partition)
        place = partition.committed_offset, partition.committed_leader_epoch
        if committed is None or committed[:2] != place:
            return
        answer = joined_answer(route, topic)
        if parts is not None and b"".join(cast(list[bytes], parts))[8:] != answer[8:]:
            return  # it was refused, maybe with the offset that was there already
        partition.committed_offset, partition.committed_leader_epoch = _PLACE_SENTINEL
        before, after = codec.encode(body).split(_PLACE.pack(*_PLACE_SENTINEL))
        said = before + _PLACE.pack(*place) + after
        if frame[len(frame) - len(said) :] != said:
            return  # the same can be said in other bytes, some left over at the end for example
        value = OffsetCommitValue(
            offset=_PLACE_SENTINEL[0],
            leader_epoch=_PLACE_SENTINEL[1],
            metadata=committed[2],
            commit_timestamp=_TIME_SENTINEL,
            topic_id=committed[5],
        )
        place_at = len(frame) - len(after) - _PLACE.size
        topics_version = self._topics.version
        connection = request.connection
        path = connection.path_of(CommitFastPath)
        if path is None or not path.fits(version, topics_version):
            path = CommitFastPath(
                self._access, self._waiting, self._topics, connection, version, topics_version
            )
            connection.put_path(path)
        record = Record(key, value)
        known = RememberedCommit(self._access.rights, request.client_id, route, body, shard, record, answer)
        path.remember(frame, place_at, known)
