"""The group coordinator: `__consumer_offsets` and its shards, changes of topics, and the memory of
members.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.ids import TopicId
from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.machines.configs.values import parse_list
from headrace.machines.coordination import Decision
from headrace.machines.groups.settings import GroupSettings
from headrace.machines.metadata.image import GROUP_RESOURCE, ClusterImage
from headrace.node.authorization import Access, Resource
from headrace.node.coordinators.coordinator import Coordinator, Keys, segment_bytes, take_over
from headrace.node.coordinators.loader import PAUSE_SECONDS
from headrace.node.coordinators.shard import Shard
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Once, Ports
from headrace.node.settings import LiveSettings, Settings
from headrace.node.topic_creation import TopicCreation, TopicCreations
from headrace.protocol.coordinator_records import GROUP_RECORDS
from headrace.protocol.coordinator_records.groups import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from headrace.protocol.coordinator_records.offset_commits import CommittedTopic
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups, MemberMemory

TOPIC = "__consumer_offsets"
RETENTION_WAITS_FOR = "headrace.retention.waits.for"
GROUP_IDS = Keys(Resource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID)
# What a shard knows of the broker's settings has the same names there and here.
SETTINGS = tuple(field.name for field in fields(GroupSettings) if field.name != "overrides")


class OffsetsOf(NamedTuple):
    """The committed offsets of a group; the group itself, with its members, is named by its id alone."""

    group_id: str


def touched(machine: "Groups", change: Any) -> list[str | OffsetsOf]:
    """What of a group a change concerns. A first commit makes the group, too, and a removal may end it."""
    if isinstance(change, CommittedTopic):
        group_id, is_commit = change.group, True
    else:
        key = change.key
        is_offset = isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey)
        group_id = key.group if is_offset or isinstance(key, GroupMetadataKey) else key.group_id
        if not is_offset:
            return [group_id]
        is_commit = change.value is not None
    if is_commit and group_id in machine.groups:
        return [OffsetsOf(group_id)]
    return [group_id, OffsetsOf(group_id)]


class GroupCoordinator(Coordinator["Groups"]):
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        creations: TopicCreations,
        settings: LiveSettings,
        ports: Ports,
        access: Access,
        topics: "ImageTopics",
        rng: Randomness,
    ) -> None:
        super().__init__(
            TOPIC,
            GROUP_RECORDS,
            self._make_machine,
            self._nothing,
            partitions,
            directories,
            metadata,
            creations,
            settings,
            ports,
            access,
            GROUP_IDS,
            touched,
        )
        self._topics = topics
        self._rng = rng
        self._group_settings = group_settings(settings.current, metadata.image)
        self._memory: MemberMemory | None = None  # of all shards; it comes with the first

    @staticmethod
    def waits_for_group(shard: Shard["Groups"], group_id: str, *, with_offsets: bool = False) -> bool:
        """Whether an answer about the group may depend on records that are not committed."""
        parts = (group_id, OffsetsOf(group_id)) if with_offsets else (group_id,)
        return shard.uncommitted.concerns(parts, shard.partition.high_watermark)

    @staticmethod
    def confirm(now: Now, shard: Shard["Groups"], group_id: str) -> ErrorCode | None:
        """Lets the replicas confirm that this broker leads the group's log. NONE: they have when everything
        is committed that is written by now; None: there is nothing to wait for.

        A broker that is cut off from the controller does not know that another one has taken over, and would
        tell offsets of before: a consumer that copies in transactions would copy records again. While too
        few replicas are in sync nothing can be written, and offsets are told without.
        """
        if len(shard.partition.replicas) == 1 or not shard.can_write:
            return None
        return shard.write(now, shard.machine.confirm(group_id))

    @staticmethod
    def waits_for_any_group(shard: Shard["Groups"]) -> bool:
        """The same for all groups, and not for their offsets."""
        return shard.uncommitted.concerns_kind(str, shard.partition.high_watermark)

    def members_bytes(self) -> int:
        """Bytes that the members of all groups here take."""
        return sum(shard.machine.members_bytes() for shard in self.loaded_shards())

    def _make_machine(self, partition: Partition) -> "Groups":
        # a broker without groups starts without loading what they need
        from headrace.machines.groups.groups import Groups, MemberMemory

        if self._memory is None:
            self._memory = MemberMemory(self.members_bytes)
        return Groups(self._group_settings, self._topics, self._rng, self._memory)

    def _nothing(self, now: Now, shard: Shard["Groups"], effects: Any) -> None:
        raise AssertionError(f"groups ask for no {effects}")

    def configured(self) -> None:
        """The broker's or a group's settings changed. All shards share one object, changed in place."""
        take_over(self._group_settings, group_settings(self._settings.current, self._metadata.image))

    def create_topic(self, now: Now) -> TopicCreation | None:
        settings = self._settings.current
        return self.ensure_topic(
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
        """A transaction ended; if it was in our topic, the offsets committed inside it count now, or
        never.
        """
        if partition.topic == TOPIC:
            shard = self.at(partition.index)
            if shard is not None:
                shard.replay_end(producer_id, is_commit)

    def topics_changed(self, now: Now, removed: Sequence[str]) -> None:
        """Topics were created, extended or deleted. Members notice it with their next heartbeat."""
        self._topics.changed()
        if removed:
            for shard in self.loaded_shards():
                if shard.can_write:
                    self._forget(now, shard, shard.machine.forget_topics(now, removed))
                else:
                    self.shard_loaded(now, shard)

    def shard_loaded(self, now: Now, shard: Shard["Groups"]) -> None:
        """Topics may have been deleted while nobody coordinated these groups, or by a process that ended
        before its groups heard of it. Whoever coordinated them before has read no later metadata than this
        broker: what is committed for a topic that is unknown here is of one that is gone.
        """
        if shard.can_write:
            machine = shard.machine
            self._forget_gone(now, shard, machine, machine.forget_gone_topics(now))
        else:
            shard.postponed.add(now, "gone topics", partial(self.shard_loaded, shard=shard))

    def _forget_gone(
        self, now: Now, shard: Shard["Groups"], machine: "Groups", steps: Iterator[list[Decision]]
    ) -> None:
        """The next step; there may be millions of offsets, so others are served in between."""
        if shard.current is not machine or self._lifecycle.is_stopping:
            return
        if not shard.can_write:
            self.shard_loaded(now, shard)
            return
        try:
            decisions = next(steps)
        except StopIteration as end:
            self._forget(now, shard, end.value)
            return
        self._forget(now, shard, decisions)
        go_on = partial(self._forget_gone, shard=shard, machine=machine, steps=steps)
        Once(self._deadlines, Instant(now.mono + PAUSE_SECONDS), go_on)

    @staticmethod
    def _forget(now: Now, shard: Shard["Groups"], decisions: list[Decision]) -> None:
        """Removes offsets of deleted topics: a new topic of the same name must not be read from there."""
        for decision in decisions:
            if not shard.carry_out(now, decision):
                break  # the machine is made again, and asked when it is loaded


def group_settings(settings: Settings, image: ClusterImage) -> GroupSettings:
    return GroupSettings(
        **{name: getattr(settings, name) for name in SETTINGS},
        overrides={
            name: dict(values)
            for (resource, name), values in image.configs.items()
            if resource == GROUP_RESOURCE
        },
    )


class ImageTopics:
    """The cluster's topics as coordinators see them: a view of the image. `version` rises with each committed
    change of a topic.
    """

    __slots__ = ("_image", "_names", "version")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._names: list[str] | None = None
        self.version = 0

    def changed(self) -> None:
        self.version += 1
        self._names = None

    def partition_count(self, topic: str) -> int | None:
        state = self._image.topics.get(topic)
        return None if state is None else len(state.partitions)

    def id_of(self, topic: str) -> bytes | None:
        state = self._image.topics.get(topic)
        return None if state is None else state.id

    def name_of(self, topic_id: bytes) -> str | None:
        state = self._image.topics_by_id.get(TopicId(topic_id))
        return None if state is None else state.name

    def awaits(self, topic: str, group_id: str) -> bool:
        group_ids = self._image.topic_config(topic).get(RETENTION_WAITS_FOR)
        return bool(group_ids) and group_id in parse_list(group_ids or "")

    def names(self) -> list[str]:
        if self._names is None:
            self._names = sorted(self._image.topics)
        return self._names
