"""The blocking producer: `send` gathers, `flush` waits, and what could not be delivered is raised.

The decisions are `sender.Sender`'s; this shell carries its flights to the brokers and the answers back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headrace.base.time import NEVER, Instant
from headrace.client.batching import record_bytes
from headrace.client.client import Client
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, InvalidInput, KafkaError
from headrace.client.network import Call, clock
from headrace.client.partitioner import StickyTurns, partition_for_key
from headrace.client.record import Header
from headrace.client.refresher import Refresher
from headrace.client.sender import Delivered, Flight, Outcome, Sender, Undelivered
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.records.compression import CODEC_NAMES

BATCH_BYTES = 256 * 1024
BUFFER_BYTES = 32 * 1024 * 1024  # Kafka's buffer.memory default
REQUEST_TIMEOUT_MS = 30_000
RECORDS_BETWEEN_POLLS = 256  # how often `send` looks after the sockets when nothing forces it to


class Producer:
    """Writes records to topics; from one thread."""

    def __init__(
        self,
        client: Client,
        *,
        acks: int = -1,
        compression: str = "none",
        idempotent: bool = True,
        batch_bytes: int = BATCH_BYTES,
        linger_s: float = 0.005,
        delivery_s: float = 120.0,
        buffer_bytes: int = BUFFER_BYTES,
        create_topics: bool = True,
        on_delivered: Callable[[Delivered], None] | None = None,
    ) -> None:
        if compression not in CODEC_NAMES:
            raise InvalidInput(f"there is no codec {compression!r}; choose one of {', '.join(CODEC_NAMES)}")
        if acks not in (-1, 0, 1):
            raise InvalidInput("acks must be all (-1), 1 or 0")
        self.client = client
        self.delivered_records = 0
        self.end_offsets: dict[TopicPartition, int] = {}  # behind the last acknowledged record
        self._buffer_bytes = buffer_bytes
        self._create_topics = create_topics
        self._on_delivered = on_delivered
        self._wants_identity = (
            idempotent and acks == -1
        )  # what is not acknowledged by all cannot be idempotent
        self._sender = Sender(
            client.dice,
            acks=acks,
            codec=CODEC_NAMES[compression],
            batch_bytes=batch_bytes,
            linger_s=linger_s,
            delivery_s=delivery_s,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self._refresher = Refresher(client.cluster, client.dice)
        self._turns: dict[str, StickyTurns] = {}
        self._partitions: dict[str, list[TopicPartition]] = {}
        self._batch_bytes = batch_bytes
        self._since_poll = 0
        self._error: ClientError | None = None
        self._settled: list[tuple[Flight, Call]] = []
        self._refreshed: list[Call] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Takes a record to be sent soon; blocks while the buffer is full. Raises an earlier record's
        error.
        """
        size = record_bytes(key, value, headers)
        at = self._destination(topic, key, partition, size)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        self._sender.add(clock(), at, (timestamp_ms, key, value, headers), size)
        self._since_poll += 1
        if size > self._batch_bytes or self._since_poll >= RECORDS_BETWEEN_POLLS:
            self.poll()
        while self._sender.unfinished_bytes > self._buffer_bytes:
            self._turn(NEVER)

    def poll(self) -> None:
        """Sends what is ready and takes answers in, without waiting."""
        self._since_poll = 0
        self._turn(Instant(0.0))

    def flush(self) -> None:
        """Returns when every record is acknowledged; raises if one cannot be."""
        self._sender.wants_flush = True
        try:
            while not self._sender.is_idle:
                self._turn(NEVER)
        finally:
            self._sender.wants_flush = False
        self._raise_error()

    def _destination(self, topic: str, key: bytes | None, partition: int | None, size: int) -> TopicPartition:
        known = self._partitions.get(topic)
        if known is None:
            known = self._partitions[topic] = self._discover(topic)
        if partition is not None:
            if not 0 <= partition < len(known):
                raise InvalidInput(
                    f"topic {topic!r} has partitions 0 to {len(known) - 1}, and no {partition}"
                )
            return known[partition]
        if len(known) == 1:
            return known[0]
        if key is not None:
            return known[partition_for_key(key, len(known))]
        return known[self._turns[topic].partition_for(size, len(known))]

    def _discover(self, topic: str) -> list[TopicPartition]:
        if self._wants_identity:
            self._wants_identity = False
            self._identify()
        found = self.client.topic(topic, create=self._create_topics)
        self._turns[topic] = StickyTurns(self._batch_bytes)
        return [TopicPartition(topic, partition.index) for partition in found.partitions]

    def _identify(self) -> None:
        def check(answer: InitProducerIdResponse) -> None:
            if answer.error_code:
                raise KafkaError(answer.error_code, subject="a producer id")

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=REQUEST_TIMEOUT_MS)
        answer: InitProducerIdResponse = self.client.call(
            request, what="asking for a producer id", check=check
        )
        self._sender.identify(answer.producer_id, answer.producer_epoch)

    def _turn(self, until: Instant) -> None:
        """One round: send, wait for something to happen, judge it."""
        now = clock()
        cluster = self.client.cluster
        for flight in self._sender.departures(now, cluster):
            self._launch(flight)
        question = self._refresher.request(now)
        if question is not None:
            self.client.start(question, self._refreshed.append)
        wake_at = min(until, self._sender.deadline() if self._sender.deadline() > now else NEVER)
        wake_at = min(wake_at, self._refresher.deadline(), Instant(now + 1.0))
        if not self._settled:
            self.client.network.poll(wake_at)
        now = clock()
        while self._refreshed:
            call = self._refreshed.pop()
            self._refresher.settled(now, call.result, call.error)
        settled, self._settled = self._settled, []
        for flight, call in settled:
            if call.error is not None:
                self._judge(self._sender.failed(now, flight, call.error, cluster))
            else:
                self._judge(self._sender.answered(now, flight, call.result, cluster))
        self._judge(self._sender.expire(now))
        self._raise_error()

    def _launch(self, flight: Flight) -> None:
        self.client.network.submit(
            self.client.address(flight.broker),
            flight.request,
            timeout_s=REQUEST_TIMEOUT_MS / 1000 + 1,
            version_max=flight.version_max,
            expects_answer=self._sender.acks != 0,
            then=lambda call: self._settled.append((flight, call)),
        )

    def _judge(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            match outcome:
                case Delivered():
                    self.delivered_records += outcome.records
                    if outcome.base_offset >= 0:
                        self.end_offsets[outcome.at] = outcome.base_offset + outcome.records
                    if self._on_delivered is not None:
                        self._on_delivered(outcome)
                case Undelivered():
                    self._error = self._error or outcome.error

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
