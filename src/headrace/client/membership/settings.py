"""What a group's member can be told, by Kafka's names; times in seconds, defaults are Kafka's."""

from dataclasses import dataclass
from enum import Enum

from headrace.client.assignors import ASSIGNORS, Assignor


class GroupProtocol(Enum):
    """How members share the work (group.protocol): among themselves, or as the broker says (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(slots=True, frozen=True)
class GroupSettings:
    group_id: str
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    instance_id: str | None = None  # a static member keeps its place over restarts (KIP-345)
    rack: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0  # also how long the group waits for us when it rebalances
    # Members of a group must have one in common. All of them cooperative: the group rebalances so.
    assignors: tuple[Assignor, ...] = (ASSIGNORS["range"], ASSIGNORS["cooperative-sticky"])
    server_assignor: str | None = None  # of the consumer protocol; None: the broker's choice
    metadata_max_age_s: float = 300.0
    allow_auto_create_topics: bool = True
    excludes_internal_topics: bool = True  # from patterns
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0  # how long commits and fetches of offsets are tried
    auto_commit_interval_s: float | None = None  # None: only what is asked for is committed
    # Offsets of open transactions are waited for. Java asks for it always: whoever reads committed records
    # must, and for others it costs nothing (KIP-447).
    require_stable: bool = True
