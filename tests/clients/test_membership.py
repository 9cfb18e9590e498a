"""Our own group machine over sockets: alone, and in one group with members of other clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clients.grouping import leaving, places, share
from harness.group_sockets import HeadraceMember
from harness.members import ASSIGNORS as THEIR_ASSIGNORS
from harness.members import CLIENTS, Committed, Member
from headrace.client.assignors import ASSIGNORS
from headrace.client.membership.settings import GroupProtocol

WAYS: dict[str, dict[str, Any]] = {
    **{name: {"assignors": (assignor,)} for name, assignor in ASSIGNORS.items()},
    "consumer": {"protocol": GroupProtocol.CONSUMER},
}
MIXES = [
    *((rule, client) for rule, clients in THEIR_ASSIGNORS.items() for client in clients),
    ("consumer", "confluent-kafka-consumer"),
]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_members_share_and_take_over_from_those_who_leave(
    bootstrap: str, new_topic: Callable[..., str], way: dict[str, Any]
) -> None:
    topic = new_topic(partitions=6)
    every = places(topic, 6)
    with leaving([HeadraceMember(bootstrap, topic, [topic], **way)]) as members:
        share(members, every)
        for _ in range(2):
            members.append(HeadraceMember(bootstrap, topic, [topic], **way))
        share(members, every)
        members.pop(0).close()
        share(members, every)


@pytest.mark.parametrize(("rule", "client"), MIXES)
def test_a_group_of_two_kinds(bootstrap: str, new_topic: Callable[..., str], rule: str, client: str) -> None:
    """Each of them leads once: what one writes into its subscription, the other reads."""
    topic = new_topic(partitions=6)
    every = places(topic, 6)
    theirs = THEIR_ASSIGNORS.get(rule, {}).get(client, {})

    def ours() -> Member:
        return HeadraceMember(bootstrap, topic, [topic], **WAYS[rule])

    def another() -> Member:
        return CLIENTS[client](bootstrap, topic, [topic], **theirs)

    with leaving([ours()]) as members:
        share(members, every)
        members.append(another())
        share(members, every)
        members.pop(0).close()
        share(members, every)
        members.append(ours())
        share(members, every)


@pytest.mark.parametrize("way", [WAYS["range"], WAYS["consumer"]], ids=["classic", "consumer"])
def test_offsets_are_the_groups(bootstrap: str, new_topic: Callable[..., str], way: dict[str, Any]) -> None:
    topic = new_topic(partitions=2)
    first, second = places(topic, 2)
    with leaving([HeadraceMember(bootstrap, topic, [topic], **way)]) as members:
        share(members, [first, second])
        members[0].commit({first: Committed(3)})
        assert members[0].committed(first) == Committed(3)
        assert members[0].committed(second) is None
        members[0].commit({second: Committed(4, "note")})
        assert members[0].committed(second) == Committed(4, "note")
    client = "confluent-kafka" if way is WAYS["range"] else "confluent-kafka-consumer"
    with leaving([CLIENTS[client](bootstrap, topic, [topic])]) as members:
        share(members, [first, second])
        assert members[0].committed(first) == Committed(3)
