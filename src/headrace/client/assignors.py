"""Client-side assignors of classic groups: range, roundrobin, sticky, cooperative-sticky.

Pure functions of the members' subscriptions, of the partitions that they own, and of the topics' partition
counts. Every partition of a subscribed topic goes to exactly one of its subscribers; only
`cooperative-sticky` holds a partition back for one rebalance, while its owner gives it up. An assignor of
your own is an object with a `name` and `assign`; see `Assignor`.
"""

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import NamedTuple, Protocol, runtime_checkable

from headrace.client.cluster import TopicPartition
from headrace.machines.groups.assignors.model import Subscriber
from headrace.machines.groups.assignors.uniform import assign_uniformly
from headrace.protocol.compiler import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.notation import INT32, STRING, Data, Struct, array, field

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
        """The assignment. `partitions` has the number of partitions of each existing topic with
        subscribers.
        """
        ...


@runtime_checkable
class TellsUserData(Protocol):
    """An assignor that has something to say in its member's subscription."""

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """`assigned` is what the last completed rebalance gave the member, in that generation."""
        ...


def is_cooperative(assignor: Assignor) -> bool:
    """Whether members keep reading their partitions while the group rebalances (KIP-429)."""
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
    """The existing topics with subscribers."""
    wanted = {topic for member in members.values() for topic in member.topics}
    return sorted(wanted & partitions.keys(), key=java_order)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers of each topic, all in ascending order."""
    numbers: dict[str, list[int]] = {}
    for at in sorted(partitions):
        numbers.setdefault(at.topic, []).append(at.partition)
    return numbers


class RangeAssignor:
    name = "range"

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
        order = seats(members)
        shares: Assignment = {member_id: [] for member_id in order}
        for topic in sorted_topics(members, partitions):
            subscribers = [member_id for member_id in order if topic in members[member_id].topics]
            share, larger_shares = divmod(partitions[topic], len(subscribers))
            start = 0
            for number, member_id in enumerate(subscribers):
                end = start + share + (number < larger_shares)
                shares[member_id] += [TopicPartition(topic, index) for index in range(start, end)]
                start = end
        return shares


class RoundRobinAssignor:
    name = "roundrobin"

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
        order = seats(members)
        shares: Assignment = {member_id: [] for member_id in order}
        dealer = cycle(order)
        for topic in sorted_topics(members, partitions):
            for index in range(partitions[topic]):
                taker = next(member_id for member_id in dealer if topic in members[member_id].topics)
                shares[taker].append(TopicPartition(topic, index))
        return shares


class PreviousTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class StickyUserData(Data, versions="0-1"):
    """No version goes before it: what ends before the generation is version 0."""

    previous_assignment: list[PreviousTopic] = field(array(PreviousTopic))
    generation: int = field(INT32, "1+", default=NO_GENERATION, ignorable=True)


class Claim(NamedTuple):
    """Partitions that a member says it had, and the generation in which it got them."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


class StickyAssignor:
    name = "sticky"

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
        claims = {member_id: read_user_data(member.user_data) for member_id, member in members.items()}
        return share(members, partitions, claims)

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        if generation == NO_GENERATION:
            return None
        previous = [
            PreviousTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(assigned).items()
        ]
        return codec(StickyUserData, 1).encode(
            StickyUserData(previous_assignment=previous, generation=generation)
        )


def read_user_data(user_data: bytes | None) -> Claim:
    """The partitions that the member had; none if the bytes cannot be read, because they are not required."""
    if not user_data:
        return Claim()
    for version in (1, 0):
        try:
            told = codec(StickyUserData, version).decode(user_data)
        except MalformedMessage:
            continue
        had = (
            TopicPartition(each.topic, index)
            for each in told.previous_assignment
            for index in each.partitions
        )
        return Claim(tuple(had), told.generation)
    return Claim()


def share(
    members: Mapping[str, GroupMember], partitions: Mapping[str, int], claims: Mapping[str, Claim]
) -> Assignment:
    """Equal shares that keep what was rightly claimed; the search is the broker's own uniform assignor."""
    kept = rightful(claims)
    subscribers = {}
    for member_id in seats(members):
        had = {topic.encode(): tuple(numbers) for topic, numbers in by_topic(kept[member_id]).items()}
        wanted = (topic.encode() for topic in members[member_id].topics if topic in partitions)
        subscribers[member_id] = Subscriber(frozenset(wanted), had)
    targets = assign_uniformly(subscribers, {topic.encode(): count for topic, count in partitions.items()})
    return {
        member_id: [
            TopicPartition(topic.decode(), index) for topic, each in sorted(target.items()) for index in each
        ]
        for member_id, target in targets.items()
    }


def rightful(claims: Mapping[str, Claim]) -> dict[str, list[TopicPartition]]:
    """What each member may keep of what it claims."""
    claimants: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member_id, claim in claims.items():
        for at in set(claim.partitions):
            claimants.setdefault(at, []).append((claim.generation, member_id))
    kept: dict[str, list[TopicPartition]] = {member_id: [] for member_id in claims}
    for at, those in claimants.items():
        generation, member_id = max(those)
        if [each for each, _ in those].count(generation) == 1:
            kept[member_id].append(at)
    return kept


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    is_cooperative = True

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
        claims = {member_id: _claim(member) for member_id, member in members.items()}
        balanced = share(members, partitions, claims)
        owners: dict[TopicPartition, set[str]] = {}
        for member_id, claim in claims.items():
            for at in claim.partitions:
                owners.setdefault(at, set()).add(member_id)
        return {
            member_id: [at for at in wanted if not owners.get(at, set()) - {member_id}]
            for member_id, wanted in balanced.items()
        }

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return generation.to_bytes(4, "big", signed=True)


def _claim(member: GroupMember) -> Claim:
    generation, user_data = member.generation, member.user_data
    if generation == NO_GENERATION and user_data is not None and len(user_data) >= 4:
        generation = int.from_bytes(user_data[:4], "big", signed=True)
    return Claim(member.owned, generation)


ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]
