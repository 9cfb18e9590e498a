"""Our assignors beside Java's, on the same groups in the same bytes: members of both may lead one group."""

from __future__ import annotations

import base64
import subprocess
from random import Random
from typing import NamedTuple

from headrace.client.assignors import ASSIGNORS, Assignment, GroupMember
from headrace.client.cluster import TopicPartition
from headrace.client.membership.classic_protocol import (
    LastAssignment,
    read_assignment,
    read_subscription,
    write_subscription,
)
from interop.java_tools import compiled

GENERATION = 5
GROUPS = 150


class Described(NamedTuple):
    assignor: str
    sizes: dict[str, int]
    members: dict[str, tuple[str | None, bytes]]  # instance id and subscription

    def lines(self) -> list[str]:
        return [
            f"assignor {self.assignor}",
            *(f"topic {topic} {size}" for topic, size in self.sizes.items()),
            *(
                f"member {member_id} {instance_id or '-'} {base64.b64encode(metadata).decode()}"
                for member_id, (instance_id, metadata) in self.members.items()
            ),
            "",
        ]

    def ours(self) -> Assignment:
        members: dict[str, GroupMember] = {
            member_id: read_subscription(metadata, instance_id)
            for member_id, (instance_id, metadata) in self.members.items()
        }
        wanted = {topic for member in members.values() for topic in member.topics}
        return ASSIGNORS[self.assignor].assign(
            members, {topic: size for topic, size in self.sizes.items() if topic in wanted}
        )


def described(rng: Random, assignor: str) -> Described:
    """A random group that has nothing yet."""
    sizes = {f"t{number}": rng.randrange(1, 9) for number in range(rng.randrange(1, 5))}
    members: dict[str, tuple[str | None, bytes]] = {}
    alike = rng.random() < 0.5
    common = rng.sample(sorted(sizes), rng.randrange(1, len(sizes) + 1))
    for number in range(rng.randrange(1, 7)):
        topics = common if alike else rng.sample(sorted(sizes), rng.randrange(1, len(sizes) + 1))
        instance_id = f"i{9 - number}" if rng.random() < 0.3 else None
        members[f"m{number}"] = (instance_id, subscription(assignor, topics, frozenset()))
    return Described(assignor, sizes, members)


def subscription(assignor: str, topics: list[str], had: frozenset[TopicPartition]) -> bytes:
    return write_subscription(
        ASSIGNORS[assignor],
        topics=topics,
        owned=had if assignor == "cooperative-sticky" else (),
        generation=GENERATION,
        last=LastAssignment(had, GENERATION),
        rack=None,
    )


def javas(groups: list[Described]) -> list[dict[str, frozenset[TopicPartition]]]:
    text = "\n".join(line for group in groups for line in group.lines()) + "\n"
    command = ["java", "-Xmx256m", "-cp", compiled(), "Assignors"]
    told = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=120)
    answers: list[dict[str, frozenset[TopicPartition]]] = []
    shares: dict[str, frozenset[TopicPartition]] = {}
    for line in told.stdout.splitlines():
        if line:
            member_id, assignment = line.split(" ")
            shares[member_id] = read_assignment(base64.b64decode(assignment))
        else:
            answers.append(shares)
            shares = {}
    return answers


def as_sets(assignment: Assignment) -> dict[str, frozenset[TopicPartition]]:
    return {member_id: frozenset(share) for member_id, share in assignment.items()}


def test_range_and_roundrobin_give_what_java_gives() -> None:
    rng = Random(1)
    groups = [described(rng, name) for name in ("range", "roundrobin") for _ in range(GROUPS)]
    answers = javas(groups)
    assert len(answers) == len(groups)
    for group, answer in zip(groups, answers):
        assert as_sets(group.ours()) == answer, group


def test_java_reads_what_our_sticky_members_had() -> None:
    """A Java leader leaves a group of ours as it is, if our share is balanced and nothing changed."""
    rng = Random(2)
    first = [described(rng, name) for name in ("sticky", "cooperative-sticky") for _ in range(GROUPS)]
    settled = [rejoined(group, as_sets(group.ours())) for group in first]
    answers = javas(settled)
    assert len(answers) == len(settled)
    for group, answer in zip(settled, answers):
        assert as_sets(group.ours()) == answer, group


def rejoined(group: Described, shares: dict[str, frozenset[TopicPartition]]) -> Described:
    """The same members, with what they were given."""
    members: dict[str, tuple[str | None, bytes]] = {}
    for member_id, (instance_id, metadata) in group.members.items():
        topics = sorted(read_subscription(metadata, None).topics)
        members[member_id] = instance_id, subscription(group.assignor, topics, shares[member_id])
    return group._replace(members=members)


def test_shares_are_as_even_as_javas() -> None:
    """Of members who want the same. Where wishes differ, Java also looks for chains of moves; we do not."""
    rng = Random(3)
    groups = [group for group in (described(rng, "sticky") for _ in range(GROUPS)) if is_alike(group)]
    assert len(groups) > GROUPS // 3
    for group, answer in zip(groups, javas(groups)):
        ours = as_sets(group.ours())
        assert sorted(map(len, ours.values())) == sorted(map(len, answer.values())), group


def is_alike(group: Described) -> bool:
    return len({read_subscription(metadata, None).topics for _, metadata in group.members.values()}) == 1
