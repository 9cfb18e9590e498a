"""The `sticky` assignor: equal shares, and as few partitions as possible change hands.

Members of the eager protocol give everything up before they join, so each tells in its user data what it had
and since which generation. The bytes are Java's and librdkafka's:

    previous_assignment: array of (topic: string, partitions: array of int32), generation: int32

Where two members claim one partition, the later generation is right; of two claims of one generation neither
is believed.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.assignors.model import NO_GENERATION, Assignment, GroupMember, by_topic, seats
from headrace.client.cluster import TopicPartition
from headrace.machines.groups.assignors.model import Subscriber
from headrace.machines.groups.assignors.uniform import assign_uniformly
from headrace.protocol.compiler import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.notation import INT32, STRING, Data, Struct, array, field


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
    """What the member had; nothing if the bytes are not ours: a balance can be found without."""
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
