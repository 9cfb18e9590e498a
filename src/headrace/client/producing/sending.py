"""Records on their way to the brokers: which batches leave now, and what becomes of them.

    waiting --its leader is known, its turn has come--> in flight --acknowledged--> delivered
       ^                                                   |------refused---------> undelivered
       |---------------worth another try-------------------|
       '---------------too large: its halves---------------'      any --too late--> undelivered

Up to five requests per broker are in flight. With idempotence a batch keeps its sequence through all
retries and no batch leaves before those it follows are on their way or answered, so that each record is
written once and in order. Without it the order is kept by one request at a time.
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, Cluster, TopicPartition
from headrace.client.errors import BadResponse, ClientError, KafkaError, RecordLost
from headrace.client.membership.mailbox import Answer, Mailbox, Outgoing
from headrace.client.producing.identity import Identity
from headrace.client.producing.judgement import Verdict, judge
from headrace.client.producing.sequences import Sequences
from headrace.client.producing.settings import SendingSettings
from headrace.client.producing.topics import Event, Topics
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.records._accumulator import Accumulator, Batch, Lane, rebatch
from headrace.records._codec import decode_rows
from headrace.records.batch import HEADER_BYTES, NO_SEQUENCE
from headrace.records.compression import decompress

NAMES_ONLY_VERSION = 12  # the last version of Produce that names topics instead of giving their ids


class Carried(NamedTuple):
    """A batch in a request, with the numbers that it had when the request was made."""

    batch: Batch
    numbers: tuple[int, int, int]


class Flight(NamedTuple):
    """A produce request under way."""

    broker: int
    carried: dict[TopicPartition, Carried]


class Sending:
    """All partitions of one producer.

    Invariant: every batch is in exactly one place: waiting in its lane, in one flight, or settled.
    """

    def __init__(
        self,
        settings: SendingSettings,
        accumulator: Accumulator,
        cluster: Cluster,
        dice: Dice,
        mailbox: Mailbox | None = None,
    ) -> None:
        self.settings = settings
        self.accumulator = accumulator
        self.cluster = cluster
        self.mailbox = mailbox or Mailbox()
        self.sequences = Sequences()
        self.topics = Topics(cluster, accumulator, self.mailbox, settings, dice)
        self.wants_flush = False  # nothing lingers while it is set
        self._dice = dice
        self._identity = Identity(self.sequences, self.mailbox, settings, dice)
        self._flights: dict[int, list[Flight]] = {}  # by broker, oldest first
        self._mute_until: dict[int, Instant] = {}  # brokers that asked for a pause (KIP-219)
        self._settled: list[Batch] = []

    # What the shell drives

    def requests(self, now: Instant) -> list[Outgoing]:
        """What has to be sent now."""
        self._expire(now)
        if self.settings.is_idempotent:
            self._resolve()
            self._identity.advance(now)
        self._depart(now)
        self.topics.advance(now)
        return self.mailbox.take()

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self.mailbox.answered(now, ticket, answer)

    def deadline(self) -> Instant:
        """When `requests` has something new to say at the latest, unless an answer comes first."""
        wake_at = min(
            self.topics.deadline(), self._identity.deadline() if self.settings.is_idempotent else NEVER
        )
        delivery_s = self.settings.delivery_s
        for lane in self.accumulator.busy:
            first = lane.waiting[0]
            wake_at = min(wake_at, self._ready_at(lane), Instant(first.created_at + delivery_s))
        for flights in self._flights.values():
            for flight in flights:
                oldest = min(carried.batch.created_at for carried in flight.carried.values())
                wake_at = min(wake_at, Instant(oldest + delivery_s))
        return wake_at

    def take_settled(self) -> list[Batch]:
        """The batches whose fate is known since the last call; `announce` tells those who listen."""
        settled, self._settled = self._settled, []
        return settled

    def take_events(self) -> list[Event]:
        return self.topics.take_events()

    @property
    def is_idle(self) -> bool:
        return not self.accumulator.busy and not any(self._flights.values())

    def give_up(self, error: ClientError) -> None:
        """Nothing more is sent: all that is not delivered never will be, as far as we know."""
        for lane in list(self.accumulator.busy):
            while lane.waiting:
                self._fail(self.accumulator.take(lane), error)
        for flights in self._flights.values():
            for flight in flights:
                for carried in flight.carried.values():
                    if not carried.batch.is_settled:
                        self._fail(carried.batch, error)

    # Leaving

    def _ready_at(self, lane: Lane) -> Instant:
        first = lane.waiting[0]
        if self.wants_flush or first.is_closed or first.used >= lane.batch_bytes or len(lane.waiting) > 1:
            return Instant(first.retry_at)
        return Instant(first.created_at + self.settings.linger_s)

    def _depart(self, now: Instant) -> None:
        loads: dict[int, dict[TopicPartition, Carried]] = {}
        load_bytes: dict[int, int] = {}
        for lane in list(self.accumulator.busy):
            if now < self._ready_at(lane):
                continue
            at = TopicPartition(lane.topic, lane.partition)
            leader = self.cluster.leader_of(at)
            if leader is None or at.topic in self.cluster.stale:
                self.cluster.mark_stale(at.topic)
                continue
            first = lane.waiting[0]
            if not self._has_room(now, leader) or not self._is_in_turn(at, first):
                continue
            size = load_bytes.get(leader, 0) + first.used
            if leader in loads and size > self.settings.request_bytes_max:
                continue
            load_bytes[leader] = size
            batch = self.accumulator.take(lane)
            if self.settings.is_idempotent:
                self.sequences.number(at, batch)
            numbers = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            loads.setdefault(leader, {})[at] = Carried(batch, numbers)
        for leader, load in loads.items():
            self._launch(leader, load)

    def _has_room(self, now: Instant, leader: int) -> bool:
        if len(self._flights.get(leader, ())) >= self.settings.in_flight_max:
            return False
        return self._mute_until.get(leader, 0.0) <= now

    def _is_in_turn(self, at: TopicPartition, batch: Batch) -> bool:
        return not self.settings.is_idempotent or self.sequences.may_leave(at, batch)

    def _launch(self, leader: int, load: dict[TopicPartition, Carried]) -> None:
        topics: dict[str, TopicProduceData] = {}
        has_ids = True
        for at, carried in load.items():
            data = topics.get(at.topic)
            if data is None:
                topic = self.cluster.topics[at.topic]
                has_ids &= topic.has_id
                data = topics[at.topic] = TopicProduceData(name=topic.name, topic_id=topic.topic_id)
            records = carried.batch.seal(
                self.settings.codec,
                self.settings.compression_level,
                self.settings.transactional_id is not None,
            )
            data.partition_data.append(PartitionProduceData(index=at.partition, records=records))
        request = ProduceRequest(
            transactional_id=self.settings.transactional_id,
            acks=self.settings.acks,
            timeout_ms=int(self.settings.request_timeout_s * 1000),
            topic_data=list(topics.values()),
        )
        flight = Flight(leader, load)
        self._flights.setdefault(leader, []).append(flight)
        self.mailbox.post(
            self.cluster.brokers[leader],
            request,
            partial(self._landed, flight),
            timeout_s=self.settings.request_timeout_s,
            version_max=None if has_ids else NAMES_ONLY_VERSION,
            expects_answer=self.settings.acks != 0,
        )

    # Arriving

    def _landed(self, flight: Flight, now: Instant, answer: Answer) -> None:
        self._flights[flight.broker].remove(flight)
        if isinstance(answer, ClientError):
            for at, carried in flight.carried.items():
                self.cluster.mark_stale(at.topic)
                self._setback(now, at, carried.batch, answer)
        elif self.settings.acks == 0:
            for at, carried in flight.carried.items():
                self._deliver(at, carried.batch, -1, -1)
        else:
            assert isinstance(answer, ProduceResponse)
            self._read(now, flight, answer)

    def _read(self, now: Instant, flight: Flight, answer: ProduceResponse) -> None:
        if answer.throttle_time_ms > 0:
            self._mute_until[flight.broker] = Instant(now + answer.throttle_time_ms / 1000)
        brokers = {node.node_id: Address(node.host, node.port) for node in answer.node_endpoints}
        unanswered = dict(flight.carried)
        for topic in answer.responses:
            name = self.cluster.name_of(topic.name, topic.topic_id)
            for told in topic.partition_responses:
                at = TopicPartition(name, told.index)
                carried = unanswered.pop(at, None)
                if carried is not None:
                    self._judge(now, at, carried, told, brokers)
        for at, carried in unanswered.items():
            # its topic may have been made anew under another id, so that the answer's is not known any more
            self.cluster.mark_stale(at.topic)
            error = BadResponse("the broker's answer to Produce leaves out a partition that was written to")
            error.is_retriable = True
            self._setback(now, at, carried.batch, error)

    def _judge(
        self,
        now: Instant,
        at: TopicPartition,
        carried: Carried,
        told: PartitionProduceResponse,
        brokers: dict[int, Address],
    ) -> None:
        batch = carried.batch
        if batch.is_settled:  # it came too late; what it says of sequences still counts
            if told.error_code == 0 and self.settings.is_idempotent:
                self.sequences.of(at).acknowledged(batch, told.base_offset)
            return
        verdict = judge(
            told,
            batch,
            self.sequences.of(at) if self.settings.is_idempotent else None,
            was_renumbered=carried.numbers != (batch.producer_id, batch.producer_epoch, batch.base_sequence),
            is_transactional=self.settings.transactional_id is not None,
        )
        if verdict is Verdict.DELIVERED:
            self._deliver(at, batch, told.base_offset, told.log_append_time_ms)
            return
        if verdict is Verdict.TOO_LARGE:
            self._split(at, batch)
            return
        error = KafkaError(told.error_code, told.error_message, subject=f"partition {at}")
        if error.is_metadata_stale:
            hint = told.current_leader
            if hint is None or not self.cluster.hint(at, hint.leader_id, hint.leader_epoch, brokers):
                self.cluster.mark_stale(at.topic)
        if verdict is Verdict.RESTART:
            self.sequences.want_restart(at)
        error.is_retriable = verdict is not Verdict.REFUSED
        self._setback(now, at, batch, error)

    def _deliver(self, at: TopicPartition, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        if batch.is_settled:
            return
        if self.settings.is_idempotent:
            self.sequences.of(at).acknowledged(batch, base_offset)
        batch.settle(base_offset, append_time_ms)
        self._finish(batch)

    def _setback(self, now: Instant, at: TopicPartition, batch: Batch, error: ClientError) -> None:
        """It was not acknowledged: try again, or tell those who wait."""
        if batch.is_settled:
            return
        if not error.is_retriable:
            self._refuse(at, batch, error)
            return
        retry_at = Instant(now + self.settings.backoff(batch.attempts, self._dice))
        if batch.attempts >= self.settings.retries or retry_at >= batch.created_at + self.settings.delivery_s:
            self._lose(at, batch, f"were not delivered in time: {error}", error)
            return
        batch.attempts += 1
        batch.retry_at = retry_at
        self._put_back(at, batch)

    def _put_back(self, at: TopicPartition, batch: Batch) -> None:
        """Behind those that precede it and wait already, before all others."""
        place = 0
        if self.settings.is_idempotent:
            tracked = self.sequences.of(at).tracked
            preceding = tracked[: tracked.index(batch)]
            place = sum(1 for waiting in batch.lane.waiting if waiting in preceding)
        self.accumulator.put_back(batch, place)

    def _refuse(self, at: TopicPartition, batch: Batch, error: ClientError) -> None:
        """The broker says no and did not write it: what follows must not wait for its sequence."""
        if batch.base_sequence != NO_SEQUENCE:
            self.sequences.of(at).drop(batch)
            self.sequences.want_restart(at)
        self._fail(batch, error)

    def _lose(self, at: TopicPartition, batch: Batch, what: str, cause: ClientError | None = None) -> None:
        """Its time is over, and nobody knows whether a broker has it."""
        if batch.base_sequence != NO_SEQUENCE:
            self.sequences.of(at).given_up(batch)
        error = RecordLost(f"{batch.count} records for {at} {what}")
        error.__cause__ = cause
        self._fail(batch, error)

    def _fail(self, batch: Batch, error: ClientError) -> None:
        batch.settle(error=error)
        self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        self.accumulator.release(batch)
        self._settled.append(batch)

    def _split(self, at: TopicPartition, batch: Batch) -> None:
        """The topic allows less than we gather: halves are sent, and less is gathered from now on."""
        lane = batch.lane
        parts = halves(batch)
        if self.settings.is_idempotent:
            self.sequences.of(at).split(batch, parts)
            self._put_back(at, parts[0])
            self._put_back(at, parts[1])
        else:
            self.accumulator.put_back(parts[1], 0)
            self.accumulator.put_back(parts[0], 0)
        batch.replace(parts)
        lane.batch_bytes = min(lane.batch_bytes, max(parts[0].used, parts[1].used))

    # Time

    def _expire(self, now: Instant) -> None:
        oldest = now - self.settings.delivery_s
        for lane in list(self.accumulator.busy):
            at = TopicPartition(lane.topic, lane.partition)
            while lane.waiting and lane.waiting[0].created_at <= oldest:
                self._lose(at, self.accumulator.take(lane), "waited for too long to be sent")
        for flights in self._flights.values():
            for flight in flights:
                for at, carried in flight.carried.items():
                    if carried.batch.created_at <= oldest and not carried.batch.is_settled:
                        self._lose(at, carried.batch, "got no answer in time")

    def _resolve(self) -> None:
        """Where records expired and all others are answered for, it shows whether the broker has them."""
        for at in self.sequences.unresolved():
            order = self.sequences.of(at)
            if order.follows(order.next_sequence):
                order.unresolved = None
            else:
                self.sequences.want_restart(at)


def halves(batch: Batch) -> list[Batch]:
    """Two batches with the records of one."""
    records = bytes(memoryview(batch.buffer)[HEADER_BYTES : batch.used])
    if batch.codec:
        records = decompress(batch.codec, records)
    rows = [row[1:] for row in decode_rows(records, batch.count, 0, batch.base_timestamp, -1)]
    middle = len(rows) // 2
    return [rebatch(batch.lane, batch.created_at, part) for part in (rows[:middle], rows[middle:])]


def announce(batches: Iterable[Batch]) -> list[Exception]:
    """Tells all who listen; what their calls raised is returned."""
    return [error for batch in batches for error in batch.announce()]
