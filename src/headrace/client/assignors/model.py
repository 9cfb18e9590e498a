"""What a client-side assignor is asked, and what it answers."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from headrace.client.cluster import TopicPartition

NO_GENERATION = -1


class GroupMember(NamedTuple):
    """One member of the group, as it described itself when it joined."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()  # empty under the eager protocol: all was given up before
    generation: int = NO_GENERATION  # in which it came to own that
    user_data: bytes | None = None  # what its own assignor wished to tell the leader's
    instance_id: str | None = None
    rack: str | None = None


Assignment = dict[str, list[TopicPartition]]  # by member id; every member has an entry


class Assignor(Protocol):
    """A way to share partitions; the name is what members of all languages must agree on."""

    @property
    def name(self) -> str: ...

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
        """`partitions` has the number of partitions of each topic that exists and that somebody wants."""
        ...


@runtime_checkable
class TellsUserData(Protocol):
    """An assignor that has something to say in its member's subscription."""

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """`assigned` is what the last completed rebalance gave the member, in that generation."""
        ...


def is_cooperative(assignor: Assignor) -> bool:
    """Whether members may go on reading what they keep while the group rebalances (KIP-429)."""
    return bool(getattr(assignor, "is_cooperative", False))


def java_order(text: str) -> bytes:
    """A sort key that orders as Java compares strings: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def seats(members: Mapping[str, GroupMember]) -> list[str]:
    """Member ids in Kafka's fixed order: static members first by their instance ids, so that a restart, which
    changes the member id, changes nothing else.
    """

    def seat(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].instance_id
        return (False, java_order(instance_id)) if instance_id is not None else (True, java_order(member_id))

    return sorted(members, key=seat)


def sorted_topics(members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> list[str]:
    """The topics that exist and that somebody wants."""
    wanted = {topic for member in members.values() for topic in member.topics}
    return sorted(wanted & partitions.keys(), key=java_order)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers of each topic, all in ascending order."""
    numbers: dict[str, list[int]] = {}
    for at in sorted(partitions):
        numbers.setdefault(at.topic, []).append(at.partition)
    return numbers
