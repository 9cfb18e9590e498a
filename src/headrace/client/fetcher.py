"""The consumer's decisions: what to ask which leader for, and what an answer means for each position.

One fetch per leader is in flight, with all partitions that leader has for us; positions move on by batch
headers alone, so the next fetch leaves before anybody has opened the records of the last one. Fetches are
full ones (no KIP-227 session): the broker need not remember us, and a command-line reader has few
partitions.
"""

from typing import NamedTuple

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.attempts import backoff
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import BadResponse, ClientError, KafkaError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.records.errors import BadRecords
from headrace.records.reader import batches

_NAMES_ONLY_VERSION = 12  # the last version of Fetch that names topics instead of giving their ids
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Flight(NamedTuple):
    """A fetch to send to a broker, and the positions it asks from."""

    broker: int
    request: FetchRequest
    offsets: dict[TopicPartition, int]
    version_max: int | None


class Chunk(NamedTuple):
    """Bytes that one fetch brought for one partition: whole batches, of which the first may begin before
    `start`.
    """

    at: TopicPartition
    records: memoryview
    start: int  # the first offset that was asked for
    next_offset: int  # behind the last batch
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]


class _Position:
    __slots__ = ("failing_since", "failures", "offset", "retry_at")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.retry_at = Instant(0.0)
        self.failures = 0
        self.failing_since = NEVER


class Fetcher:
    """All positions of one consumer."""

    def __init__(
        self,
        dice: Dice,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_bytes: int,
        isolation: int,
        patience_s: float,
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.partition_bytes = partition_bytes
        self.isolation = isolation
        self.patience_s = patience_s  # how long a partition may fail before its error is raised
        self._dice = dice
        self._positions: dict[TopicPartition, _Position] = {}
        self._asked: set[int] = set()  # brokers that owe us an answer

    def assign(self, at: TopicPartition, offset: int) -> None:
        self._positions[at] = _Position(offset)

    def unassign(self, at: TopicPartition) -> None:
        self._positions.pop(at, None)

    def position(self, at: TopicPartition) -> int:
        return self._positions[at].offset

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._positions)

    def topics(self) -> set[str]:
        return {at.topic for at in self._positions}

    def departures(self, now: Instant, cluster: Cluster) -> list[Flight]:
        """One fetch for each leader that owes us none."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for at, position in self._positions.items():
            if now < position.retry_at:
                continue
            leader = cluster.leader_of(at)
            if leader is None or at.topic in cluster.stale:
                cluster.mark_stale(at.topic)
            elif leader not in self._asked:
                by_leader.setdefault(leader, {})[at] = position.offset
        self._asked |= by_leader.keys()
        return [self._flight(leader, offsets, cluster) for leader, offsets in by_leader.items()]

    def _flight(self, leader: int, offsets: dict[TopicPartition, int], cluster: Cluster) -> Flight:
        topics: dict[str, FetchTopic] = {}
        for at, offset in offsets.items():
            topic = cluster.topics[at.topic]
            asked = topics.get(at.topic)
            if asked is None:
                asked = topics[at.topic] = FetchTopic(topic=topic.name, topic_id=topic.topic_id)
            asked.partitions.append(
                FetchPartition(
                    partition=at.partition,
                    current_leader_epoch=topic.partitions[at.partition].leader_epoch,
                    fetch_offset=offset,
                    partition_max_bytes=self.partition_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation,
            topics=list(topics.values()),
        )
        has_ids = all(cluster.topics[name].has_id for name in topics)
        return Flight(leader, request, offsets, None if has_ids else _NAMES_ONLY_VERSION)

    def answered(
        self, now: Instant, flight: Flight, response: FetchResponse, cluster: Cluster
    ) -> list[Chunk]:
        """What the answer brought; raises what no retry would mend."""
        self._asked.discard(flight.broker)
        if response.error_code:
            error = KafkaError(response.error_code, subject="the fetch")
            self._setback_all(now, flight, error, cluster)
            return []
        chunks: list[Chunk] = []
        for topic in response.responses:
            name = cluster.name_of(topic.topic, topic.topic_id)
            for told in topic.partitions:
                at = TopicPartition(name, told.partition_index)
                position = self._positions.get(at)
                asked = flight.offsets.get(at)
                # a position that was moved meanwhile is not moved again by an old answer
                if position is not None and asked == position.offset:
                    chunks += self._take(now, at, position, told, cluster)
        self._take_turns(flight)
        return chunks

    def _take(
        self, now: Instant, at: TopicPartition, position: _Position, told: PartitionData, cluster: Cluster
    ) -> list[Chunk]:
        if told.error_code:
            error = KafkaError(told.error_code, subject=f"partition {at}")
            if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                error = KafkaError(told.error_code, subject=f"offset {position.offset} of partition {at}")
            self._setback(now, at, position, error, cluster)
            return []
        position.failures = 0
        position.failing_since = NEVER
        if not told.records:
            return []
        assert isinstance(told.records, memoryview), "the codec hands out views"
        start = position.offset
        try:
            for _, header in batches(told.records, check=False):
                position.offset = max(position.offset, header.next_offset)
        except BadRecords as error:
            raise BadResponse(f"the broker sent broken records for partition {at}: {error}") from error
        if position.offset == start:  # asking again would bring the same, for ever
            raise BadResponse(f"the broker's records of partition {at} do not reach offset {start}")
        return [
            Chunk(
                at,
                told.records,
                start,
                position.offset,
                told.high_watermark,
                told.last_stable_offset,
                told.log_start_offset,
                told.aborted_transactions or [],
            )
        ]

    def _take_turns(self, flight: Flight) -> None:
        """Puts the partitions that were asked for first behind the others: a full answer must not starve
        them.
        """
        for at in list(flight.offsets)[:1]:
            position = self._positions.pop(at, None)
            if position is not None:
                self._positions[at] = position

    def failed(self, now: Instant, flight: Flight, error: ClientError, cluster: Cluster) -> None:
        """The fetch got no answer; raises what no retry would mend."""
        self._asked.discard(flight.broker)
        self._setback_all(now, flight, error, cluster)

    def _setback_all(self, now: Instant, flight: Flight, error: ClientError, cluster: Cluster) -> None:
        for at in flight.offsets:
            position = self._positions.get(at)
            if position is not None:
                self._setback(now, at, position, error, cluster)

    def _setback(
        self, now: Instant, at: TopicPartition, position: _Position, error: ClientError, cluster: Cluster
    ) -> None:
        if not error.is_retriable:
            raise error
        position.failing_since = min(position.failing_since, now)
        if now - position.failing_since >= self.patience_s:
            raise error
        cluster.mark_stale(at.topic)
        position.retry_at = Instant(now + backoff(position.failures, self._dice))
        position.failures += 1

    def deadline(self, now: Instant) -> Instant:
        """The next retry."""
        return min((p.retry_at for p in self._positions.values() if p.retry_at > now), default=NEVER)
