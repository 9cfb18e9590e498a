"""The coordinator of groups: `__consumer_offsets` and its shards, what happens to topics, and the memory that
members take.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from headrace.base.dice import Dice
from headrace.base.ids import TopicId
from headrace.base.limits import (
    MEMBER_BYTES_MAX,
    MEMBER_OVERHEAD_BYTES,
    MEMBER_STAYS_BYTES_MAX,
    MEMBERS_BYTES_MAX,
)
from headrace.base.time import Now
from headrace.machines.groups.settings import GroupSettings
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.image import GROUP_RESOURCE, ClusterImage
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.coordinator import Coordinator, segment_bytes, take_over
from headrace.node.coordinators.shard import Shard
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Ports
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings, Settings
from headrace.protocol.coordinator_records import GROUP_RECORDS
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

COUNTED_EVERY_MS = 1_000

TOPIC = "__consumer_offsets"
# What a shard knows of the broker's settings has the same names there and here.
SETTINGS = tuple(field.name for field in fields(GroupSettings) if field.name != "overrides")


class GroupCoordinator(Coordinator["Groups"]):
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        settings: LiveSettings,
        ports: Ports,
        access: Access,
        topics: "ImageTopics",
        dice: Dice,
    ) -> None:
        super().__init__(
            TOPIC,
            GROUP_RECORDS,
            self._make_machine,
            self._nothing,
            partitions,
            directories,
            metadata,
            decisions,
            settings,
            ports,
        )
        self._access = access
        self._topics = topics
        self._dice = dice
        self._group_settings = group_settings(settings.current, metadata.image)
        self._memory = MemberMemory(self.members_bytes)

    def members_bytes(self) -> int:
        """Bytes that the members of all groups here take."""
        from headrace.machines.groups.memory import shard_members_bytes

        return sum(shard_members_bytes(shard.machine) for shard in self.loaded_shards())

    def _make_machine(self, partition: Partition) -> "Groups":
        # a broker without groups starts without loading what they need
        from headrace.machines.groups.groups import Groups

        return Groups(self._group_settings, self._topics, self._dice)

    def _nothing(self, now: Now, shard: Shard["Groups"], effect: Any) -> None:
        raise AssertionError(f"groups ask for no {effect}")

    def asked(self, request: Request, operation: Operation, group_id: str) -> "Shard[Groups] | ErrorCode":
        """The loaded shard of a group, if whoever asks may do this with the group; else why not."""
        if not self._access.allows(request, operation, Resource.GROUP, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return self.shard_of(request.now, group_id)

    def member_refusal(
        self, now: Now, shard: "Shard[Groups]", group_id: str, member_id: str, sizes: list[int]
    ) -> ErrorCode | None:
        """Why what a member brings along is not taken; None: it is, and counts. `sizes` are bytes, for each
        member that it speaks of.
        """
        return self._memory.refusal(now, sizes, lambda: is_member(shard.machine, group_id, member_id))

    def configured(self) -> None:
        """The broker's or a group's settings changed. All shards share one object, changed in place."""
        take_over(self._group_settings, group_settings(self._settings.current, self._metadata.image))

    def create_topic(self, now: Now) -> None:
        settings = self._settings.current
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
        """A transaction ended; if it was in our topic, the offsets committed inside it count now, or
        never.
        """
        if partition.topic == TOPIC:
            shard = self.at(partition.index)
            if shard is not None:
                shard.replay_end(producer_id, is_commit)

    def topics_changed(self, now: Now, removed: Sequence[str]) -> None:
        """Topics came, grew or went, and that is committed. Members hear of it with their next heartbeat."""
        self._topics.changed()
        if not removed:
            return
        for shard in self.loaded_shards():
            for decision in shard.machine.forget_topics(now, removed):
                if not shard.carry_out(now, decision):
                    break


def group_settings(settings: Settings, image: ClusterImage) -> GroupSettings:
    return GroupSettings(
        **{name: getattr(settings, name) for name in SETTINGS},
        overrides={
            name: dict(values)
            for (resource, name), values in image.configs.items()
            if resource == GROUP_RESOURCE
        },
    )


class MemberMemory:
    """Limits on the memory of group members: subscription and assignment of each one, and of all together.

    To count every member at every join would take long. So the sizes of requests are added up. When the sum
    is over the limit, the members are counted, at most once a second.
    """

    __slots__ = ("_count", "_count_again_at", "bytes")

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count  # the bytes of all members
        self._count_again_at = 0.0
        self.bytes = 0  # never less than there are, since the last count

    def refusal(self, now: Now, sizes: list[int], is_known: Callable[[], bool]) -> ErrorCode | None:
        """None: what a member brings along is taken, and counts. A member that is known already may stay."""
        if sizes and max(sizes) > MEMBER_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        weight = sum(sizes) + MEMBER_OVERHEAD_BYTES * len(sizes)
        if self.bytes + weight > MEMBERS_BYTES_MAX and now.mono >= self._count_again_at:
            self._count_again_at = now.after_ms(COUNTED_EVERY_MS)
            self.bytes = self._count()
        if self.bytes + weight > MEMBERS_BYTES_MAX and not (
            sum(sizes) <= MEMBER_STAYS_BYTES_MAX and is_known()
        ):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        self.bytes += weight
        return None


def is_member(machine: "Groups", group_id: str, member_id: str) -> bool:
    group = machine.groups.get(group_id)
    return group is not None and member_id in group.members  # type: ignore[attr-defined]  # of both protocols


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

    def names(self) -> list[str]:
        if self._names is None:
            self._names = sorted(self._image.topics)
        return self._names
