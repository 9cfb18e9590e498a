"""A stage for operations of an admin client: its session, its time, and two brokers' answers, by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headrace.base.time import Instant
from headrace.client.admin.operation import Operation
from headrace.client.admin.session import AdminSession
from headrace.client.cluster import Address
from headrace.client.network.connection import ByVersion
from headrace.client.pending import Pending
from headrace.client.request_queue import Answer, Outgoing
from headrace.client.settings.admin import AdminSettings
from headrace.protocol.api import APIS
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.notation import Request

T = TypeVar("T")

ONE, TWO = Address("one", 9092), Address("two", 9092)
BROKERS = {1: ONE, 2: TWO}


class AdminStage:
    def __init__(self, *, coordinator_version: int = 6, **settings: float) -> None:
        self.now = Instant(1000.0)
        self.session = AdminSession(AdminSettings(**settings), random.Random(5))
        self.leaders: dict[str, list[int]] = {"orders": [1, 2, 1]}
        self.coordinators: dict[str, int] = {}
        self.controller_id = 2
        self.coordinator_version = coordinator_version
        self.lookups: list[str] = []  # what was looked up, in words

    def begin(self, operation: Operation[T], timeout_s: float | None = None) -> Pending[T]:
        return self.session.run(self.now, operation, timeout_s)

    def sent(self) -> list[Outgoing]:
        """What leaves now, after the look-ups that it takes were answered."""
        leaving: list[Outgoing] = []
        while posted := self.session.requests(self.now):
            for outgoing in posted:
                answer = self._looked_up(outgoing)
                if answer is None:
                    leaving.append(outgoing)
                else:
                    self.answer(outgoing, answer)
        return leaving

    def told(self) -> list[tuple[Address | None, str]]:
        """The same as places and names of requests."""
        return [(outgoing.to, name_of(outgoing)) for outgoing in self.sent()]

    def answer(self, outgoing: Outgoing, answer: Answer) -> None:
        self.session.answered(self.now, outgoing.ticket, answer)

    def answer_all(self, replies: Callable[[Any], Answer]) -> None:
        for outgoing in self.sent():
            self.answer(outgoing, replies(outgoing.question))

    def pass_time(self, seconds: float) -> None:
        self.now = Instant(self.now + seconds)

    def pass_pause(self) -> None:
        """To the next moment at which the session wants to be asked."""
        deadline = self.session.deadline()
        assert deadline > self.now
        self.now = deadline

    def _looked_up(self, outgoing: Outgoing) -> Answer | None:
        question = outgoing.question
        if isinstance(question, MetadataRequest) and question.topics is not None:
            names = [topic.name or "" for topic in question.topics]
            self.lookups.append(f"topics {' '.join(names)}" if names else "brokers")
            return self.metadata(*names)
        if isinstance(question, ByVersion) and question.kind.__name__ == "FindCoordinatorRequest":
            request: Any = question.make(self.coordinator_version)
            keys = request.coordinator_keys or [request.key]
            self.lookups.append(f"coordinators {' '.join(keys)}")
            return self._found(keys)
        return None

    def _found(self, keys: list[str]) -> FindCoordinatorResponse:
        told = [_coordinator(key, self.coordinators.get(key)) for key in keys]
        if self.coordinator_version >= 4:
            return FindCoordinatorResponse(coordinators=told)
        (one,) = told
        return FindCoordinatorResponse(
            node_id=one.node_id, host=one.host, port=one.port, error_code=one.error_code
        )

    def metadata(self, *names: str) -> MetadataResponse:
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker, host=address.host, port=address.port)
                for broker, address in BROKERS.items()
            ],
            controller_id=self.controller_id,
            topics=[topic_of(name, self.leaders.get(name)) for name in names],
        )


def _coordinator(key: str, broker: int | None) -> Coordinator:
    if broker is None:
        return Coordinator(key=key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=broker, host=BROKERS[broker].host, port=BROKERS[broker].port)


def topic_of(name: str, leaders: list[int] | None) -> MetadataResponseTopic:
    if leaders is None:
        return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=leader, replica_nodes=[1, 2], isr_nodes=[1]
        )
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(name=name, topic_id=bytes(15) + b"\x07", partitions=partitions)


def request_of(outgoing: Outgoing) -> Request:
    question = outgoing.question
    if isinstance(question, ByVersion):
        last = APIS[question.kind.KEY].last
        return question.make(last if outgoing.version_max is None else min(last, outgoing.version_max))
    return question


def name_of(outgoing: Outgoing) -> str:
    return type(request_of(outgoing)).__name__.removesuffix("Request")


def partitions_asked(outgoing: Outgoing) -> Mapping[str, list[int]]:
    request: Any = request_of(outgoing)
    return {topic.name: [one.partition_index for one in topic.partitions] for topic in request.topics}
