"""Records on their way to the brokers: which batches leave now, and what becomes of them.

    waiting --its leader is known, its turn has come--> in flight --acknowledged--> delivered
       ^                                                   |------refused---------> undelivered
       |---------------worth another try-------------------|
       '---------------too large: its halves---------------'      any --too late--> undelivered

Up to five requests per broker are in flight. With idempotence a batch keeps its sequence through all
retries and no batch leaves before those it follows are on their way or answered, so that each record is
written once and in order. Without it the order is kept by one request at a time, of each broker and of each
partition: a leader that changes must not get the next batch while the last one may still fail elsewhere.
"""

from functools import partial

from headrace.base.dice import Dice
from headrace.base.time import Duration, Instant
from headrace.client.cluster import Address, Cluster, TopicPartition
from headrace.client.errors import (
    BadResponse,
    ClientError,
    KafkaError,
    ProducerClosed,
    RecordLost,
    TransactionAborted,
)
from headrace.client.mailbox import Answer, Mailbox, Outgoing
from headrace.client.network.reachability import Reachability
from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer._batch import Batch, PartitionQueue, rebatch
from headrace.client.producer.flights import Carried, Flight, Flights, produce_request
from headrace.client.producer.flush import Flush
from headrace.client.producer.identity import Identity
from headrace.client.producer.judgement import OF_SEQUENCES, Verdict, judge
from headrace.client.producer.meter import Meter
from headrace.client.producer.sequences import Sequences
from headrace.client.producer.topics import Event, Topics
from headrace.client.producer.transaction import Transact, Transaction
from headrace.client.producer.transaction_session import TransactionSession
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from headrace.records._codec import decode_rows
from headrace.records.batch import HEADER_BYTES, NO_SEQUENCE
from headrace.records.compression import decompress


class Sending:
    """All partitions of one producer.

    Invariant: every batch is in exactly one place: waiting in its queue, in one flight, or settled. One that
    is settled may still be in a flight, when its time was over before its answer came.
    """

    def __init__(
        self,
        settings: SendingSettings,
        accumulator: Accumulator,
        cluster: Cluster,
        dice: Dice,
        mailbox: Mailbox | None = None,
        transact: Transact = TransactionSession,
    ) -> None:
        self.settings = settings
        self.accumulator = accumulator
        self.cluster = cluster
        self.reachability = Reachability(settings.unreachable_s)
        self.mailbox = mailbox or Mailbox()
        self.sequences = Sequences()
        self.topics = Topics(cluster, accumulator, self.mailbox, settings, dice)
        self.transaction: Transaction | None = None
        if settings.transactional_id is not None:
            self.transaction = transact(settings, self.sequences, self.mailbox, dice)
            self.transaction.when_moved = self._open_or_close
        self.meter = Meter()
        self.is_closed = False
        self._dice = dice
        self._identity = Identity(self.sequences, self.mailbox, settings, dice)
        self._flights = Flights(
            settings.in_flight_max,
            is_one_per_partition=settings.in_flight_max == 1 and not settings.is_idempotent,
        )
        self._settled: list[Batch] = []
        self._looked_at = Instant(0.0)
        self._open_or_close()

    # What the shell drives

    def requests(self, now: Instant) -> list[Outgoing]:
        """What has to be sent now."""
        self._looked_at = now
        self._expire(now)
        if self.transaction is not None:
            if self.transaction.is_doomed:
                self._drop_unsent(self.transaction)
        elif self.settings.is_idempotent:
            self._resolve()
            self._identity.advance(now)
            if self._identity.error is not None:
                self.give_up(self._identity.error)
        while self._depart(now):
            pass
        if self.transaction is not None:
            self.transaction.advance(now, is_drained=self.is_idle)
        self.topics.advance(now)
        return self.mailbox.take()

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self.mailbox.answered(now, ticket, answer)

    def deadline(self) -> Instant:
        """When `requests` has something new to say at the latest, unless an answer comes first."""
        wake_at = min(self.topics.deadline(), self._flights.unmuted_at(self._looked_at))
        if self.transaction is not None:
            wake_at = min(wake_at, self.transaction.deadline())
        elif self.settings.is_idempotent:
            wake_at = min(wake_at, self._identity.deadline())
        for queue in self.accumulator.busy:
            wake_at = min(wake_at, self._expires_at(queue.waiting[0]))
            ready_at = self._ready_at(queue)
            if ready_at > self._looked_at:  # what was ready and stayed waits for something else than time
                wake_at = min(wake_at, ready_at)
        for flight in self._flights.all():
            for carried in flight.carried.values():
                if not carried.batch.is_settled:
                    wake_at = min(wake_at, self._expires_at(carried.batch))
        return wake_at

    def take_settled(self) -> list[Batch]:
        """The batches that were settled since the last call; `call_listeners` of each is to be called."""
        settled, self._settled = self._settled, []
        return settled

    def take_events(self) -> list[Event]:
        return self.topics.take_events()

    @property
    def is_idle(self) -> bool:
        return not self.accumulator.busy and not self._flights

    def flush(self) -> Flush:
        """Nothing that was taken until now lingers; the flush is done when all of it is answered."""
        batches: list[Batch] = []
        for queue in self.accumulator.busy:
            queue.close()
            batches += queue.waiting
        for flight in self._flights.all():
            batches += [carried.batch for carried in flight.carried.values()]
        return Flush(batches)

    def close(self) -> None:
        """No more records are taken; those that are there are delivered."""
        self.is_closed = True
        self._open_or_close()

    def _open_or_close(self) -> None:
        is_in_turn = self.transaction is None or self.transaction.is_open
        self.accumulator.is_open = is_in_turn and not self.is_closed

    def check_open(self) -> None:
        """Raises why no records are taken."""
        if self.is_closed:
            raise ProducerClosed("this producer is closed")
        if self.transaction is not None:
            self.transaction.check_may_send()

    def give_up(self, error: ClientError) -> None:
        """Nothing more is sent: all that is not delivered never will be, as far as we know."""
        for queue in list(self.accumulator.busy):
            while queue.waiting:
                self._settle(self.accumulator.take(queue), error)
        for flight in self._flights.all():
            for carried in flight.carried.values():
                if not carried.batch.is_settled:
                    self._settle(carried.batch, error)

    # Leaving

    def _ready_at(self, queue: PartitionQueue) -> Instant:
        first: Batch = queue.waiting[0]
        is_ending = self.transaction is not None and self.transaction.is_ending
        if is_ending or first.is_closed or first.used >= first.ready_bytes:
            return Instant(first.retry_at)
        return Instant(first.created_at + self.settings.linger_s)

    def _depart(self, now: Instant) -> bool:
        """One request to each leader that has room for one, of a batch of each partition at most; whether
        another round may bring more.
        """
        loads: dict[int, dict[TopicPartition, Carried]] = {}
        load_bytes: dict[int, int] = {}
        is_more_waiting = False
        for queue in list(self.accumulator.busy):
            if now < self._ready_at(queue):
                continue
            at = TopicPartition(queue.topic, queue.partition)
            leader = self.cluster.leader_of(at)
            if leader is None or at.topic in self.cluster.stale:
                self.cluster.mark_stale(at.topic)
                continue
            first: Batch = queue.waiting[0]
            total = load_bytes.get(leader, HEADER_BYTES) + first.used
            if leader in loads and total > self.settings.request_bytes_max:
                is_more_waiting = True
                continue
            if not self._flights.has_room(now, leader) or not self._is_in_turn(at, first):
                continue
            load_bytes[leader] = total
            batch = self.accumulator.take(queue)
            queue.last_sent_at = now
            is_more_waiting |= bool(queue.waiting)
            if self.settings.is_idempotent:
                self.sequences.number(at, batch)
            carried = Carried(batch, batch.producer_id, batch.producer_epoch, batch.base_sequence)
            loads.setdefault(leader, {})[at] = carried
        for leader, load in loads.items():
            self._launch(now, leader, load)
        return is_more_waiting and bool(loads)

    def _is_in_turn(self, at: TopicPartition, batch: Batch) -> bool:
        if self.settings.is_idempotent:
            if not self.sequences.may_leave(at, batch):
                return False
        elif not self._flights.may_write(at):
            return False
        return self.transaction is None or self.transaction.may_send(at)

    def _launch(self, now: Instant, leader: int, load: dict[TopicPartition, Carried]) -> None:
        request, version_max = produce_request(self.settings, self.cluster, load, self.meter)
        if self.transaction is not None and self.transaction.produce_version_max is not None:
            version_max = self.transaction.produce_version_max
        flight = Flight(leader, load, now)
        self.meter.requests += 1
        self._flights.add(flight)
        self.mailbox.post(
            self.cluster.brokers[leader],
            request,
            partial(self._landed, flight),
            timeout_s=self.settings.request_timeout_s,
            version_max=version_max,
            expects_answer=self.settings.acks != 0,
        )

    # Arriving

    def _landed(self, flight: Flight, now: Instant, answer: Answer) -> None:
        self._flights.remove(flight)
        if isinstance(answer, ClientError):
            for at, carried in flight.carried.items():
                self.cluster.mark_stale(at.topic)
                self._setback(now, at, carried.batch, answer)
        elif self.settings.acks == 0:
            for at, carried in flight.carried.items():
                self._deliver(at, carried, -1, -1)
        else:
            assert isinstance(answer, ProduceResponse)
            self.meter.answered(Duration(now - flight.began_at))
            self._read(now, flight, answer)

    def _read(self, now: Instant, flight: Flight, answer: ProduceResponse) -> None:
        if answer.throttle_time_ms > 0:
            self._flights.mute(flight.broker, Instant(now + answer.throttle_time_ms / 1000))
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
            # its topic may have been made anew, so that the id in the answer is not known any more
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
        order = self.sequences.of(at) if self.settings.is_idempotent else None
        if batch.is_settled:  # its time was over; what the answer says of sequences still counts
            is_current = order is not None and carried[1:3] == order.producer
            if order is not None and is_current and told.error_code == 0:
                self.sequences.acknowledged(at, batch, told.base_offset)
            return
        verdict = judge(
            told,
            batch,
            order,
            was_renumbered=carried.was_renumbered,
            is_transactional=self.transaction is not None,
        )
        if verdict is Verdict.DELIVERED:
            self._deliver(at, carried, told.base_offset, told.log_append_time_ms)
            return
        if verdict is Verdict.TOO_LARGE:
            self._split(at, batch)
            return
        if self.transaction is not None and self.transaction.is_doomed and told.error_code in OF_SEQUENCES:
            verdict = Verdict.REFUSED  # something before it failed, and nothing of this will count
        error = KafkaError(told.error_code, told.error_message, subject=f"partition {at}")
        knows_leader = False
        if error.is_metadata_stale:
            hint = told.current_leader
            if hint is not None:
                knows_leader = self.cluster.hint(at, hint.leader_id, hint.leader_epoch, brokers)
            if not knows_leader:
                self.cluster.mark_stale(at.topic)
        if verdict is Verdict.RESTART:
            self._restart(at)
        error.is_retriable = verdict is not Verdict.REFUSED
        self._setback(now, at, batch, error)
        if knows_leader:
            batch.retry_at = now  # there is nothing to wait for

    def _restart(self, at: TopicPartition) -> None:
        """The partition's sequences begin anew: in a new epoch, or, in a transaction, in the same one."""
        if self.transaction is None:
            self.sequences.want_restart(at)
        else:
            self.sequences.of(at).restart(self.sequences.producer)

    def _deliver(self, at: TopicPartition, carried: Carried, base_offset: int, append_time_ms: int) -> None:
        batch = carried.batch
        if batch.is_settled:
            return
        if carried.was_renumbered:
            # taken under its old numbers after all: nobody will ever see those that it has now
            self.sequences.of(at).drop(batch)
            self._restart(at)
        elif self.settings.is_idempotent:
            self.sequences.acknowledged(at, batch, base_offset)
        self.accumulator.recycle(batch)
        batch.settle(base_offset, append_time_ms)
        self._finish(batch)

    def _setback(self, now: Instant, at: TopicPartition, batch: Batch, error: ClientError) -> None:
        """It was not acknowledged: try again, or tell those who wait."""
        if batch.is_settled:
            return
        if not error.is_retriable:
            if isinstance(error, KafkaError):
                self._refuse(at, batch, error)
            else:
                self._lose(at, batch, error)
            return
        retry_at = Instant(now + self.settings.backoff(batch.attempts, self._dice))
        if batch.attempts >= self.settings.retries or retry_at >= self._expires_at(batch):
            lost = RecordLost(f"{batch.count} records for {at} were not delivered in time: {error}")
            lost.__cause__ = error
            self._lose(at, batch, lost)
            return
        batch.attempts += 1
        batch.retry_at = retry_at
        self.meter.retries += 1
        self._put_back(at, batch)

    def _put_back(self, at: TopicPartition, batch: Batch) -> None:
        """Behind those that precede it and wait already, before all others."""
        waiting = batch.queue.waiting
        if self.settings.is_idempotent:
            tracked = self.sequences.of(at).tracked
            preceding = tracked[: tracked.index(batch)]
            place = sum(1 for each in waiting if each in preceding)
        else:
            place = sum(1 for each in waiting if each.attempts and each.created_at <= batch.created_at)
        self.accumulator.put_back(batch, place)

    def _split(self, at: TopicPartition, batch: Batch) -> None:
        """The topic allows less than we gather: halves are sent, and less is gathered from now on."""
        queue = batch.queue
        parts = halves(batch)
        if self.settings.is_idempotent:
            self.sequences.of(at).split(batch, parts)
            for part in parts:
                self._put_back(at, part)
        else:
            for part in reversed(parts):
                self.accumulator.put_back(part, 0)
        self.accumulator.replace(batch, parts)
        queue.limit(max(part.used for part in parts))

    # The end of batches that are not delivered

    def _refuse(self, at: TopicPartition, batch: Batch, error: ClientError) -> None:
        """The broker says no and did not write it: what follows must not wait for its sequence."""
        if batch.base_sequence != NO_SEQUENCE and self.transaction is None:
            self.sequences.want_restart(at)
        self._fail(batch, error)

    def _lose(self, at: TopicPartition, batch: Batch, error: ClientError) -> None:
        """It is not tried again, and nobody knows whether a broker has it."""
        if batch.base_sequence != NO_SEQUENCE:
            self.sequences.of(at).given_up(batch)
        self._fail(batch, error)

    def _drop_unsent(self, transaction: Transaction) -> None:
        """Of a transaction that will not be committed; what was sent once must become clear (KIP-98)."""
        error = TransactionAborted("the record's transaction was aborted before it was sent")
        error.__cause__ = transaction.error
        if transaction.is_fatal:
            self.give_up(error)
        for queue in list(self.accumulator.busy):
            while queue.waiting and queue.waiting[-1].base_sequence == NO_SEQUENCE:
                self._settle(self.accumulator.take_last(queue), error)

    def _fail(self, batch: Batch, error: ClientError) -> None:
        if self.transaction is not None:
            self.transaction.batch_failed(error)
        self._settle(batch, error)

    def _settle(self, batch: Batch, error: ClientError) -> None:
        if batch.base_sequence != NO_SEQUENCE:
            self.sequences.of(TopicPartition(batch.queue.topic, batch.queue.partition)).drop(batch)
        batch.settle(error=error)
        self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        meter = self.meter
        if batch.error is None:
            meter.records += batch.count
            meter.record_bytes += batch.record_bytes
            meter.batches += 1
        else:
            meter.errors += batch.count
        self.accumulator.release(batch)
        self._settled.append(batch)

    # Time

    def _expires_at(self, batch: Batch) -> Instant:
        return Instant(batch.created_at + self.settings.delivery_s)

    def _expire(self, now: Instant) -> None:
        for queue in list(self.accumulator.busy):
            at = TopicPartition(queue.topic, queue.partition)
            while queue.waiting and self._expires_at(queue.waiting[0]) <= now:
                batch = self.accumulator.take(queue)
                self._lose(at, batch, self._overdue(f"{batch.count} records for {at} waited for too long"))
        for flight in self._flights.all():
            for at, carried in flight.carried.items():
                batch = carried.batch
                if not batch.is_settled and self._expires_at(batch) <= now:
                    said = f"{batch.count} records for {at} got no answer in time"
                    self._lose(at, batch, self._overdue(said))

    def _overdue(self, said: str) -> RecordLost:
        """Whose cause is that no broker can be reached, if so, or that brokers say nothing of topics."""
        outage = self.reachability.outage
        cause = self.topics.error if outage is None else outage.error
        if cause is None:
            return RecordLost(said)
        lost = RecordLost(f"{said}: {outage or cause}")
        lost.__cause__ = cause
        lost.advice = f"{cause.advice} Then send the records again.".lstrip()
        return lost

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
    return [rebatch(batch.queue, batch.created_at, part) for part in (rows[:middle], rows[middle:])]
