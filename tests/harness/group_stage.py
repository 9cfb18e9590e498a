"""One member of a group on a stage: the coordinator is the test itself, which answers what it wants to."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from harness.group_members import partitions
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import TopicPartition
from headrace.client.errors import KafkaError
from headrace.client.membership.classic_protocol import write_assignment
from headrace.client.membership.events import (
    Assigned,
    Failed,
    GroupEvent,
)
from headrace.client.membership.group import Group
from headrace.client.membership.subscription import Subscription
from headrace.client.network.connection import ByVersion
from headrace.client.request_queue import Outgoing
from headrace.client.settings.consumer import GroupSettings
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

TOPIC_ID = b"topic a's id...."
A0 = TopicPartition("a", 0)
BOTH = partitions("a", 0, 1)
R = TypeVar("R")


class Stage:
    """One member; coordinators are found and topics described by themselves, the rest the test answers."""

    def __init__(self, **settings: Any) -> None:
        self.now = Instant(0.0)
        self.group = Group(GroupSettings("g", **settings), Random(1))
        self.searches = 0  # for the coordinator
        self.events: list[GroupEvent] = []
        self._open: list[Outgoing] = []

    def next(self, kind: type[R], version: int = 99) -> tuple[R, int]:
        """The next request of this kind and its ticket, as late as it may come."""
        for _ in range(50):
            self._turn()
            for outgoing in self._open:
                question = outgoing.question
                asked = question.kind if isinstance(question, ByVersion) else type(question)
                if asked is kind:
                    self._open.remove(outgoing)
                    made = question.make(version) if isinstance(question, ByVersion) else question
                    return made, outgoing.ticket  # type: ignore[return-value]
            assert self.group.deadline() < NEVER, "nothing more comes by itself"
            self.now = max(self.now, self.group.deadline())
        raise AssertionError(f"no {kind.__name__} comes, only {self._open}")

    def _turn(self) -> None:
        for outgoing in self.group.requests(self.now):
            question = outgoing.question
            if isinstance(question, ByVersion) and question.kind is FindCoordinatorRequest:
                self.searches += 1
                told = Coordinator(key="g", node_id=1, host="h", port=9092)
                self.group.answered(self.now, outgoing.ticket, FindCoordinatorResponse(coordinators=[told]))
            elif isinstance(question, MetadataRequest):
                self.group.answered(self.now, outgoing.ticket, description())
            else:
                self._open.append(outgoing)
        self.events += self.group.take_events()

    def answer(self, ticket: int, answer: Any) -> None:
        self.group.answered(self.now, ticket, answer)
        self._turn()

    def nothing_open(self) -> bool:
        """Whether the member waits for no answer."""
        self._turn()
        return not self._open

    def take(self) -> list[GroupEvent]:
        self._turn()
        events, self.events = self.events, []
        return events

    # --- the classic protocol -------------------------------------------------------------------------------

    def subscribed(self) -> tuple[JoinGroupRequest, int]:
        self.group.subscribe(self.now, Subscription(frozenset({"a"})))
        return self.next(JoinGroupRequest)

    def entered(self, ticket: int, generation: int = 1) -> tuple[SyncGroupRequest, int]:
        """JoinGroup succeeds, and another member leads."""
        self.answer(
            ticket,
            JoinGroupResponse(
                generation_id=generation, protocol_name="range", leader="other", member_id="me"
            ),
        )
        return self.next(SyncGroupRequest)

    def settled(self) -> None:
        _, ticket = self.subscribed()
        _, ticket = self.entered(ticket)
        self.answer(ticket, SyncGroupResponse(assignment=write_assignment(BOTH)))
        assert self.take() == [Assigned(BOTH)]


def description() -> MetadataResponse:
    indexes = [MetadataResponsePartition(partition_index=index) for index in range(2)]
    return MetadataResponse(topics=[MetadataResponseTopic(name="a", topic_id=TOPIC_ID, partitions=indexes)])


def failure(events: list[GroupEvent]) -> str:
    (error,) = (event.error for event in events if isinstance(event, Failed))
    assert isinstance(error, KafkaError)
    return error.name
