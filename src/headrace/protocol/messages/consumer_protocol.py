"""The bytes inside JoinGroup and SyncGroup that consumers agree on; the broker never opens them.

On the wire an int16 version goes before the body.
"""

from __future__ import annotations

from headrace.protocol.notation import BYTES, INT32, STRING, Data, Struct, array, field


class TopicPartition(Struct):
    topic: str = field(STRING, "1+")
    partitions: list[int] = field(array(INT32), "1+")


class ConsumerProtocolSubscription(Data, versions="0-3"):
    """What a consumer puts into JoinGroup: the topics it wants and the partitions it has."""

    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(array(TopicPartition), "1+", ignorable=True)
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)


class AssignedTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ConsumerProtocolAssignment(Data, versions="0-3"):
    """What the leader of a consumer group gives to one member."""

    assigned_partitions: list[AssignedTopic] = field(array(AssignedTopic))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
