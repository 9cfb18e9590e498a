"""A small cluster for tests: an image with brokers in it, and a way to make decisions come true."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Decision
from headrace.machines.metadata.image import ClusterImage, Endpoint
from headrace.machines.metadata.versions import encode
from headrace.protocol.metadata_records import decode_record

R = TypeVar("R")


class Cluster:
    def __init__(
        self, brokers: int = 1, *, directories: int = 1, static: dict[str, str] | None = None
    ) -> None:
        self.image = ClusterImage()
        self.dice = Random(7)
        self.end_offset = 0
        self.controller = ControllerDecisions(
            self.image, self.dice, static or {}, partitions=1, replication_factor=1
        )
        for broker in range(1, brokers + 1):
            self.start(broker, directories)

    def start(self, broker: int, directories: int = 1) -> int:
        registration = Registration(
            broker,
            self.dice.randbytes(16),
            {"PLAINTEXT": Endpoint("127.0.0.1", 9091 + broker, 0)},
            {"metadata.version": (7, 30)},
            None,
            [bytes([broker, number + 1]) * 8 for number in range(directories)],
        )
        return self.apply(self.controller.register_broker(registration, self.end_offset))

    def apply(self, decision: Decision[R]) -> R:
        """Replay the records as they come back from the log: encoded and decoded."""
        for record in decision.records:
            self.image.replay(decode_record(encode(record)))
        self.end_offset += len(decision.records)
        return decision.reply
