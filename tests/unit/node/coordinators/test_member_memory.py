"""Members of groups outlive their clients: what each brings along is limited, and what all bring."""

from __future__ import annotations

import pytest

from headrace.base.limits import MEMBER_BYTES_MAX
from headrace.machines.groups import groups
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.simulator.manual_host import ManualHost

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


def host_with_coordinator() -> ManualHost:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    return host


def join(host: ManualHost, group: str, metadata: bytes, member_id: str = "") -> tuple[int, str]:
    """By version 3 a member is taken without asking twice."""
    connection = host.connect()
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    host.send(connection, request, 3)
    host.advance(0)
    answer = host.receive(connection)
    host.node.disconnected(host.clock.now(), connection)
    return answer.error_code, answer.member_id


def sync(host: ManualHost, group: str, member_id: str, assignment: bytes) -> int:
    share = SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id=member_id, assignments=[share])
    return int(host.ask(request, 3).error_code)


def test_one_member_s_metadata_is_limited() -> None:
    host = host_with_coordinator()
    assert join(host, "g", bytes(MEMBER_BYTES_MAX)) == (ErrorCode.INVALID_REQUEST, "")
    error, member_id = join(host, "g", bytes(MEMBER_BYTES_MAX - 100))
    assert error == ErrorCode.NONE
    assert sync(host, "g", member_id, bytes(MEMBER_BYTES_MAX + 1)) == ErrorCode.INVALID_REQUEST
    assert sync(host, "g", member_id, bytes(100)) == ErrorCode.NONE


def test_all_members_together_are_limited_until_their_sessions_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever joins and goes, again and again under new names, fills the memory until then."""
    monkeypatch.setattr(groups, "MEMBERS_BYTES_MAX", 1_000_000)
    host = host_with_coordinator()
    codes = [join(host, f"g{number}", bytes(90_000))[0] for number in range(20)]
    assert codes == [ErrorCode.NONE] * 10 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 10
    assert host.node.broker.groups.members_bytes() <= 1_000_000
    new = ConsumerGroupHeartbeatRequest(
        group_id="n",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t" * 200] * 1_000,
        topic_partitions=[],
    )
    assert host.ask(new, 1).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    host.advance(30)
    assert host.node.broker.groups.members_bytes() == 0
    assert join(host, "g", bytes(90_000))[0] == ErrorCode.NONE


def test_assignments_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MEMBERS_BYTES_MAX", 1_000_000)
    host = host_with_coordinator()
    members = [join(host, f"g{number}", b"")[1] for number in range(20)]
    codes = [sync(host, f"g{number}", member, bytes(90_000)) for number, member in enumerate(members)]
    assert codes == [ErrorCode.NONE] * 10 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 10


def test_who_joins_again_and_again_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MEMBERS_BYTES_MAX", 1_000_000)
    host = host_with_coordinator()
    _, member_id = join(host, "g", bytes(90_000))
    for _ in range(60):
        host.advance(0.15)
        assert join(host, "g", bytes(90_000), member_id)[0] == ErrorCode.NONE


def test_who_is_in_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who fill the memory do not stop the groups of others."""
    monkeypatch.setattr(groups, "MEMBERS_BYTES_MAX", 1_000_000)
    host = host_with_coordinator()
    _, member_id = join(host, "g", bytes(500))
    while join(host, f"g{host._correlation}", bytes(90_000))[0] == ErrorCode.NONE:
        pass
    assert sync(host, "g", member_id, bytes(500)) == ErrorCode.NONE
    assert join(host, "g", bytes(500), member_id) == (ErrorCode.NONE, member_id)
    assert join(host, "g", bytes(95_000), member_id)[0] == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(host, "h", bytes(95_000))[0] == ErrorCode.GROUP_MAX_SIZE_REACHED
