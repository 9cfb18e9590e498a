"""One member of a classic group."""

from __future__ import annotations

from headrace.machines.coordination import Ticket
from headrace.protocol.messages.join_group import JoinGroupRequestProtocol

Protocols = tuple[tuple[str, bytes], ...]  # names in the member's order of preference, each with its metadata


def protocols_of(offered: list[JoinGroupRequestProtocol]) -> Protocols:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in offered)


class Member:
    """Whoever it is, what it can do, what it got, and what it waits for."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False  # it never got a generation, and so it cannot send heartbeats
        self.join_ticket: Ticket | None = None  # a ticket is never None
        self.sync_ticket: Ticket | None = None

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    @property
    def waits(self) -> bool:
        """Whoever waits for an answer of ours is alive, and has no reason to send heartbeats."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata_of(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""
