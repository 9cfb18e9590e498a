"""Seeded histories of groups: a network that loses and delays, members and nodes that crash.

The judges of `harness.group_simulation` look on; then the network heals, and the group must settle.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.group_simulation import Application, Faults, GroupSimulation, Member
from headrace.client.assignors import ASSIGNORS
from headrace.client.settings.consumer import GroupProtocol

WAYS: dict[str, dict[str, Any]] = {
    **{name: {"assignors": (assignor,)} for name, assignor in ASSIGNORS.items()},
    "consumer": {"protocol": GroupProtocol.CONSUMER},
}
WISHES = [("a",), ("b",), ("a", "b")]
STEPS = 12
LIVE_MEMBERS_MAX = 4


def live(simulation: GroupSimulation, way: dict[str, Any], faults: Faults) -> None:
    """One history; the last word of each step is random."""
    rng = Random(f"history {simulation.seed}")
    simulation.create_topic("a", 5)
    simulation.create_topic("b", 3)
    simulation.faults = faults
    for _ in range(STEPS):
        simulation.run(rng.random() * 6)
        present = [member for member in simulation.members if member.is_alive and member.subscription]
        match rng.choice(["join", "join", "crash", "leave", "restart", "subscribe", "stall"]):
            case "join" if len(present) < LIVE_MEMBERS_MAX:
                auto_commit_s = rng.choice([None, 1.0])
                simulation.member(
                    *rng.choice(WISHES),
                    application=Application(commits=auto_commit_s is None, poll_every_s=0.25),
                    auto_commit_interval_s=auto_commit_s,
                    instance_id=rng.choice([None, None, f"i{len(simulation.members)}"]),
                    **way,
                )
            case "crash" if present:
                crash(simulation, rng.choice(present), way)
            case "leave" if present:
                rng.choice(present).leave()
            case "subscribe" if present:
                rng.choice(present).subscribe(*rng.choice(WISHES))
            case "stall" if present and faults.loss:
                stall(simulation, rng.choice(present), rng.random() * 30)
            case "restart" if faults.loss:
                simulation.restart_node()
    simulation.faults = Faults()
    simulation.run(35.0)
    simulation.settle()
    assert [member.failure for member in simulation.members if member.failure is not None] == []


def crash(simulation: GroupSimulation, member: Member, way: dict[str, Any]) -> None:
    """A static member comes back at once; in the consumer protocol its session would have to end first."""
    member.crash()
    assert member.subscription is not None
    if member.settings.instance_id is not None and way.get("protocol") is not GroupProtocol.CONSUMER:
        simulation.member(*member.subscription.topics, instance_id=member.settings.instance_id, **way)


def stall(simulation: GroupSimulation, member: Member, seconds: float) -> None:
    """The application hangs for a while. If the group waits for it, the broker may give up on it a heartbeat
    before it does itself: that is no longer a good network.
    """
    member.application.polls = False
    simulation.after(seconds, lambda: setattr(member.application, "polls", True))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_bad_network(way: dict[str, Any], seed: int) -> None:
    live(GroupSimulation(seed, Faults()), way, Faults(jitter_s=0.05, loss=0.04))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_good_network_never_gives_a_partition_to_two(way: dict[str, Any], seed: int) -> None:
    live(GroupSimulation(seed), way, Faults(jitter_s=0.02))
