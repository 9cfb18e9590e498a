"""A client that sends a forbidden produce request again and again, byte for byte, on one connection.

The request has an invalid acks, or writes to a coordinator's topic. The node must refuse every repetition,
whatever it remembers of the connection.
"""

from typing import Any

from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch
from headrace.simulator.clients.simulated_client import SimulatedClient
from headrace.simulator.history import ForgeryAnswered
from headrace.simulator.host import Host

PRODUCE, VERSION = 0, 9
NO_SUCH_ACKS = 7
REPEATS = 3


class Forger(SimulatedClient):
    def __init__(self, host: Host, name: str, topics: list[str]) -> None:
        super().__init__(host, name)
        self._topics = topics  # to be written to, though nobody may
        self._count = 0
        self.is_stopping = False

    def connected(self) -> None:
        self._forge()

    def _forge(self) -> None:
        if self.wire is None or self.is_stopping:
            return
        self._count += 1
        topic = self.world.rng.choice(self._topics)
        acks = 1 if topic.startswith("__") else NO_SUCH_ACKS
        value = f"{self.name}:{self._count}:".encode()
        records = build_batch([(self.world.now().wall_ms, value, value, ())])
        for _ in range(REPEATS):
            data = PartitionProduceData(index=0, records=records)
            body = ProduceRequest(
                acks=acks,
                timeout_ms=1_000,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            )
            self.ask(PRODUCE, VERSION, body, topic)
        self.world.after(self.world.between(0.5, 2.0), self._forge)

    def promised(self, asked: Any, answer: Any, /) -> None:
        result = answer.responses[0].partition_responses[0]
        self.history.add(ForgeryAnswered(self.name, asked, result.error_code))

    def got(self, asked: Any, answer: Any) -> None:
        pass
