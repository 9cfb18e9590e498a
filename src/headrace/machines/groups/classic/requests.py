"""What members of the classic protocol ask for, and what they get: values without a wire format.

The handlers of JoinGroup, SyncGroup and LeaveGroup translate. Groups of both kinds take these values: a
consumer group may have members that still speak the classic protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.protocol.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]  # names in the member's order of preference, each with its metadata


class Join(NamedTuple):
    group_id: str
    member_id: str  # empty: a new member, or a static one that was restarted
    instance_id: str | None  # None: a dynamic member
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # A dynamic member gets its id first and joins with it: an answer that is lost leaves no member (KIP-394).
    joins_twice: bool
    # A static leader that came back can be told that nothing has to be assigned (KIP-814).
    can_skip_assignment: bool


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes  # of the chosen protocol


class Joined(NamedTuple):
    """A generation, or why the member is not in it."""

    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()  # for the leader alone
    skip_assignment: bool = False


class Sync(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None  # what the member thinks was chosen; None: it does not say
    protocol: str | None
    assignments: Mapping[str, bytes]  # by member id; from the leader


class Synced(NamedTuple):
    """A member's share, or why it has none."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """An administrator names a static member by its instance id alone."""

    member_id: str
    instance_id: str | None = None


class Left(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    members: tuple[ErrorCode, ...] = ()  # in the order of the request
