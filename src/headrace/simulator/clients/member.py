"""Member of a classic group: generators that other scripts call with `yield from`.

Each generator ends when its step is done, and returns its result. After a lost answer it asks again.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.versioned import decode_versioned, encode_versioned
from headrace.simulator.clients.simulated_client import Ask, Pause, Script
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import (
    Assigned,
    CommitAccepted,
    CommitAsked,
    CommittedOffsetTold,
    JoinAsked,
    PartitionKey,
)

FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 10, 11, 12, 13, 14
OFFSET_FETCH = 9
GROUP, TRANSACTION = 0, 1
PROTOCOL_TYPE, PROTOCOL = "consumer", "dealt"
SESSION_TIMEOUT_MS = 2_000
REBALANCE_TIMEOUT_MS = 3_000
SUBSCRIPTION_VERSION = 3

# What goes away by itself: the same request is sent again.
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
)

Step = Generator[Ask | Pause, Any, Any]


def found(kind: int, key: str) -> Step:
    """Look for a coordinator until there is one; that is also what makes its topic."""
    while True:
        answer = yield Ask(FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
        if answer is not None and answer.coordinators[0].error_code == ErrorCode.NONE:
            return
        yield Pause(0.1)


class Membership:
    """Who this client is in its group, as far as it knows."""

    def __init__(self, client: Script, group: str, topic: Topic, instance_id: str | None = None) -> None:
        self._client = client
        self.group = group
        self._topic = topic
        self.instance_id = instance_id
        self.member_id: str
        self.generation: int
        self.partitions: list[PartitionKey]
        self.forget()

    @property
    def identity(self) -> str:
        """By which it is known over its lives."""
        return self.instance_id or self.member_id

    def forget(self) -> None:
        """The process died: what it knew is gone, what the group knows of it is not."""
        self.member_id, self.generation, self.partitions = "", -1, []

    def joined(self) -> Step:
        """Join and sync until this member has its part of a generation."""
        while True:
            self.partitions = []
            self._client.history.add(JoinAsked(self.group, is_classic=True))
            answer = yield Ask(JOIN_GROUP, 9, self._join_request())
            if answer is None:
                continue
            if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
                continue
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                continue
            if answer.error_code != ErrorCode.NONE:
                yield Pause(0.1)
                continue
            self.member_id, self.generation = answer.member_id, answer.generation_id
            is_leader = answer.leader == answer.member_id
            if (yield from self._synced(self._shares(answer.members) if is_leader else [])):
                return

    def _join_request(self) -> JoinGroupRequest:
        subscription = ConsumerProtocolSubscription(topics=[self._topic.name])
        metadata = encode_versioned(subscription, SUBSCRIPTION_VERSION)
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
        )

    def _shares(self, members: list[Any]) -> list[SyncGroupRequestAssignment]:
        """Partitions dealt round like cards: the leader's whole wisdom."""
        names = sorted(member.member_id for member in members)
        shares: dict[str, list[int]] = {name: [] for name in names}
        for key in self._topic.keys:
            shares[names[key.number % len(names)]].append(key.number)
        return [
            SyncGroupRequestAssignment(member_id=name, assignment=self._share(numbers))
            for name, numbers in shares.items()
        ]

    def _share(self, numbers: list[int]) -> bytes:
        topics = [AssignedTopic(topic=self._topic.name, partitions=numbers)] if numbers else []
        return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics), SUBSCRIPTION_VERSION)

    def _synced(self, shares: list[SyncGroupRequestAssignment]) -> Step:
        def promised(answer: Any) -> None:
            if answer.error_code == ErrorCode.NONE:
                partitions = tuple(self._keys(answer.assignment))
                self._client.history.add(
                    Assigned(self.group, identity, generation, partitions, is_classic=True)
                )

        identity, generation = self.identity, self.generation
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=shares,
        )
        answer = yield Ask(SYNC_GROUP, 5, request, promised)
        if answer is None or answer.error_code != ErrorCode.NONE:
            if answer is not None and answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return False
        self.partitions = self._keys(answer.assignment)
        return True

    def _keys(self, assignment: bytes) -> list[PartitionKey]:
        if not assignment:
            return []
        told = decode_versioned(ConsumerProtocolAssignment, assignment)
        return [self._topic.keys[number] for topic in told.assigned_partitions for number in topic.partitions]

    def alive(self) -> Step:
        """Send a heartbeat; False: this member has to join again."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        answer = yield Ask(HEARTBEAT, 4, request)
        if answer is None:
            return True  # the connection broke, or the node did: nobody has said no
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        return answer.error_code in (
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )

    def left(self) -> Step:
        request = LeaveGroupRequest(
            group_id=self.group,
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)],
        )
        yield Ask(LEAVE_GROUP, 5, request)
        self.forget()

    def commit_asked(self, partitions: Iterable[PartitionKey]) -> Callable[[], None]:
        """Tell the judges that a commit is sent; to be called when it was accepted."""
        history, number = self._client.history, self._client.history.count
        history.add(CommitAsked(number, self.group, self.identity, tuple(partitions)))
        return lambda: history.add(CommitAccepted(number))

    def committed(self) -> Step:
        """Where its partitions are to be read from; None when this cannot be told now."""
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.group,
                    topics=[
                        OffsetFetchRequestTopics(
                            name=self._topic.name,
                            partition_indexes=[key.number for key in self.partitions],
                        )
                    ],
                )
            ],
            require_stable=True,
        )

        def promised(answer: Any) -> None:
            for key, offset in self._told(answer).items():
                self._client.history.add(CommittedOffsetTold(self.group, key, offset))

        answer = yield Ask(OFFSET_FETCH, 9, request, promised)
        told = self._told(answer) if answer is not None else {}
        if len(told) < len(self.partitions):
            return None
        return {key: max(offset, 0) for key, offset in told.items()}

    def _told(self, answer: Any) -> dict[PartitionKey, int]:
        group = answer.groups[0]
        if group.error_code != ErrorCode.NONE:
            return {}
        return {
            self._topic.keys[one.partition_index]: one.committed_offset
            for topic in group.topics
            for one in topic.partitions
            if one.error_code == ErrorCode.NONE
        }
