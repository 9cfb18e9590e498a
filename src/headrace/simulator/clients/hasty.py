"""A member of a classic group that leaves while its JoinGroup is still parked, and sends more requests on the
same connection, as a consumer does that closes during a rebalance.

It tests the order of the answers. Its group has only members of this kind, so it disturbs no other client.
"""

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.simulator.clients.simulated_client import SimulatedClient

METADATA, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP = 3, 10, 11, 12, 13
GROUP = "hasty"


class HastyMember(SimulatedClient):
    _member_id = ""
    _joins_soon = False  # one answer is enough: a join for each would double them every time
    is_stopping = False

    def connected(self) -> None:
        self.ask(
            FIND_COORDINATOR,
            4,
            FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]),
            FIND_COORDINATOR,
        )
        self._join()

    def got(self, asked: Any, answer: Any) -> None:
        if asked == JOIN_GROUP and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        elif asked == LEAVE_GROUP:
            self._member_id = ""
        if asked in (JOIN_GROUP, LEAVE_GROUP) and not self._joins_soon:
            self._joins_soon = True
            self.world.after(self.world.between(0.0, 0.5), self._join_again)

    def _join_again(self) -> None:
        self._joins_soon = False
        if self.wire is not None:
            self._join()

    def _join(self) -> None:
        if self.is_stopping:
            return
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=2_000,
            rebalance_timeout_ms=1_000,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.ask(JOIN_GROUP, 9, request, JOIN_GROUP)
        if self._member_id and self.world.chance(0.7):
            self._ask_more()

    def _ask_more(self) -> None:
        """Behind the JoinGroup, whether it is answered or not."""
        heartbeat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=self._member_id)
        leave = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self._member_id)])
        more = [
            (HEARTBEAT, 4, heartbeat),
            (METADATA, 9, MetadataRequest(topics=[])),
            (LEAVE_GROUP, 5, leave),
        ]
        self.world.rng.shuffle(more)
        for api_key, version, body in more[: self.world.rng.randint(1, 3)]:
            self.ask(api_key, version, body, api_key)
