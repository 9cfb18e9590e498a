"""Members and offsets of a group on a node."""

from __future__ import annotations

from typing import Any

from harness.single_partition import commit_of, committed_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.simulator.manual_host import ManualHost

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}


def find(host: ManualHost, key: str, kind: int = 0) -> Any:
    (found,) = host.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators
    return found


def committed(host: ManualHost, group: str, topic: str) -> Any:
    (answer,) = host.ask(committed_of(group, topic), 9).groups
    assert answer.error_code == 0
    return answer.topics[0].partitions[0]


def commit(
    host: ManualHost, group: str, topic: str, offset: int, *, member: str = "", generation: int = -1
) -> int:
    request = commit_of(group, topic, offset, generation_id_or_member_epoch=generation, member_id=member)
    return host.ask(request, 9).topics[0].partitions[0].error_code


def join(host: ManualHost, group: str, member: str = "") -> Any:
    connection = host.connect()
    host.send(
        connection,
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"wants")],
        ),
        9,
    )
    host.advance(0)  # the initial delay of the rebalance is over
    return host.receive(connection)


def member_of(host: ManualHost, group: str) -> tuple[str, int]:
    """The only member of a settled group."""
    first = join(host, group)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = join(host, group, first.member_id)
    assert joined.error_code == 0
    assert joined.leader == joined.member_id
    assert [one.metadata for one in joined.members] == [b"wants"]
    synced = host.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"gets")],
        ),
        5,
    )
    assert (synced.error_code, synced.assignment) == (0, b"gets")
    return joined.member_id, joined.generation_id
