"""Requests behind one that the broker holds back are answered after it, over a real socket: a consumer that
closes during a rebalance sends LeaveGroup behind its JoinGroup.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.broker import Broker
from harness.message_socket import MessageSocket
from harness.wait import eventually
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

pytestmark = pytest.mark.steady  # one connection, to one broker

GROUP = "answer-order"


def coordinator(connection: MessageSocket) -> Coordinator:
    told = connection.ask("a", FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
    (found,) = told.coordinators
    assert isinstance(found, Coordinator)
    return found


@pytest.fixture
def connections(broker: Broker) -> Iterator[list[MessageSocket]]:
    """To the group's coordinator."""
    anybody = MessageSocket(broker.port)
    eventually(lambda: coordinator(anybody).error_code, 0)
    made = [MessageSocket(coordinator(anybody).port) for _ in range(2)]
    anybody.close()
    yield made
    for connection in made:
        connection.socket.close()


def wish(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=3_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_consumer_closes_while_it_joins(connections: list[MessageSocket]) -> None:
    """`MessageSocket.receive` compares correlation ids. The first member does not join again, so that the
    other one's JoinGroup waits for the rebalance timeout, or until it leaves.
    """
    stable, closing = connections

    def coordinator_error() -> int:
        stable.send("a", HeartbeatRequest(group_id=GROUP, member_id="nobody"), 4)
        return int(stable.receive().error_code)

    eventually(coordinator_error, ErrorCode.UNKNOWN_MEMBER_ID)
    for connection, name in ((stable, "a"), (closing, "b")):
        connection.send(name, wish(), 9)
        member_id = connection.receive().member_id
        connection.send(name, wish(member_id), 9)
        if connection is stable:
            assert connection.receive().error_code == ErrorCode.NONE
    closing.send("b", ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    leave = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)])
    closing.send("b", leave, 5)
    closing.send("b", HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id), 4)
    joined, versions, left, beaten = (closing.receive() for _ in range(4))
    assert joined.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert versions.error_code == ErrorCode.NONE
    assert left.members[0].error_code == ErrorCode.NONE
    assert beaten.error_code == ErrorCode.UNKNOWN_MEMBER_ID
