"""Seeded histories of groups: a network that loses and delays, members and nodes that crash.

The judges of `harness.group_members` look on; then the network heals, and the group must settle.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.group_members import Application, Faults, Member, World
from headrace.client.assignors import ASSIGNORS
from headrace.client.settings.consumer import GroupProtocol

WAYS: dict[str, dict[str, Any]] = {
    **{name: {"assignors": (assignor,)} for name, assignor in ASSIGNORS.items()},
    "consumer": {"protocol": GroupProtocol.CONSUMER},
}
WISHES = [("a",), ("b",), ("a", "b")]
STEPS = 12
LIVE_MEMBERS_MAX = 4


def live(world: World, way: dict[str, Any], faults: Faults) -> None:
    """One history; the last word of each step is the dice's."""
    dice = Random(f"history {world.seed}")
    world.create_topic("a", 5)
    world.create_topic("b", 3)
    world.faults = faults
    for _ in range(STEPS):
        world.run(dice.random() * 6)
        present = [member for member in world.members if member.is_alive and member.subscription]
        match dice.choice(["join", "join", "crash", "leave", "restart", "subscribe", "stall"]):
            case "join" if len(present) < LIVE_MEMBERS_MAX:
                auto_commit_s = dice.choice([None, 1.0])
                world.member(
                    *dice.choice(WISHES),
                    application=Application(commits=auto_commit_s is None, poll_every_s=0.25),
                    auto_commit_interval_s=auto_commit_s,
                    instance_id=dice.choice([None, None, f"i{len(world.members)}"]),
                    **way,
                )
            case "crash" if present:
                crash(world, dice.choice(present), way)
            case "leave" if present:
                dice.choice(present).leave()
            case "subscribe" if present:
                dice.choice(present).subscribe(*dice.choice(WISHES))
            case "stall" if present and faults.loss:
                stall(world, dice.choice(present), dice.random() * 30)
            case "restart" if faults.loss:
                world.restart_node()
    world.faults = Faults()
    world.run(35.0)
    world.settle()
    assert [member.failure for member in world.members if member.failure is not None] == []


def crash(world: World, member: Member, way: dict[str, Any]) -> None:
    """A static member comes back at once; in the consumer protocol its session would have to end first."""
    member.crash()
    assert member.subscription is not None
    if member.settings.instance_id is not None and way.get("protocol") is not GroupProtocol.CONSUMER:
        world.member(*member.subscription.topics, instance_id=member.settings.instance_id, **way)


def stall(world: World, member: Member, seconds: float) -> None:
    """The application hangs for a while. If the group waits for it, the broker may give up on it a heartbeat
    before it does itself: that is no good network any more.
    """
    member.application.polls = False
    world.after(seconds, lambda: setattr(member.application, "polls", True))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_bad_network(way: dict[str, Any], seed: int) -> None:
    live(World(seed, Faults()), way, Faults(jitter_s=0.05, loss=0.04))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_good_network_never_gives_a_partition_to_two(way: dict[str, Any], seed: int) -> None:
    live(World(seed), way, Faults(jitter_s=0.02))
