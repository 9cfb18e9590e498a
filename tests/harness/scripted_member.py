"""One member of a group whose coordinator the test plays; lookups are answered by `ScriptedCluster`."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from harness.group_simulation import partitions
from headrace.base.time import Instant
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
from headrace.client.settings.consumer import GroupSettings
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.simulator.scripted_cluster import ScriptedCluster

TOPIC_ID = b"topic a's id...."
A0 = TopicPartition("a", 0)
BOTH = partitions("a", 0, 1)
R = TypeVar("R")


class ScriptedMember:
    def __init__(self, **settings: Any) -> None:
        self.group = Group(GroupSettings("g", **settings), Random(1))
        self.events: list[GroupEvent] = []
        self.cluster = ScriptedCluster(
            self.group, dict.fromkeys(BOTH, 1), coordinators={"g": 1}, after_turn=self._take_events
        )
        self.cluster.topic_ids = {"a": TOPIC_ID}

    def _take_events(self) -> None:
        self.events += self.group.take_events()

    @property
    def now(self) -> Instant:
        return self.cluster.now

    @property
    def searches(self) -> int:
        """For the coordinator."""
        return self.cluster.lookups.count("coordinators g")

    def next(self, kind: type[R], version: int | None = None) -> tuple[R, int]:
        """The next request of this kind and its ticket, as late as it may come."""
        request, outgoing = self.cluster.next(kind, version)
        return request, outgoing.ticket

    def answer(self, ticket: int, answer: Any) -> None:
        self.cluster.answer(ticket, answer)
        self.cluster.turn()

    def nothing_open(self) -> bool:
        """Whether the member waits for no answer."""
        self.cluster.turn()
        return not self.cluster.open

    def take(self) -> list[GroupEvent]:
        self.cluster.turn()
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


def failure(events: list[GroupEvent]) -> str:
    (error,) = (event.error for event in events if isinstance(event, Failed))
    assert isinstance(error, KafkaError)
    return error.name
