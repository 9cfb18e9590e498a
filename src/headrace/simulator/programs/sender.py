"""Program that sends numbered records as fast as its buffer allows, and checks the result of each."""

from typing import Any

from headrace.base.randomness import Randomness
from headrace.client.errors import ClientError
from headrace.client.producer._accumulator import partition_for_key
from headrace.client.producer._batch import Delivery
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.rejections import RecordRejected, error_of
from headrace.records.builder import build_batch
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import BatchAcked, BatchSent, DeliverySettled, PartitionKey
from headrace.simulator.nodes import Nodes
from headrace.simulator.programs.program import Program
from headrace.simulator.programs.shell import Driven
from headrace.simulator.programs.writing import call_listeners, new_core

# Large enough to be written in pieces, each of which takes the broker a turn.
LARGE_BYTES_MIN = 1_100_000
LARGE_SETTINGS: dict[str, Any] = {
    "compression.type": "none",
    "batch.size": 1_000,
    "headrace.batch.size.max": 1_000,  # a record of its own is a batch
    "max.request.size": 4_000_000,
    "buffer.memory": 8_000_000,
}


def dots(rng: Randomness) -> bytes:
    return b"." * rng.randrange(80)


def whole_batches(rng: Randomness) -> bytes:
    """Batches as a log has them, whose offsets may be those of the log: of a batch that is not written whole
    none of its record's bytes may count.
    """
    offset = rng.randrange(40)
    count = 1 + rng.randrange(3)
    one = b"".join(
        build_batch([(0, None, b"inside %d" % number, ())], base_offset=offset + number, leader_epoch=1)
        for number in range(count)
    )
    return one * ((LARGE_BYTES_MIN + rng.randrange(LARGE_BYTES_MIN)) // len(one))


class Sender(Program):
    def __init__(
        self,
        host: Nodes,
        name: str,
        topic: Topic,
        *,
        acks: int,
        is_idempotent: bool,
        is_large: bool = False,
    ) -> None:
        # what was given up and comes late is out of order, and only idempotence knows it again
        super().__init__(host, name, leaves_ghosts=is_idempotent)
        self._topic = topic
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._is_large = is_large  # some large records, with whole batches inside
        self._count = 0
        self._unsettled: set[bytes] = set()
        self._durable_ends: dict[PartitionKey, int] = {}  # in this turn
        self.is_stopping = False  # sends nothing new any more
        self._core: ProducerCore

    @property
    def is_idle(self) -> bool:
        """Everything is told, and nothing is kept."""
        core = self._core
        return not self._unsettled and not core.accumulator.buffered_bytes and core.sender.is_idle

    def sessions(self) -> list[Driven]:
        settings: dict[str, Any] = {"acks": str(self._acks), "enable.idempotence": self._is_idempotent}
        if not self._is_idempotent:
            settings["max.in.flight.requests.per.connection"] = 1
        if self._is_large:
            settings |= LARGE_SETTINGS
        self._unsettled.clear()
        self._core = new_core(self.world, **settings)
        return [self._core.sender]

    def step(self) -> None:
        rng = self.world.rng
        if self.is_stopping or self.world.chance(0.1):
            self._core.sender.flush()
        if self.is_stopping:
            return
        if self._is_large and self.world.chance(0.7):
            return
        for _ in range(rng.randint(0, 2 if self._is_large else 6)):
            number = rng.randrange(self._topic.partitions)
            key = None
            if rng.randrange(2):
                key = b"%d" % rng.randrange(100)
                number = partition_for_key(key, self._topic.partitions)
            if not self._send(self._topic.keys[number], key):
                return

    def _send(self, partition: PartitionKey, key: bytes | None) -> bool:
        """Whether it was taken; if not, a later step tries again."""
        rng = self.world.rng
        rest = whole_batches(rng) if self._is_large and self.world.chance(0.5) else dots(rng)
        value = f"{self.name}.{self.life}:{self._count + 1}:".encode() + rest
        accumulator, topics = self._core.accumulator, self._core.sender.topics
        chosen = -1 if key is not None else partition.number
        wall_ms = self.world.now().wall_ms
        try:
            delivery = accumulator.append(self.now, partition.topic, key, value, (), chosen, wall_ms)
        except RecordRejected as reason:
            error = error_of(reason, partition.topic, topics, is_late=False)
            if error is not None:
                raise error from reason
            return False
        self._count += 1
        self._unsettled.add(value)
        self.holds("buffer.memory", accumulator.buffered_bytes, accumulator.buffer_bytes)
        self.history.add(BatchSent(self.name, partition, (value,), self._acks, self._is_idempotent))
        delivery.when_done(lambda done: self._settled(partition, value, done))
        return True

    def heard(self) -> None:
        self._durable_ends.clear()
        call_listeners(self._core)

    def _settled(self, partition: PartitionKey, value: bytes, done: Delivery) -> None:
        self._unsettled.discard(value)
        try:
            result = done.result()
        except ClientError as error:
            self.history.add(DeliverySettled(self.name, value, str(error)))
            return
        self.history.add(DeliverySettled(self.name, value, ""))
        assert result.partition == partition.number
        if result.offset >= 0:
            end = self._durable_end(partition)
            self.history.add(BatchAcked(self.name, partition, (value,), result.offset, self._acks, end))

    def _durable_end(self, partition: PartitionKey) -> int:
        if partition not in self._durable_ends:
            self._durable_ends[partition] = self.host.durable_end(partition)
        return self._durable_ends[partition]
