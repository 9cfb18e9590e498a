"""The producer's decisions: which batches leave now, and what an answer means for each of them.

    waiting --leader known, batch ready--> in flight --acknowledged--> delivered
                  ^                            |------refused---------> undelivered
                  '-----worth another try------'

One batch per partition is in flight at a time, so that a retry never overtakes: order per partition holds
without conditions, and with idempotence the broker drops a repeat whose acknowledgement was lost. A batch
that is not delivered by its deadline is given up.
"""

from typing import NamedTuple

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Duration, Instant
from headrace.client.attempts import backoff
from headrace.client.batching import SEQUENCES, Batch, Waiting
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import BadResponse, ClientError, KafkaError, RecordLost
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.records.builder import Record as NewRow

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_NAMES_ONLY_VERSION = 12  # the last version of Produce that names topics instead of giving their ids


class Flight(NamedTuple):
    """A produce request to send to a broker, and what it carries."""

    broker: int
    request: ProduceRequest
    batches: dict[TopicPartition, Batch]
    version_max: int | None


class Delivered(NamedTuple):
    at: TopicPartition
    base_offset: int  # -1 with acks=0
    records: int
    first_waited_since: Instant


class Undelivered(NamedTuple):
    at: TopicPartition
    records: int
    error: ClientError


Outcome = Delivered | Undelivered


class _Lane:
    """One partition's way out."""

    __slots__ = ("in_flight", "next_sequence", "retry_at", "waiting")

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting
        self.in_flight: Batch | None = None
        self.retry_at = Instant(0.0)
        self.next_sequence = 0


class Sender:
    """All partitions of one producer.

    Invariant: a lane's in-flight batch is the oldest of its partition, and its sequence precedes all that
    wait.
    """

    def __init__(
        self,
        dice: Dice,
        *,
        acks: int,
        codec: int,
        batch_bytes: int,
        linger_s: float,
        delivery_s: float,
        request_timeout_ms: int,
    ) -> None:
        self.acks = acks
        self.codec = codec
        self.batch_bytes = batch_bytes
        self.linger_s = Duration(linger_s)
        self.delivery_s = Duration(delivery_s)
        self.request_timeout_ms = request_timeout_ms
        self.producer_id = -1  # -1: not idempotent
        self.producer_epoch = -1
        self.unfinished_bytes = 0
        self.wants_flush = False  # nothing lingers while it is set
        self._dice = dice
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._busy: dict[TopicPartition, _Lane] = {}  # those with something waiting or in flight

    @property
    def is_idle(self) -> bool:
        return not self._busy

    def identify(self, producer_id: int, producer_epoch: int) -> None:
        """Makes the producer idempotent; before its first record."""
        assert not self._lanes
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def add(self, now: Instant, at: TopicPartition, row: NewRow, size: int) -> None:
        lane = self._lanes.get(at)
        if lane is None:
            waiting = Waiting(
                batch_bytes=self.batch_bytes, linger_s=self.linger_s, delivery_s=self.delivery_s
            )
            lane = self._lanes[at] = _Lane(waiting)
        lane.waiting.add(now, row, size)
        self.unfinished_bytes += size
        self._busy[at] = lane

    def topics(self) -> set[str]:
        """Those that leaders are needed for."""
        return {at.topic for at in self._busy}

    def departures(self, now: Instant, cluster: Cluster) -> list[Flight]:
        """What should be sent now: one request per leader that has something ready."""
        by_leader: dict[int, dict[TopicPartition, Batch]] = {}
        for at, lane in self._busy.items():
            if lane.in_flight is not None or now < self._ready_at(lane):
                continue
            leader = cluster.leader_of(at)
            if leader is None or at.topic in cluster.stale:
                cluster.mark_stale(at.topic)
                continue
            lane.in_flight = batch = lane.waiting.batches.popleft()
            batch.is_closed = True
            if self.producer_id >= 0 and batch.base_sequence < 0:
                batch.base_sequence = lane.next_sequence
                lane.next_sequence = (lane.next_sequence + len(batch.rows)) % SEQUENCES
            by_leader.setdefault(leader, {})[at] = batch
        return [self._flight(leader, batches, cluster) for leader, batches in by_leader.items()]

    def _flight(self, leader: int, batches: dict[TopicPartition, Batch], cluster: Cluster) -> Flight:
        topics: dict[str, TopicProduceData] = {}
        has_ids = True
        for at, batch in batches.items():
            data = topics.get(at.topic)
            if data is None:
                topic = cluster.topics[at.topic]
                has_ids &= topic.has_id
                data = topics[at.topic] = TopicProduceData(name=topic.name, topic_id=topic.topic_id)
            records = batch.encode(
                codec=self.codec, producer_id=self.producer_id, producer_epoch=self.producer_epoch
            )
            data.partition_data.append(PartitionProduceData(index=at.partition, records=records))
        request = ProduceRequest(
            acks=self.acks, timeout_ms=self.request_timeout_ms, topic_data=list(topics.values())
        )
        return Flight(leader, request, batches, None if has_ids else _NAMES_ONLY_VERSION)

    def answered(
        self, now: Instant, flight: Flight, response: ProduceResponse | None, cluster: Cluster
    ) -> list[Outcome]:
        """An answer arrived; None after a request with acks=0, which has none."""
        if response is None:
            return [self._delivered(at, batch, -1) for at, batch in flight.batches.items()]
        outcomes: list[Outcome] = []
        unanswered = dict(flight.batches)
        for topic in response.responses:
            name = cluster.name_of(topic.name, topic.topic_id)
            for told in topic.partition_responses:
                at = TopicPartition(name, told.index)
                batch = unanswered.pop(at, None)
                if batch is not None:
                    outcomes += self._judge(now, at, batch, told, cluster)
        error = BadResponse("the broker's answer to Produce leaves out a partition that was written to")
        for at, batch in unanswered.items():
            outcomes += self._setback(now, at, batch, error)
        return outcomes

    def failed(self, now: Instant, flight: Flight, error: ClientError, cluster: Cluster) -> list[Outcome]:
        """The request got no answer: it may have been carried out or not."""
        outcomes: list[Outcome] = []
        for at, batch in flight.batches.items():
            cluster.mark_stale(at.topic)
            outcomes += self._setback(now, at, batch, error)
        return outcomes

    def _judge(
        self, now: Instant, at: TopicPartition, batch: Batch, told: PartitionProduceResponse, cluster: Cluster
    ) -> list[Outcome]:
        if told.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return [self._delivered(at, batch, told.base_offset)]
        if told.error_code in _TOO_LARGE and len(batch.rows) > 1:
            self._split(at, batch)
            return []
        error = KafkaError(told.error_code, told.error_message, subject=f"partition {at}")
        if error.is_metadata_stale:
            cluster.mark_stale(at.topic)
        return self._setback(now, at, batch, error)

    def _delivered(self, at: TopicPartition, batch: Batch, base_offset: int) -> Delivered:
        self._finish(at, batch)
        return Delivered(at, base_offset, len(batch.rows), batch.opened_at)

    def _setback(self, now: Instant, at: TopicPartition, batch: Batch, error: ClientError) -> list[Outcome]:
        wake_at = Instant(now + backoff(batch.failures, self._dice))
        if not error.is_retriable:
            self._finish(at, batch)
            return [Undelivered(at, len(batch.rows), error)]
        if wake_at >= batch.deadline:
            self._finish(at, batch)
            lost = RecordLost(f"{len(batch.rows)} records for {at} were not delivered in time: {error}")
            lost.__cause__ = error
            return [Undelivered(at, len(batch.rows), lost)]
        batch.failures += 1
        lane = self._lanes[at]
        lane.in_flight = None
        lane.retry_at = wake_at
        lane.waiting.batches.appendleft(batch)
        return []

    def _split(self, at: TopicPartition, batch: Batch) -> None:
        """The topic allows less than we gather: send halves, and gather less from now on."""
        lane = self._lanes[at]
        lane.in_flight = None
        first, second = batch.halves()
        lane.waiting.batches.extendleft((second, first))
        lane.waiting.batch_bytes = min(lane.waiting.batch_bytes, max(first.bytes, second.bytes))

    def _finish(self, at: TopicPartition, batch: Batch) -> None:
        lane = self._lanes[at]
        lane.in_flight = None
        lane.retry_at = Instant(0.0)
        self.unfinished_bytes -= batch.record_bytes
        if not lane.waiting.batches:
            del self._busy[at]

    def expire(self, now: Instant) -> list[Outcome]:
        """Gives up what waited past its deadline, as when its partition has no leader."""
        outcomes: list[Outcome] = []
        for at, lane in list(self._busy.items()):
            waiting = lane.waiting.batches
            while lane.in_flight is None and waiting and waiting[0].deadline <= now:
                batch = waiting.popleft()
                self._finish(at, batch)
                error = RecordLost(f"{len(batch.rows)} records for {at} found no leader in time")
                outcomes.append(Undelivered(at, len(batch.rows), error))
        return outcomes

    def _ready_at(self, lane: _Lane) -> Instant:
        ready_at = Instant(0.0) if self.wants_flush and lane.waiting.batches else lane.waiting.ready_at()
        return max(ready_at, lane.retry_at)

    def deadline(self) -> Instant:
        """When `departures` has something new to say at the latest, unless an answer comes first."""
        return min(
            (self._ready_at(lane) for lane in self._busy.values() if lane.in_flight is None), default=NEVER
        )
