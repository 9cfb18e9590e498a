"""The sender: which batches leave now, to which broker, and which are sent again.

    queued --its leader is known, it is next in order--> in flight --acknowledged--> delivered
       ^                                                    |-------refused--------> failed
       |---------------retriable error----------------------|
       '---------------too large: split in two--------------'     any --too late---> failed

Up to five requests per broker are in flight. With idempotence a batch keeps its sequence number through all
retries, and no batch leaves before those that precede it are in flight or answered, so that each record is
written once and in order. Without idempotence, max.in.flight.requests.per.connection=1 keeps the order: one
request at a time for each broker and for each partition, because after a change of leader the new leader
must not get the next batch while the last one may still fail at the old leader.
"""

from functools import partial

from headrace.base.randomness import Randomness
from headrace.base.time import Duration, Instant
from headrace.client.cluster import Address, Cluster, TopicPartition
from headrace.client.errors import (
    BadResponse,
    ClientError,
    KafkaError,
    ProducerClosed,
    RecordLost,
    TransactionAborted,
    Unreachable,
)
from headrace.client.network.reachability import Reachability
from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer._batch import Batch, PartitionQueue
from headrace.client.producer.deliveries import Flush
from headrace.client.producer.idempotence import ProducerIdentity, Sequences
from headrace.client.producer.produce_requests import (
    MAYBE_WRITTEN,
    Outcome,
    ProducerMetrics,
    SentBatch,
    SentRequest,
    SentRequests,
    halves,
    name_refused_records,
    outcome_of,
    produce_request,
)
from headrace.client.producer.topics import Event, Topics
from headrace.client.producer.transaction import Transaction, TransactionFactory
from headrace.client.producer.transaction_session import TransactionSession
from headrace.client.session import Answer, Outgoing, RequestQueue
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from headrace.records.batch import HEADER_BYTES, NO_SEQUENCE


class Sender:
    """The session of a producer: all its partitions.

    Invariant: every batch is either in its queue, in one request, or settled. A batch that expired before its
    response came is settled and still in a request.
    """

    def __init__(
        self,
        settings: SendingSettings,
        accumulator: Accumulator,
        cluster: Cluster,
        rng: Randomness,
        request_queue: RequestQueue | None = None,
        new_transaction: TransactionFactory = TransactionSession,
    ) -> None:
        self.settings = settings
        self.accumulator = accumulator
        self.cluster = cluster
        self.reachability = Reachability(settings.unreachable_s)
        self.request_queue = request_queue or RequestQueue()
        self.sequences = Sequences()
        self.topics = Topics(cluster, accumulator, self.request_queue, settings, rng)
        self.transaction: Transaction | None = None
        if settings.transactional_id is not None:
            self.transaction = new_transaction(settings, self.sequences, self.request_queue, rng)
            self.transaction.when_moved = self._open_or_close
        self.metrics = ProducerMetrics()
        self.is_closed = False
        self._failure: ClientError | None = None
        self._rng = rng
        self._identity = ProducerIdentity(self.sequences, self.request_queue, settings, rng)
        self._in_flight = SentRequests(
            settings.in_flight_max,
            is_one_per_partition=settings.in_flight_max == 1 and not settings.is_idempotent,
        )
        self._settled: list[Batch] = []
        self._looked_at = Instant(0.0)
        self._open_or_close()

    # Called by the driver

    def requests(self, now: Instant) -> list[Outgoing]:
        """The requests to send now."""
        self._looked_at = now
        self._expire(now)
        if self.transaction is not None:
            if self.transaction.will_abort:
                self._fail_unsent(self.transaction)
        elif self.settings.is_idempotent:
            self._resolve_expired()
            self._identity.advance(now)
            if self._identity.error is not None:
                self.give_up(self._identity.error)
        while self._send_ready_batches(now):
            pass
        if self.transaction is not None:
            self.transaction.advance(now, is_drained=self.is_idle)
        self.topics.advance(now)
        return self.request_queue.take()

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self.request_queue.answered(now, ticket, answer)

    def deadline(self) -> Instant:
        """When `requests` must be called again, unless a response comes first."""
        wake_at = min(self.topics.deadline(), self._in_flight.unmuted_at(self._looked_at))
        if self.transaction is not None:
            wake_at = min(wake_at, self.transaction.deadline())
        elif self.settings.is_idempotent:
            wake_at = min(wake_at, self._identity.deadline())
        for queue in self.accumulator.busy:
            wake_at = min(wake_at, self._expires_at(queue.waiting[0]))
            ready_at = self._ready_at(queue)
            if ready_at > self._looked_at:  # else it waits for something other than time
                wake_at = min(wake_at, ready_at)
        for request in self._in_flight.all():
            for sent in request.batches.values():
                if not sent.batch.is_settled:
                    wake_at = min(wake_at, self._expires_at(sent.batch))
        return wake_at

    def take_settled(self) -> list[Batch]:
        """The batches that were settled since the last call; `call_listeners` of each is to be called."""
        settled, self._settled = self._settled, []
        return settled

    def take_events(self) -> list[Event]:
        return self.topics.take_events()

    @property
    def is_idle(self) -> bool:
        return not self.accumulator.busy and not self._in_flight

    def flush(self) -> Flush:
        """Closes all open batches; the flush is done when every batch until now is settled."""
        batches: list[Batch] = []
        for queue in self.accumulator.busy:
            queue.close()
            batches += queue.waiting
        for request in self._in_flight.all():
            batches += [sent.batch for sent in request.batches.values()]
        return Flush(batches)

    def close(self) -> None:
        """Rejects new records; those that were accepted are still delivered."""
        self.is_closed = True
        self._open_or_close()

    def fail(self, error: ClientError) -> None:
        """Rejects new records with this error: nobody sends requests any more."""
        self._failure = error
        self._open_or_close()

    def _open_or_close(self) -> None:
        is_in_turn = self.transaction is None or self.transaction.is_open
        self.accumulator.is_open = is_in_turn and not self.is_closed and self._failure is None

    def check_open(self) -> None:
        """Raises why records are rejected, if they are."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self.is_closed:
            raise ProducerClosed("this producer is closed")
        if self.transaction is not None:
            self.transaction.check_may_send()

    def give_up(self, error: ClientError) -> None:
        """Fails all batches that are not delivered yet; nothing more is sent."""
        for queue in list(self.accumulator.busy):
            while queue.waiting:
                self._settle(self.accumulator.take(queue), error)
        for request in self._in_flight.all():
            for sent in request.batches.values():
                if not sent.batch.is_settled:
                    self._settle(sent.batch, error)

    # Requests

    def _ready_at(self, queue: PartitionQueue) -> Instant:
        first: Batch = queue.waiting[0]
        is_ending = self.transaction is not None and self.transaction.is_ending
        if is_ending or first.is_closed or first.used >= first.ready_bytes:
            return Instant(first.retry_at)
        return Instant(first.created_at + self.settings.linger_s)

    def _send_ready_batches(self, now: Instant) -> bool:
        """Sends one request to each leader that can take one, with at most one batch per partition. Returns
        whether another call may send more.
        """
        by_leader: dict[int, dict[TopicPartition, SentBatch]] = {}
        bytes_by_leader: dict[int, int] = {}
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
            total = bytes_by_leader.get(leader, HEADER_BYTES) + first.used
            if leader in by_leader and total > self.settings.request_bytes_max:
                is_more_waiting = True
                continue
            if not self._in_flight.has_room(now, leader) or not self._is_in_turn(at, first):
                continue
            bytes_by_leader[leader] = total
            batch = self.accumulator.take(queue)
            queue.last_sent_at = now
            is_more_waiting |= bool(queue.waiting)
            if self.settings.is_idempotent:
                self.sequences.number(at, batch)
            sent = SentBatch(batch, batch.producer_id, batch.producer_epoch, batch.base_sequence)
            by_leader.setdefault(leader, {})[at] = sent
        for leader, batches in by_leader.items():
            self._send_request(now, leader, batches)
        return is_more_waiting and bool(by_leader)

    def _is_in_turn(self, at: TopicPartition, batch: Batch) -> bool:
        if self.settings.is_idempotent:
            if not self.sequences.may_leave(at, batch):
                return False
        elif not self._in_flight.may_write(at):
            return False
        return self.transaction is None or self.transaction.may_send(at)

    def _send_request(self, now: Instant, leader: int, batches: dict[TopicPartition, SentBatch]) -> None:
        produce, version_max = produce_request(self.settings, self.cluster, batches, self.metrics)
        if self.transaction is not None and self.transaction.produce_version_max is not None:
            version_max = self.transaction.produce_version_max
        request = SentRequest(leader, batches, now, self.cluster)
        self.metrics.requests += 1
        self._in_flight.add(request)
        self.request_queue.post(
            self.cluster.brokers[leader],
            produce,
            partial(self._handle_response, request),
            timeout_s=self.settings.request_timeout_s,
            version_max=version_max,
            expects_answer=self.settings.acks != 0,
        )

    # Responses

    def _handle_response(self, request: SentRequest, now: Instant, answer: Answer) -> None:
        self._in_flight.remove(request)
        if isinstance(answer, ClientError):
            for at, sent in request.batches.items():
                self.cluster.mark_stale(at.topic)
                if not isinstance(answer, Unreachable):  # else it was never sent
                    self._doubt(at, sent)
                self._retry_or_fail(now, at, sent.batch, answer)
        elif self.settings.acks == 0:
            for at, sent in request.batches.items():
                self._complete(at, sent, -1, -1)
        else:
            assert isinstance(answer, ProduceResponse)
            self.metrics.answered(Duration(now - request.began_at))
            self._read_response(now, request, answer)

    def _read_response(self, now: Instant, request: SentRequest, answer: ProduceResponse) -> None:
        if answer.throttle_time_ms > 0:
            self._in_flight.mute(request.broker, Instant(now + answer.throttle_time_ms / 1000))
        brokers = {node.node_id: Address(node.host, node.port) for node in answer.node_endpoints}
        unanswered = dict(request.batches)
        for topic in answer.responses:
            name = topic.name or request.names.get(topic.topic_id, "")
            for told in topic.partition_responses:
                at = TopicPartition(name, told.index)
                sent = unanswered.pop(at, None)
                if sent is not None:
                    self._handle_partition(now, at, sent, told, brokers)
        for at, sent in unanswered.items():
            self.cluster.mark_stale(at.topic)
            error = BadResponse(f"the broker's Produce response does not mention partition {at}")
            error.is_retriable = True
            self._doubt(at, sent)
            self._retry_or_fail(now, at, sent.batch, error)

    def _handle_partition(
        self,
        now: Instant,
        at: TopicPartition,
        sent: SentBatch,
        told: PartitionProduceResponse,
        brokers: dict[int, Address],
    ) -> None:
        batch = sent.batch
        order = self.sequences.of(at) if self.settings.is_idempotent else None
        if batch.is_settled:  # it expired; its sequence number is acknowledged all the same
            is_current = order is not None and sent[1:3] == order.producer
            if order is not None and is_current and told.error_code == 0:
                self.sequences.acknowledged(at, batch, told.base_offset)
            return
        outcome = outcome_of(
            told,
            batch,
            order,
            was_renumbered=sent.was_renumbered,
            is_transactional=self.transaction is not None,
            will_abort=self.transaction is not None and self.transaction.will_abort,
        )
        if outcome is Outcome.DELIVERED:
            self._complete(at, sent, told.base_offset, told.log_append_time_ms)
            return
        if outcome is Outcome.TOO_LARGE:
            self._split_batch(at, batch)
            return
        error = KafkaError(told.error_code, told.error_message, subject=f"partition {at}")
        knows_leader = False
        if error.is_metadata_stale:
            hint = told.current_leader
            knows_leader = hint is not None and self.cluster.hint(
                at, hint.leader_id, hint.leader_epoch, brokers
            )
            if not knows_leader:
                self.cluster.mark_stale(at.topic)
        if outcome is Outcome.RESTART:
            self._restart(at)
        elif told.error_code in MAYBE_WRITTEN:
            self._doubt(at, sent)
        error.is_retriable = outcome is not Outcome.REFUSED
        if outcome is Outcome.REFUSED and told.record_errors:
            self._fail_refused(at, batch, error, name_refused_records(batch, at, told, error))
            return
        self._retry_or_fail(now, at, batch, error)
        if knows_leader:
            batch.retry_at = now  # the response named the new leader: no backoff

    def _restart(self, at: TopicPartition) -> None:
        """Starts the partition's sequence over at 0: in a new epoch, or in a transaction in the same one."""
        if self.transaction is None:
            self._want_restart(at)
        else:
            self.sequences.of(at).restart(self.sequences.producer)

    def _want_restart(self, at: TopicPartition) -> None:
        """Batches that a broker may have written are given up: with other numbers the next leader, which may
        have them, would write them again.
        """
        self.sequences.want_restart(at)
        order = self.sequences.of(at)
        for batch in [batch for batch in order.tracked if batch in order.doubtful]:
            self._fail_doubtful(at, batch)

    def _doubt(self, at: TopicPartition, sent: SentBatch) -> None:
        """It is unknown whether a broker wrote the batch, as it was sent."""
        batch = sent.batch
        if batch.is_settled or not self.settings.is_idempotent or self.transaction is not None:
            return
        if sent.was_renumbered or self.sequences.will_restart(at):
            self._fail_doubtful(at, batch)
        else:
            self.sequences.of(at).doubtful.add(batch)

    def _fail_doubtful(self, at: TopicPartition, batch: Batch) -> None:
        queue = batch.queue
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            if not queue.waiting:
                del self.accumulator.busy[queue]
        said = (
            f"{batch.count} records for partition {at} were sent but not acknowledged, and the leader lacks"
            " records before them: sent again, they might be written twice"
        )
        self._settle(batch, RecordLost(said))

    def _complete(self, at: TopicPartition, sent: SentBatch, base_offset: int, append_time_ms: int) -> None:
        batch = sent.batch
        if batch.is_settled:
            return
        if sent.was_renumbered:
            # the broker took it under its old sequence number: the current one will never be used
            self.sequences.of(at).drop(batch)
            self._restart(at)
        elif self.settings.is_idempotent:
            self.sequences.acknowledged(at, batch, base_offset)
        self.accumulator.recycle(batch)
        batch.settle(base_offset, append_time_ms)
        self._finish(batch)

    def _retry_or_fail(self, now: Instant, at: TopicPartition, batch: Batch, error: ClientError) -> None:
        """After a batch was not acknowledged: queues it again, or fails it."""
        if batch.is_settled:
            return
        if not error.is_retriable:
            if isinstance(error, KafkaError):
                self._fail_refused(at, batch, error)
            else:
                self._fail_unknown(at, batch, error)
            return
        retry_at = Instant(now + self.settings.backoff(batch.attempts, self._rng))
        if batch.attempts >= self.settings.retries or retry_at >= self._expires_at(batch):
            lost = RecordLost(f"{batch.count} records for partition {at} were not delivered in time: {error}")
            lost.__cause__ = error
            self._fail_unknown(at, batch, lost)
            return
        batch.attempts += 1
        batch.retry_at = retry_at
        self.metrics.retries += 1
        self._put_back(at, batch)

    def _put_back(self, at: TopicPartition, batch: Batch) -> None:
        """Puts a batch back into its queue, behind those that precede it, and before all others."""
        waiting = batch.queue.waiting
        if self.settings.is_idempotent:
            tracked = self.sequences.of(at).tracked
            preceding = tracked[: tracked.index(batch)]
            place = sum(1 for each in waiting if each in preceding)
        else:
            place = sum(1 for each in waiting if each.attempts and each.created_at <= batch.created_at)
        self.accumulator.put_back(batch, place)

    def _split_batch(self, at: TopicPartition, batch: Batch) -> None:
        """Sends the batch in two halves; later batches of the partition are smaller, as the topic demands."""
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

    # Batches that failed

    def _fail_refused(
        self, at: TopicPartition, batch: Batch, error: ClientError, shown: ClientError | None = None
    ) -> None:
        """The broker did not write the batch: later batches must not wait for its sequence. `shown` replaces
        the error for who sent its records.
        """
        if batch.base_sequence != NO_SEQUENCE and self.transaction is None:
            self.sequences.of(at).doubtful.discard(batch)
            self._want_restart(at)
        self._fail(batch, error, shown)

    def _fail_unknown(self, at: TopicPartition, batch: Batch, error: ClientError) -> None:
        """The batch is not sent again, and it is unknown whether a broker wrote it."""
        if batch.base_sequence != NO_SEQUENCE:
            self.sequences.of(at).given_up(batch)
        self._fail(batch, error)

    def _fail_unsent(self, transaction: Transaction) -> None:
        """Of an aborting transaction; batches that were sent must be answered first (KIP-98)."""
        error = TransactionAborted("the transaction was aborted before this record was sent")
        error.__cause__ = transaction.error
        if transaction.is_fatal:
            self.give_up(error)
        for queue in list(self.accumulator.busy):
            while queue.waiting and queue.waiting[-1].base_sequence == NO_SEQUENCE:
                self._settle(self.accumulator.take_last(queue), error)

    def _fail(self, batch: Batch, error: ClientError, shown: ClientError | None = None) -> None:
        if self.transaction is not None:
            self.transaction.batch_failed(error)
        self._settle(batch, shown or error)

    def _settle(self, batch: Batch, error: ClientError) -> None:
        if batch.base_sequence != NO_SEQUENCE:
            self.sequences.of(TopicPartition(batch.queue.topic, batch.queue.partition)).drop(batch)
        batch.settle(error=error)
        self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        self.metrics.settled(batch)
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
                self._fail_unknown(
                    at,
                    batch,
                    self._timed_out(
                        f"{batch.count} records for partition {at} were not sent within delivery.timeout.ms"
                    ),
                )
        for request in self._in_flight.all():
            for at, sent in request.batches.items():
                batch = sent.batch
                if not batch.is_settled and self._expires_at(batch) <= now:
                    said = (
                        f"{batch.count} records for partition {at} were sent, but not acknowledged within"
                        " delivery.timeout.ms"
                    )
                    self._fail_unknown(at, batch, self._timed_out(said))

    def _timed_out(self, said: str) -> RecordLost:
        """The error, with its cause if no broker can be reached or metadata requests fail."""
        outage = self.reachability.outage
        cause = self.topics.error if outage is None else outage.error
        if cause is None:
            return RecordLost(said)
        lost = RecordLost(f"{said}: {outage or cause}")
        lost.__cause__ = cause
        lost.advice = f"{cause.advice} Then send the records again.".lstrip()
        return lost

    def _resolve_expired(self) -> None:
        """Where a batch expired, and all others are answered: decides by their sequences whether the broker
        wrote it.
        """
        for at in self.sequences.unresolved():
            order = self.sequences.of(at)
            if order.follows(order.next_sequence):
                order.unresolved = None
            else:
                self.sequences.want_restart(at)
