"""The coordinator of groups: `__consumer_offsets` and its shards, told of what happens to topics."""

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.machines.groups.settings import GroupSettings
from headrace.machines.metadata.image import GROUP_RESOURCE
from headrace.node.authorization import Operation, Resource
from headrace.node.coordinators.coordinator import Coordinator, segment_bytes, take_over
from headrace.node.coordinators.member_memory import MemberMemory
from headrace.node.coordinators.shard import Shard
from headrace.node.coordinators.topics import ImageTopics
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.coordinator_records import GROUP_RECORDS
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups
    from headrace.node.node import Node

TOPIC = "__consumer_offsets"
# What a shard knows of the broker's settings has the same names there and here.
SETTINGS = tuple(field.name for field in fields(GroupSettings) if field.name != "overrides")


class GroupCoordinator(Coordinator):
    def __init__(self, node: "Node") -> None:
        super().__init__(node, TOPIC, GROUP_RECORDS, self._machine, self._nothing)
        self.topics = ImageTopics(node.metadata.image)
        self._settings = group_settings(node)
        self.member_memory = MemberMemory(self)

    def members_bytes(self) -> int:
        """Bytes that the members of all groups here take."""
        from headrace.machines.groups.memory import shard_members_bytes

        return sum(shard_members_bytes(shard.machine) for shard in self.loaded_shards())

    def _machine(self, partition: Partition) -> "Groups":
        # a broker without groups starts without loading what they need
        from headrace.machines.groups.groups import Groups

        return Groups(self._settings, self.topics, self._node.dice)

    def _nothing(self, now: Now, shard: Shard, effect: Any) -> None:
        raise AssertionError(f"groups ask for no {effect}")

    def asked(self, request: Request, operation: Operation, group_id: str) -> Shard | ErrorCode:
        """The loaded shard of a group, if whoever asks may do this with the group; else why not."""
        if not self._node.allows(request, operation, Resource.GROUP, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return self.shard_of(request.now, group_id)

    def configured(self) -> None:
        """The broker's or a group's settings changed. All shards share one object, changed in place."""
        take_over(self._settings, group_settings(self._node))

    def create_topic(self, now: Now) -> None:
        settings = self._node.settings
        self.ensure_topic(
            now,
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": segment_bytes(settings.offsets_topic_segment_bytes),
            },
        )

    def marker_appended(self, partition: Partition, producer_id: int, is_commit: bool) -> None:
        """A transaction ended; if it was in our topic, the offsets committed inside of it count now, or
        never.
        """
        if partition.topic == TOPIC:
            shard = self.at(partition.index)
            if shard is not None:
                shard.replay_end(producer_id, is_commit)

    def topics_changed(self, now: Now, removed: Sequence[str]) -> None:
        """Topics came, grew or went, and that is committed. Members hear of it with their next heartbeat."""
        self.topics.changed()
        if not removed:
            return
        for shard in self.loaded_shards():
            for decision in shard.machine.forget_topics(now, removed):
                if not shard.carry_out(now, decision):
                    break


def group_settings(node: "Node") -> GroupSettings:
    settings = node.settings
    return GroupSettings(
        **{name: getattr(settings, name) for name in SETTINGS},
        overrides={
            name: dict(values)
            for (resource, name), values in node.metadata.image.configs.items()
            if resource == GROUP_RESOURCE
        },
    )
