"""A small cluster for tests: an image with brokers in it, and a way to make decisions come true."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import TypeVar

from headrace.base.time import ManualClock
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.machines.metadata.controller.heartbeats import Heartbeat, HeartbeatReply
from headrace.machines.metadata.controller.sessions import BrokerSessions
from headrace.machines.metadata.image import ClusterImage, Endpoint, PartitionState
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT, SUPPORTED_FEATURES, encode
from headrace.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    decode_record,
)
from headrace.protocol.notation import Data

R = TypeVar("R")

SESSION_TIMEOUT_MS = 9_000


def directory(broker: int, number: int = 1) -> bytes:
    return bytes([broker, number]) * 8


class Cluster:
    """Brokers 1, 2, … that are registered and unfenced, as a controller in a process of its own sees them."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        directories: int = 1,
        static: dict[str, str] | None = None,
        racks: dict[int, str] | None = None,
        features: dict[str, int] | None = None,
    ) -> None:
        self.image = ClusterImage()
        self.rng = Random(7)
        self.clock = ManualClock()
        self.end_offset = 0
        self.log: list[Data] = []
        self.unclean: list[str] = []
        self.racks = racks or {}
        self.static = static or {}
        self.take_over()
        self.apply(self.controller.finalize_features(FINALIZED_AT_FORMAT if features is None else features))
        for broker in range(1, brokers + 1):
            self.start(broker, directories)

    def take_over(self) -> None:
        """A controller is elected, which knows nothing but the image."""
        self.controller = ControllerDecisions(
            self.image, self.rng, self.static, partitions=1, replication_factor=1
        )
        self.sessions = BrokerSessions(self.clock.now(), self.image, SESSION_TIMEOUT_MS, None)

    def registration(
        self, broker: int, directories: int = 1, *, is_clean: bool = True, incarnation: bytes | None = None
    ) -> Registration:
        known = self.image.brokers.get(broker)
        return Registration(
            broker,
            incarnation or self.rng.randbytes(16),
            {"PLAINTEXT": Endpoint("127.0.0.1", 9091 + broker, 0)},
            SUPPORTED_FEATURES,
            self.racks.get(broker),
            [directory(broker, number + 1) for number in range(directories)],
            known.epoch if known is not None and is_clean else -1,
        )

    def register(self, broker: int, directories: int = 1, *, is_clean: bool = True) -> int:
        """The broker has started, after its earlier run was seen to end. It is fenced."""
        self.fence(broker)
        registration = self.registration(broker, directories, is_clean=is_clean)
        return self.apply(self.controller.register_broker(registration, self.end_offset))

    def start(self, broker: int, directories: int = 1, *, is_clean: bool = True) -> int:
        epoch = self.register(broker, directories, is_clean=is_clean)
        self.beat(broker)
        return epoch

    def beat(
        self,
        broker: int,
        *,
        offset: int | None = None,
        wants_fence: bool = False,
        wants_shutdown: bool = False,
        offline: Collection[bytes] = (),
    ) -> HeartbeatReply:
        beat = Heartbeat(
            broker,
            self.image.brokers[broker].epoch,
            self.end_offset if offset is None else offset,
            wants_fence,
            wants_shutdown,
            list(offline),
        )
        return self.apply(self.controller.heartbeat(self.clock.now(), beat, self.sessions))

    def fence(self, *brokers: int) -> list[int]:
        return self.apply(self.controller.fence_brokers(brokers))

    def apply(self, decision: MetadataDecision[R]) -> R:
        """Replay the records as they come back from the log: encoded and decoded."""
        for record in decision.records:
            self.log.append(record)
            self.image.replay(decode_record(encode(record)))
        self.end_offset += len(decision.records)
        self.unclean += decision.unclean_elections
        return decision.reply

    # --- partitions as a test needs them -----------------------------------------------------------------

    def partition(self, topic: str = "t", index: int = 0) -> PartitionState:
        return self.image.topics[topic].partitions[index]

    def change(self, topic: str = "t", index: int = 0, **facts: object) -> PartitionState:
        """Write a record about a partition that no decision would write."""
        topic_id = self.image.topics[topic].id
        record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
        for name, value in facts.items():
            setattr(record, name, value)
        self.image.replay(record)
        return self.partition(topic, index)

    def mark_fenced(self, *brokers: int) -> None:
        """Fence brokers without a change of their partitions."""
        for broker in brokers:
            epoch = self.image.brokers[broker].epoch
            self.image.replay(BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=epoch, fenced=1))
