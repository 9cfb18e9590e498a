"""Producer: sends batches of values with its name and a number, and repeats them until they are answered.

With idempotence it has up to five requests in flight, and sends all of them again, in order and with their
sequences, when the connection breaks or one of them fails. Without idempotence it has one, and may write
duplicates.
"""

from dataclasses import dataclass
from typing import Any

from headrace.base.limits import OPENED_INLINE_BYTES_MAX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records._codec import Headers
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.simulator.clients.simulated_client import SimulatedClient
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import BatchAcked, BatchRefused, BatchSent, PartitionKey, ProducerIdGiven
from headrace.simulator.host import Host

PRODUCE, INIT_PRODUCER_ID = 0, 22
IN_FLIGHT_MAX = 5
TIMEOUT_MS = 4_000

# Small batches that are large when they are opened: the node has a job do that, and others wait meanwhile.
PADDING: Headers = (("padding", bytes(OPENED_INLINE_BYTES_MAX)),)
SHRINKING = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
LZ4_VALUES_MAX = 3  # with one more they are larger than the smallest segment, 2,000 bytes

# The node no longer knows what came before: the producer takes a new identity and gives up what is under way.
FORGOTTEN: dict[int, str] = {
    code: code.name
    for code in (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
}

# The clock was set back by more than a timestamp may differ; or a batch is larger than a segment, as it was
# sent or as the topic's codec makes it.
REFUSED_FOR_GOOD = (ErrorCode.INVALID_TIMESTAMP, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(slots=True, eq=False)
class Batch:
    topic: Topic
    partition: PartitionKey
    values: tuple[bytes, ...]
    data: bytes


class Producer(SimulatedClient):
    def __init__(self, host: Host, name: str, topics: list[Topic], *, acks: int, is_idempotent: bool):
        super().__init__(host, name)
        self._topics = topics
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._producer_id, self._producer_epoch = -1, -1
        self._sequences: dict[PartitionKey, int] = {}
        self._known_at: set[PartitionKey] = set()  # partitions that have answered this identity
        self._in_flight: list[Batch] = []  # sent or to be sent again, oldest first
        self._is_asking_id = False
        self._is_ticking = False
        self._count = 0
        self._identity = 1  # what an earlier one left on the way has no order with this one's
        self.pauses = (0.05, 0.6)  # between batches
        self.is_stopping = False  # sends nothing new any more

    @property
    def is_idle(self) -> bool:
        return not self._in_flight

    # --- the connection ---------------------------------------------------------------------------

    def connected(self) -> None:
        if self._is_idempotent and self._producer_id < 0:
            self._is_asking_id = True
            self.ask(
                INIT_PRODUCER_ID,
                4,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
                None,
            )
            return
        self._send_all_again()

    def disconnected(self) -> None:
        self._is_asking_id = False
        if self._acks == 0:
            self._in_flight.clear()

    def _send_all_again(self) -> None:
        for batch in self._in_flight:
            self._send(batch)
        if not self._is_ticking:
            self._is_ticking = True
            self.world.after(self.world.between(*self.pauses), self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        if self.wire is None or self._is_asking_id:
            return
        room = (IN_FLIGHT_MAX if self._is_idempotent else 1) - len(self._in_flight)
        if room > 0 and not self.is_stopping:
            for _ in range(self.world.rng.randint(1, room)):
                self._send_new()
        self._is_ticking = True
        self.world.after(self.world.between(*self.pauses), self._tick)

    # --- batches ----------------------------------------------------------------------------------

    def _send_new(self) -> None:
        topics = [topic for topic in self._topics if topic.is_there]
        if not topics or self.wire is None:
            return
        rng = self.world.rng
        topic = rng.choice(topics)
        partition = rng.choice(topic.keys)
        if partition not in self._known_at and any(one.partition == partition for one in self._in_flight):
            # of a producer that a partition does not know, it takes any sequence for the first: as in Kafka,
            # only an answer makes sure that no earlier batch failed alone
            return
        values = []
        for _ in range(rng.randint(1, 4)):
            self._count += 1
            values.append(f"{self.name}.{self._identity}:{self._count}:".encode() + b"." * rng.randrange(80))
        codec = rng.choice((0, 0, 0, 1, 2, 3, 4))
        padding: Headers = ()
        if topic.opens_batches and rng.randrange(2):
            codec, padding = rng.choice(SHRINKING), PADDING
            if codec == Codec.LZ4 and len(values) > LZ4_VALUES_MAX:
                codec = Codec.GZIP
        wall_ms = self.world.now().wall_ms
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        data = build_batch(
            [(wall_ms, value if topic.has_keys else None, value, padding) for value in values],
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence if self._is_idempotent else -1,
        )
        batch = Batch(topic, partition, tuple(values), data)
        self.history.add(BatchSent(self.name, partition, batch.values, self._acks, self._is_idempotent))
        if self._acks:
            self._in_flight.append(batch)
        self._send(batch)

    def _send(self, batch: Batch) -> None:
        if self.wire is None:
            return
        version = 13 if self._count % 2 or batch.topic.has_namesakes else 9
        data = PartitionProduceData(index=batch.partition.number, records=batch.data)
        topic = TopicProduceData(name=batch.topic.name, topic_id=batch.topic.topic_id, partition_data=[data])
        body = ProduceRequest(acks=self._acks, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        self.ask(PRODUCE, version, body, batch, is_answered=self._acks != 0)

    # --- answers ----------------------------------------------------------------------------------

    def promised(self, asked: Any, answer: Any, /) -> None:
        if asked is None:
            if answer.error_code == ErrorCode.NONE:
                self.history.add(ProducerIdGiven(self.name, answer.producer_id))
            return
        result = answer.responses[0].partition_responses[0]
        if result.error_code == ErrorCode.NONE:
            is_known = not asked.topic.is_doomed  # else another may lie under its name
            durable_end = self.host.durable_end(asked.partition) if is_known else -1
            self.history.add(
                BatchAcked(
                    self.name, asked.partition, asked.values, result.base_offset, self._acks, durable_end
                )
            )

    def got(self, asked: Any, answer: Any) -> None:
        if asked is None:
            self._got_id(answer)
            return
        if asked not in self._in_flight:
            return  # given up meanwhile
        result = answer.responses[0].partition_responses[0]
        code: int = result.error_code
        if code == ErrorCode.NONE:
            self._in_flight.remove(asked)
            self._known_at.add(asked.partition)
        elif asked.topic.is_doomed:
            self._in_flight = [batch for batch in self._in_flight if batch.topic is not asked.topic]
        elif code in FORGOTTEN and self._is_oldest(asked):
            self.history.add(BatchRefused(self.name, asked.partition, FORGOTTEN[code]))
            self._start_over()
        elif code in REFUSED_FOR_GOOD:
            self._start_over()
        else:
            self.hang_up()

    def _got_id(self, answer: Any) -> None:
        self._is_asking_id = False
        if answer.error_code == ErrorCode.NONE:
            self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
            self._send_all_again()
        else:
            self.hang_up()

    def _is_oldest(self, batch: Batch) -> bool:
        return next(one for one in self._in_flight if one.partition == batch.partition) is batch

    def _start_over(self) -> None:
        self._in_flight.clear()
        self._sequences.clear()
        self._known_at.clear()
        self._producer_id = -1
        self._identity += 1
        self.hang_up()
