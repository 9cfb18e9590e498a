"""The messages of a classic group: requests to the coordinator, and the bytes that members exchange in
JoinGroup and SyncGroup, as Java writes them. `GroupLeader` computes the assignment of all members.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.base.time import NEVER, Instant
from headrace.client.assignors import (
    NO_GENERATION,
    Assignor,
    GroupMember,
    TellsUserData,
    by_topic,
    is_cooperative,
)
from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput
from headrace.client.membership.subscription import SubscribedTopics
from headrace.client.network.connection import ByVersion
from headrace.client.settings.consumer import GroupSettings
from headrace.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headrace.protocol.messages.consumer_protocol import TopicPartition as OwnedTopic
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.versioned import decode_versioned, encode_versioned

VERSION = 3  # of both; readers of older versions pass over what was appended


class LastAssignment(NamedTuple):
    """What the last completed rebalance gave the member, and its generation."""

    partitions: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


def write_subscription(
    assignor: Assignor,
    *,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    last: LastAssignment,
    rack: str | None,
) -> bytes:
    """`owned` is what the member has in `generation`, `last` what it once got and may have given up since."""
    user_data = assignor.user_data(*last) if isinstance(assignor, TellsUserData) else None
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            OwnedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack,
    )
    return encode_versioned(subscription, VERSION)


def read_subscription(metadata: bytes | memoryview, instance_id: str | None) -> GroupMember:
    """Raises ProtocolError."""
    told = decode_versioned(ConsumerProtocolSubscription, metadata, newer=True)
    return GroupMember(
        topics=frozenset(told.topics),
        owned=tuple(
            TopicPartition(each.topic, index) for each in told.owned_partitions for index in each.partitions
        ),
        generation=max(told.generation_id, NO_GENERATION),
        user_data=None if told.user_data is None else bytes(told.user_data),
        instance_id=instance_id,
        rack=told.rack_id,
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    assigned = [
        AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), VERSION)


def read_assignment(assignment: bytes | memoryview) -> frozenset[TopicPartition]:
    """Raises ProtocolError. No bytes at all: the leader left this member out."""
    if not len(assignment):
        return frozenset()
    told = decode_versioned(ConsumerProtocolAssignment, assignment, newer=True)
    return frozenset(
        TopicPartition(each.topic, index) for each in told.assigned_partitions for index in each.partitions
    )


PROTOCOL_TYPE = "consumer"
LEAVE_MANY_SINCE = 3  # before, LeaveGroup names one member
REASON_CHARACTERS_MAX = 255  # Java's; the broker logs it


class Generation(NamedTuple):
    """One rebalance's outcome for one member; without an id there is none, but perhaps a member id."""

    id: int = NO_GENERATION
    member_id: str = ""
    protocol: str = ""  # the assignor that the group chose


def join_request(
    settings: GroupSettings,
    generation: Generation,
    *,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    last: LastAssignment,
    reason: str | None,
) -> JoinGroupRequest:
    protocols = [
        JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=write_subscription(
                assignor,
                topics=topics,
                owned=owned,
                generation=generation.id,
                last=last,
                rack=settings.rack,
            ),
        )
        for assignor in settings.assignors
    ]
    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=int(settings.session_timeout_s * 1000),
        rebalance_timeout_ms=int(settings.max_poll_interval_s * 1000),
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=None if reason is None else reason[:REASON_CHARACTERS_MAX],
    )


def sync_request(
    settings: GroupSettings, generation: Generation, shares: list[SyncGroupRequestAssignment]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=generation.protocol,
        assignments=shares,
    )


def heartbeat_request(settings: GroupSettings, generation: Generation) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=settings.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
    )


def leave_request(settings: GroupSettings, generation: Generation, reason: str) -> ByVersion:
    def make(version: int) -> LeaveGroupRequest:
        if version < LEAVE_MANY_SINCE:
            return LeaveGroupRequest(group_id=settings.group_id, member_id=generation.member_id)
        member = MemberIdentity(member_id=generation.member_id, reason=reason[:REASON_CHARACTERS_MAX])
        return LeaveGroupRequest(group_id=settings.group_id, members=[member])

    return ByVersion(LeaveGroupRequest, make)


class GroupLeader:
    def __init__(self, members: Sequence[JoinGroupResponseMember], *, skips_assignment: bool) -> None:
        """Raises ProtocolError when a member's subscription cannot be read."""
        self.members: dict[str, GroupMember] = {
            member.member_id: read_subscription(member.metadata, member.group_instance_id)
            for member in members
        }
        self.topics = frozenset(topic for member in self.members.values() for topic in member.topics)
        # A static leader that came back to a settled group: the broker keeps the shares (KIP-814).
        self._skips_assignment = skips_assignment
        self.finishes_by = NEVER  # when it starts another rebalance, if nobody else does
        self._holds_back = False  # partitions that go to nobody before their owners have given them up
        self._shared: dict[str, int] | None = None  # the sizes of the topics that were shared out
        self._looked_at = 0  # the changes that we have seen

    def shares(self, assignor: Assignor, topics: SubscribedTopics) -> list[SyncGroupRequestAssignment]:
        """Raises InvalidInput when the assignor does."""
        self._shared, self._looked_at = self._sizes(topics), topics.changes
        if self._skips_assignment:
            self._holds_back = is_cooperative(assignor)  # it may be so: who led before did not tell
            return []
        try:
            assignment = assignor.assign(self.members, self._shared)
            owned = {at for member in self.members.values() for at in member.owned}
            self._holds_back = bool(owned.difference(*assignment.values())) and is_cooperative(assignor)
            return [
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=write_assignment(assignment.get(member_id, ()))
                )
                for member_id in self.members
            ]
        except Exception as error:  # the application's own code: it must hear of it, whatever it is
            raise InvalidInput(f"the assignor {assignor.name!r} failed: {error}") from error

    def synced(self, now: Instant, settings: GroupSettings) -> None:
        """The assignment is told. An owner that gives up partitions starts the rebalance in which others get
        them. A static member that died before comes back without them, within the time of a session, and has
        nothing to give up: nobody would start it.
        """
        if self._holds_back:
            self.finishes_by = Instant(now + settings.session_timeout_s)

    def is_outdated(self, topics: SubscribedTopics) -> bool:
        """Whether the topics are no longer those that were shared out."""
        if self._shared is None or self._looked_at == topics.changes:
            return False
        if self._shared != self._sizes(topics):
            return True
        self._looked_at = topics.changes
        return False

    def _sizes(self, topics: SubscribedTopics) -> dict[str, int]:
        return {
            topic: topics.partitions[topic] for topic in sorted(self.topics) if topic in topics.partitions
        }
