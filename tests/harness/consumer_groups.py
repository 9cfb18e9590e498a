"""A shard of consumer groups with its judges, and consumers that obey it.

After every decision the coordinator is judged: what the log says, whole or compacted, rebuilds the same
state; no partition is held by two members, and the groups' invariants hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.group_shard import FakeTopics, GroupShard, Place
from headrace.machines.coordination import Caller, Decision
from headrace.machines.groups.classic.requests import Join, Joined, Leaving, Left, Sync, Synced
from headrace.machines.groups.consumer import ConsumerGroup
from headrace.machines.groups.groups import Groups
from headrace.machines.groups.settings import GroupSettings
from headrace.node.handlers import consumer_group_heartbeat
from headrace.protocol.coordinator_records import GROUP_RECORDS, Record, decode, encode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from headrace.protocol.versioned import decode_versioned, encode_versioned

GROUP = "readers"
APP = Caller("app", "/10.0.0.1")


class Coordinator:
    """A shard of groups that is judged after every decision."""

    def __init__(self, topics: FakeTopics, **settings: Any) -> None:
        # Targets follow every change at once, so that a story need not wait between its sentences.
        self.settings = GroupSettings(**{"group_consumer_assignment_interval_ms": 0} | settings)
        self.topics = topics
        self.log: list[Record] = []
        self.shard = GroupShard(self.settings, topics, after_records=self._judge)
        self.clock = self.shard.clock
        self.answers = self.shard.answers

    @property
    def groups(self) -> Groups:
        return self.shard.machine

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def settle(self, decision: Decision) -> Any:
        return self.shard.apply(decision)

    def _judge(self, groups: Groups, records: list[Record]) -> None:
        for record in records:
            assert decode(GROUP_RECORDS, *encode(record)) == record, "records survive the log"
        self.log += records
        assert self.rebuilt(self.log).state() == groups.state()
        assert self.rebuilt(compacted(self.log)).state() == groups.state()

    def rebuilt(self, log: list[Record]) -> Groups:
        groups = self.shard.new_machine()
        for record in log:
            groups.replay(record)
        return groups

    def restart(self) -> None:
        """Another coordinator takes over with the log."""
        self.shard.machine = self.rebuilt(compacted(self.log))
        self.settle(self.groups.loaded(self.clock.now()))

    def pass_time(self, seconds: float) -> None:
        self.shard.advance(seconds * 1000)

    def heartbeat(
        self, *, version: int = 1, caller: Caller = APP, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        return consumer_group_heartbeat.respond(
            self.settle(self.decide(version=version, caller=caller, **fields))
        )

    def decide(self, *, version: int = 1, caller: Caller = APP, **fields: Any) -> Decision:
        request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP} | fields)
        value = consumer_group_heartbeat.asked(request, version)
        return self.groups.consumer_heartbeat(self.clock.now(), value, caller)


def compacted(log: list[Record]) -> list[Record]:
    """The last record of every key, tombstones kept for once."""
    last = {encode(record)[0]: position for position, record in enumerate(log)}
    return [log[position] for position in sorted(last.values())]


class Consumer:
    """Speaks the consumer protocol, as clients do: gives up first, says so, and takes what it is given."""

    def __init__(
        self,
        coordinator: Coordinator,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.member_id = member_id
        self.topics = list(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.owned: set[Place] = set()
        self.error = ErrorCode.NONE
        self._has_news = True  # what it owns or wants has changed since it last said so

    @property
    def partitions(self) -> list[int]:
        return sorted(number for _, number in self.owned)

    def subscribe(self, *topics: str) -> None:
        self.topics = list(topics)
        self._has_news = True

    def beat(self, *, is_answer_lost: bool = False) -> ConsumerGroupHeartbeatResponse:
        fields: dict[str, Any] = {}
        if self._has_news or self.epoch == 0:
            fields["rebalance_timeout_ms"] = 30_000
            fields["subscribed_topic_names"] = self.topics
            fields["subscribed_topic_regex"] = self.regex
            fields["server_assignor"] = self.assignor
            fields["topic_partitions"] = self._told_owned()
        response = self.coordinator.heartbeat(
            member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id, **fields
        )
        if is_answer_lost:
            self._has_news = True
            return response
        self._has_news = False
        self.error = ErrorCode(response.error_code)
        if self.error:
            self.owned.clear()
            self.epoch = 0
        else:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self._take(response)
        return response

    def settle(self, beats: int = 4) -> Consumer:
        for _ in range(beats):
            self.beat()
        return self

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        self.owned.clear()
        self.epoch = 0
        self._has_news = True
        return self.coordinator.heartbeat(
            member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    def _told_owned(self) -> list[TopicPartitions]:
        topics: dict[bytes, list[int]] = {}
        for topic, number in sorted(self.owned):
            topics.setdefault(topic, []).append(number)
        return [TopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in topics.items()]

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        assert response.assignment is not None
        assigned = {
            (topic.topic_id, number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        }
        if assigned != self.owned:
            self._has_news = True
        self.owned = assigned


class ClassicConsumer:
    """Speaks the classic protocol with cooperative rebalancing, as it goes on inside a consumer group.

    It never leads: whoever tells it to, of its own group, is the test.
    """

    def __init__(
        self, coordinator: Coordinator, *topics: str, member_id: str = "", instance_id: str | None = None
    ) -> None:
        self.coordinator = coordinator
        self.topics = list(topics)
        self.member_id = member_id
        self.instance_id = instance_id
        self.generation = -1
        self.owned: set[tuple[bytes, str, int]] = set()  # topic id, topic, partition
        self.is_rejoining = True

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(topic, number) for _, topic, number in self.owned}

    def join(self, ticket: Any = None) -> Joined | None:
        """None: the answer comes later, through the ticket."""
        owned: dict[str, list[int]] = {}
        for _, topic, number in sorted(self.owned):
            owned.setdefault(topic, []).append(number)
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[TopicPartition(topic=name, partitions=own) for name, own in owned.items()],
            generation_id=self.generation,
        )
        request = Join(
            GROUP,
            self.member_id,
            self.instance_id,
            "consumer",
            (("cooperative-sticky", encode_versioned(subscription, 3)),),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            joins_twice=True,
            can_skip_assignment=True,
        )
        now, caller = self.coordinator.clock.now(), Caller("old", "/10.0.0.2")
        groups = self.coordinator.groups
        response = self.coordinator.settle(groups.join(now, request, caller, ticket))
        if response is not None and response.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return self.join(ticket)
        if response is not None:
            self.joined(response)
        return response

    def joined(self, response: Joined) -> None:
        assert response.error is ErrorCode.NONE
        self.member_id, self.generation = response.member_id, response.generation
        self.is_rejoining = False

    def sync(self, ticket: Any = None, assignments: Mapping[str, bytes] | None = None) -> Synced | None:
        request = Sync(
            GROUP,
            self.generation,
            self.member_id,
            self.instance_id,
            "consumer",
            "cooperative-sticky",
            assignments or {},
        )
        now = self.coordinator.clock.now()
        response = self.coordinator.settle(self.coordinator.groups.sync(now, request, ticket))
        if response is not None:
            self.synced(response)
        return response

    def synced(self, response: Synced) -> None:
        if response.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_rejoining = True
            return
        assert response.error is ErrorCode.NONE
        assignment = decode_versioned(ConsumerProtocolAssignment, response.assignment)
        id_of = self.coordinator.topics.id_of
        assigned = {
            (id_of(topic.topic) or b"", topic.topic, number)
            for topic in assignment.assigned_partitions
            for number in topic.partitions
        }
        # Cooperative members join again as soon as they have given something up.
        self.is_rejoining = not self.owned <= assigned
        self.owned = assigned

    def beat(self) -> ErrorCode:
        now, groups = self.coordinator.clock.now(), self.coordinator.groups
        error: ErrorCode = self.coordinator.settle(
            groups.heartbeat(now, GROUP, self.generation, self.member_id, self.instance_id)
        )
        self.is_rejoining = bool(error)
        if error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.owned.clear()
            self.generation = -1
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""  # it was removed, and joins as somebody new
        return error

    def settle(self, beats: int = 4) -> ClassicConsumer:
        for _ in range(beats):
            if self.is_rejoining:
                self.join()
                self.sync()
            else:
                self.beat()
        return self

    def leave(self) -> Left:
        self.owned.clear()
        now, leaving = self.coordinator.clock.now(), [Leaving(self.member_id, self.instance_id)]
        left: Left = self.coordinator.settle(self.coordinator.groups.leave(now, GROUP, leaving))
        return left
