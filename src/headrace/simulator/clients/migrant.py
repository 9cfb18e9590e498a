"""A client that is a member of its group by both group protocols at once.

It sends several requests without waiting: the last member of the new protocol leaves, and the classic member
joins, syncs or leaves directly behind it. So the group is upgraded and downgraded while members join. Its
group has only clients of this kind, and reads nothing.
"""

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.protocol.versioned import encode_versioned
from headrace.simulator.clients.simulated_client import SimulatedClient

FIND_COORDINATOR, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 10, 11, 13, 14, 68
GROUP = "migrants"
JOINING, LEAVING = 0, -1
REBALANCE_TIMEOUT_MS = 1_000
SUBSCRIPTION_VERSION = 3

GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.FENCED_MEMBER_EPOCH)


class Migrant(SimulatedClient):
    is_stopping = False
    _member_id = ""  # of the classic protocol
    _generation = -1
    _epoch = LEAVING  # of the new protocol; it is not a member
    _is_acting = False

    def connected(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        self.ask(FIND_COORDINATOR, 4, request, FIND_COORDINATOR)
        if not self._is_acting:
            self._is_acting = True
            self._act_later()

    def got(self, asked: Any, answer: Any) -> None:
        if asked == FIND_COORDINATOR:
            return
        code = answer.error_code
        if asked == CONSUMER_GROUP_HEARTBEAT:
            if code in GONE:
                self._epoch = LEAVING
            elif code == ErrorCode.NONE:
                self._epoch = answer.member_epoch
        elif code in GONE:
            self._member_id, self._generation = "", -1
        elif asked == JOIN_GROUP:
            if code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
            elif code == ErrorCode.NONE:
                self._member_id, self._generation = answer.member_id, answer.generation_id

    def _act_later(self) -> None:
        self.world.after(self.world.between(0.0, 0.4), self._act)

    def _act(self) -> None:
        if self.is_stopping:
            return
        if self.wire is not None:
            acts = [self._join, self._join, self._sync, self._change, self._change, self._leave]
            for act in self.world.rng.sample(acts, self.world.rng.randint(1, 3)):
                act()
        self._act_later()

    def _change(self) -> None:
        """Joins or leaves by the new protocol, or goes on."""
        epoch = self._epoch
        if epoch == LEAVING:
            epoch = JOINING
        elif self.world.chance(0.5):
            epoch = LEAVING
        is_joining = epoch == JOINING
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_joining else -1,
            subscribed_topic_names=["source"] if is_joining else None,
            topic_partitions=[] if is_joining else None,
        )
        self.ask(CONSUMER_GROUP_HEARTBEAT, 1, request, CONSUMER_GROUP_HEARTBEAT)

    def _join(self) -> None:
        # another subscription than before is a reason for a rebalance
        topics = ["source"] if self.world.chance(0.7) else ["target"]
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=topics), SUBSCRIPTION_VERSION)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=2_000,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="dealt", metadata=metadata)],
        )
        self.ask(JOIN_GROUP, 9, request, JOIN_GROUP)

    def _sync(self) -> None:
        """A leader gives nothing to anybody: nobody reads."""
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="dealt",
        )
        self.ask(SYNC_GROUP, 5, request, SYNC_GROUP)

    def _leave(self) -> None:
        if self.world.chance(0.3):
            request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self._member_id)])
            self.ask(LEAVE_GROUP, 5, request, LEAVE_GROUP)
