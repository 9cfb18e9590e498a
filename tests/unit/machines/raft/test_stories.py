"""Stories of whole quorums: commands, and under each what the nodes did until the next one.

    voters 1 2 3        nodes that vote, which are not started yet
    observers 4         nodes that do not vote
    start 1 2 3         starts nodes
    wait 500            milliseconds
    propose x           appended by the leader of the highest epoch
    kill 1              without a goodbye; what was not synced is lost
    stop 1              with a goodbye; the process goes on until it is killed
    snapshot 1          of all that is committed; its log begins there
    fail append 1       the disk of 1 takes no records
    fail snapshot 1     nor the piece of a snapshot
    lose 1              the disk of 1, which is down, is replaced by an empty one
    pieces 2            as many entries at most in one answer
    cut 1 2             nothing passes between two nodes
    heal                everything passes
    show                the role of every node

Every message takes 1 ms, every flush 1 ms. To record what changed, run this module with RETELL=1 in the
environment, and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from harness.stories import retold
from headrace.machines.raft.messages import AppendFailed, Effect, SnapshotFailed
from headrace.simulator.quorum.descriptions import describe
from headrace.simulator.quorum.host import QuorumHost
from headrace.simulator.quorum.simulation import QuorumSimulation
from headrace.simulator.world import World

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


class Teller:
    def __init__(self) -> None:
        world = World(0)
        world.clock.mono = 0.0  # the time since the beginning is told
        self.simulation = QuorumSimulation(world)
        self.simulation.machine_rng = Random(1)
        world.rng.seed(0)
        self.simulation.watch = self._watch
        self.told: list[str] = []

    def _watch(self, host: QuorumHost, effect: Effect) -> None:
        self.told.append(f"{self.simulation.now * 1000:6.0f} ms  {host.id}: {describe(effect)}")

    def answers(self, words: list[str]) -> Iterable[str]:
        self.told = []
        simulation = self.simulation
        match words:
            case ["voters", *ids]:
                simulation.add([int(id) for id in ids])
            case ["observers", *ids]:
                simulation.observe([int(id) for id in ids])
            case ["start", *ids]:
                for id in ids:
                    simulation.hosts[int(id)].start()
            case ["wait", milliseconds]:
                simulation.wait(int(milliseconds) / 1000)
            case ["propose", value]:
                leader = simulation.leader()
                assert leader is not None
                leader.propose(value)
            case ["kill", id]:
                host = simulation.hosts[int(id)]
                host.entries = list(host.disk.entries)
                host.crash()
            case ["stop", id]:
                simulation.stop(simulation.hosts[int(id)])
            case ["snapshot", id]:
                simulation.hosts[int(id)].make_snapshot()
            case ["fail", "append", id]:
                simulation.hosts[int(id)].step(AppendFailed())
            case ["fail", "snapshot", id]:
                simulation.hosts[int(id)].step(SnapshotFailed())
            case ["lose", id]:
                simulation.hosts[int(id)].lose_disk()
            case ["pieces", size]:
                simulation.fetched_max = int(size)
            case ["cut", first, second]:
                simulation.cut(int(first), int(second))
            case ["heal"]:
                simulation.cuts.clear()
            case ["show"]:
                self.told = [_shown(host) for host in simulation.hosts.values()]
            case _:
                raise AssertionError(words)
        return self.told


def _shown(host: QuorumHost) -> str:
    quorum = host.quorum
    if quorum is None:
        return f"{host.id}: down"
    deadline = quorum.deadline()
    until = f", until {deadline * 1000:.0f} ms" if deadline is not None else ""
    traits = ("is_active", "may_decide", "is_caught_up", "is_stopping")
    shown = "".join(f", {trait}" for trait in traits if getattr(quorum, trait))
    return (
        f"{host.id}: {quorum.role.name} in epoch {quorum.epoch}, log {len(host.entries)}, "
        f"high watermark {quorum.high_watermark}{until}{shown}"
    )


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_quorum_tells_the_story_again(path: Path) -> None:
    story = path.read_text()
    told = retold(story, Teller().answers)
    if os.environ.get("RETELL"):
        path.write_text(told)
    assert told == story
