"""The express lane of commits: a consumer says the same again and again, only further on.

A member's commits of one partition differ in their correlation id, the offset and its leader epoch; the rest
is the same bytes each time. The first commit goes the ordinary way. If it was of the usual kind (one topic,
one partition, nothing refused) its bytes around the offset are remembered, with what they meant and with the
batch that came of them. The next one is judged by the group's machine as every commit is, and then written
into a copy of that batch.

Like the lane of produce (express.py) it is a short cut and nothing else: whatever is not quite usual takes
the ordinary way, and a test compares answers and logs of both.
"""

from struct import Struct
from typing import TYPE_CHECKING, cast

from headrace.base.time import Now
from headrace.node.authorization import Access
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.coordinators.shard import Shard
from headrace.node.effects import Parts
from headrace.node.faults import FAULTS
from headrace.node.routes import OFFSET_COMMIT, Request
from headrace.node.waiting import Waiting
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.coordinator_records import Record, encode
from headrace.protocol.coordinator_records.groups import OffsetCommitKey, OffsetCommitValue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
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

_START = Struct(">hhi")  # API key, version, correlation id
_PLACE = Struct(">qi")  # offset and leader epoch: side by side in the request and in the record
_TIMESTAMP = Struct(">q")
_TIMESTAMPS = Struct(">qq")  # base and maximum, side by side in a batch's header
_CRC = Struct(">I")
_PLACE_SENTINEL = (0x7AC1_55ED_0FF5_E701, 0x7AC1_55ED)
_TIME_SENTINEL = 0x7AC1_55ED_0FF5_E702


class Remembered:
    """One member's commits of one partition, and all about them that stays the same."""

    __slots__ = (
        "answer",
        "batch",
        "machine",
        "place_at",
        "record",
        "request",
        "route",
        "shard",
        "size",
        "time_at",
    )

    def __init__(self, request: Request, shard: "Shard[Groups]", record: Record, answer: bytes) -> None:
        self.request: OffsetCommitRequest = request.body
        self.route = request.route
        self.shard = shard
        self.machine = shard.current  # another one, made from the log, may know more than we remember
        self.record = record
        self.batch = build_batch([(0, *encode(record), ())])
        self.place_at = self.batch.index(_PLACE.pack(*_PLACE_SENTINEL))
        self.time_at = self.batch.index(_TIMESTAMP.pack(_TIME_SENTINEL))
        self.size, self.answer = answer[:4], answer[8:]  # the correlation id is between them

    def batch_of(self, offset: int, leader_epoch: int, wall_ms: int) -> bytearray:
        batch = bytearray(self.batch)
        _PLACE.pack_into(batch, self.place_at, offset, leader_epoch)
        _TIMESTAMP.pack_into(batch, self.time_at, wall_ms)
        _TIMESTAMPS.pack_into(batch, BASE_TIMESTAMP_AT, wall_ms, wall_ms)
        _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
        return batch


class CommitLane:
    """One connection's memory of its commits, all of one version."""

    __slots__ = ("_access", "_commits", "_places", "_topics", "_topics_version", "_version", "_waiting")

    def __init__(
        self, access: Access, waiting: Waiting, topics: ImageTopics, version: int, topics_version: int
    ) -> None:
        self._access = access
        self._waiting = waiting
        self._topics = topics
        self._version = version
        self._topics_version = topics_version
        self._places: dict[int, int] = {}  # by a frame's length: where offset and leader epoch are
        self._commits: dict[bytes, Remembered] = {}

    def serve(self, now: Now, frame: memoryview) -> Parts | None:
        """The answer to a commit that is recognised; None: take the ordinary way, nothing has happened."""
        place_at = self._places.get(len(frame))
        if place_at is None:
            return None
        api_key, version, _ = _START.unpack_from(frame)
        if api_key != OFFSET_COMMIT or version != self._version:
            return None
        known = self._commits.get(bytes(frame[8:place_at]) + frame[place_at + _PLACE.size :])
        if known is None or self._access.authorizer is not None or self._waiting.quotas is not None:
            return None
        shard = known.shard
        machine = shard.current
        if machine is None or machine is not known.machine or self._topics.version != self._topics_version:
            return None
        partition = shard.partition
        if not partition.takes_express or len(partition.leader.isr) > 1 or not shard.is_committed:
            return None
        offset, leader_epoch = _PLACE.unpack_from(frame, place_at)
        record = machine.commit_again(now, known.request, version, known.record, offset, leader_epoch)
        if record is None:
            return None
        batch = known.batch_of(offset, leader_epoch, now.wall_ms)
        try:
            partition.append(memoryview(batch), now, from_client=False, admitted=read_header(batch))
        except FAULTS:
            return None  # nothing was appended; the ordinary way meets the same fault and acts on it
        machine.replay(record)
        shard.arm(now)
        known.route.metrics.requests += 1
        return [b"".join((known.size, frame[4:8], known.answer))]

    def fits(self, version: int, topics_version: int) -> bool:
        return version == self._version and topics_version == self._topics_version

    def remember(self, frame: memoryview, place_at: int, known: Remembered) -> None:
        if len(self._commits) >= COMMITS_MAX:
            self._commits.clear()
            self._places.clear()
        self._places[len(frame)] = place_at
        self._commits[bytes(frame[8:place_at]) + frame[place_at + _PLACE.size :]] = known


def _taken(topic: OffsetCommitRequestTopic, version: int) -> bytes:
    """The answer to a commit of this one partition that was taken."""
    partition = OffsetCommitResponsePartition(partition_index=topic.partitions[0].partition_index)
    named = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[partition])
    return response_codec(OFFSET_COMMIT, version).encode(OffsetCommitResponse(topics=[named]))


class CommitLanes:
    """Makes the lanes of all connections, from commits that were answered the ordinary way."""

    __slots__ = ("_access", "_groups", "_topics", "_waiting")

    def __init__(
        self, groups: GroupCoordinator, topics: ImageTopics, access: Access, waiting: Waiting
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._access = access
        self._waiting = waiting

    def learn(self, request: Request, parts: Parts, frame: memoryview, position: int) -> None:
        """After a commit was answered the ordinary way: remember it, if it is of the usual kind."""
        answer = b"".join(cast(list[bytes], parts))
        body: OffsetCommitRequest = request.body
        version = request.version
        if version < VERSION_MIN or len(body.topics) != 1 or len(body.topics[0].partitions) != 1:
            return
        shard = self._groups.shard_of(request.now, body.group_id)
        if isinstance(shard, ErrorCode):
            return
        topic = body.topics[0]
        partition = topic.partitions[0]
        key = OffsetCommitKey(group=body.group_id, topic=topic.name, partition=partition.partition_index)
        committed = shard.machine.offsets.get(key.group, key.topic, key.partition)
        place = partition.committed_offset, partition.committed_leader_epoch
        if committed is None or committed[:2] != place or not answer.endswith(_taken(topic, version)):
            return  # it was refused, maybe with the offset that was there already
        partition.committed_offset, partition.committed_leader_epoch = _PLACE_SENTINEL
        before, after = (
            request_codec(OFFSET_COMMIT, version).encode(body).split(_PLACE.pack(*_PLACE_SENTINEL))
        )
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
        lane = connection.express
        if not isinstance(lane, CommitLane) or not lane.fits(version, topics_version):
            lane = connection.express = CommitLane(
                self._access, self._waiting, self._topics, version, topics_version
            )
        lane.remember(frame, place_at, Remembered(request, shard, Record(key, value), answer))
