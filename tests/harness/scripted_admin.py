"""An admin client's session whose two brokers the test plays."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headrace.base.time import Instant
from headrace.client.admin.operation import Operation
from headrace.client.admin.session import AdminSession
from headrace.client.cluster import Address, TopicPartition
from headrace.client.session import Answer, Outgoing
from headrace.client.settings.network import AdminSettings
from headrace.client.steps import Pending
from headrace.simulator.scripted_cluster import ScriptedCluster, address_of, request_of

T = TypeVar("T")

ONE, TWO = address_of(1), address_of(2)


class ScriptedAdmin:
    def __init__(self, *, coordinator_version: int = 6, **settings: float) -> None:
        self.session = AdminSession(AdminSettings(**settings), random.Random(5))
        self.cluster = ScriptedCluster(
            self.session, {}, coordinators={}, coordinator_version=coordinator_version
        )
        self.cluster.topic_ids = {"orders": bytes(15) + b"\x07"}
        self.place("orders", 1, 2, 1)

    @property
    def now(self) -> Instant:
        return self.cluster.now

    def place(self, topic: str, *leaders: int) -> None:
        """The topic has these leaders from now on."""
        for index, leader in enumerate(leaders):
            self.cluster.leaders[TopicPartition(topic, index)] = leader

    def begin(self, operation: Operation[T], timeout_s: float | None = None) -> Pending[T]:
        return self.session.run(self.now, operation, timeout_s)

    def sent(self) -> list[Outgoing]:
        """What leaves now, after the lookups that it takes were answered."""
        return self.cluster.turn()

    def told(self) -> list[tuple[Address | None, str]]:
        """The same as addresses and names of requests."""
        return [(outgoing.to, name_of(outgoing)) for outgoing in self.sent()]

    def answer(self, outgoing: Outgoing, answer: Answer) -> None:
        self.cluster.answer(outgoing.ticket, answer)

    def answer_all(self, replies: Callable[[Any], Answer]) -> None:
        for outgoing in self.sent():
            self.answer(outgoing, replies(outgoing.question))

    def pass_time(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    def pass_pause(self) -> None:
        """To the next moment at which the session wants to be asked."""
        deadline = self.session.deadline()
        assert deadline > self.now
        self.cluster.now = deadline


def name_of(outgoing: Outgoing) -> str:
    return type(request_of(outgoing)).__name__.removesuffix("Request")


def partitions_asked(outgoing: Outgoing) -> Mapping[str, list[int]]:
    request = request_of(outgoing)
    return {topic.name: [one.partition_index for one in topic.partitions] for topic in request.topics}
