"""Controllers in memory, in storms: killed nodes, lost page caches, cuts, jobs that are late, snapshots.

It is the machine of `machines/raft` with its driver and its files. After every step: at one offset all nodes
have the same image, and no image goes back. In the end everything heals: what was answered is everywhere.
"""

from __future__ import annotations

from random import Random

import pytest

from harness.controllers import Controller, Controllers
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.machines.metadata.snapshot import image_hash
from headrace.protocol.metadata_records import ConfigRecord
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE

SEEDS = 24
STEPS = 120
BROKER = 4
QUEUES = ("quorum", "metadata", "snapshot", CHECKPOINT_QUEUE)


class Storm:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        settings = {"metadata.log.max.record.bytes.between.snapshots": "1500"} if seed % 2 else {}
        self.cluster = Controllers(self.rng.choice((3, 3, 5)), settings=settings)
        self.hashes: dict[int, str] = {}  # by committed offset
        self.offsets: dict[tuple[int, int], int] = {}  # of each node's life
        self.answered: list[str] = []
        self.asked: list[tuple[Controller, int, int, int, str]] = []  # node, life, epoch, offset and name

    def run(self) -> None:
        self.cluster.start()
        for step in range(STEPS):
            self.step(step)
            self.look()
        self.heal()

    def step(self, number: int) -> None:
        rng, cluster = self.rng, self.cluster
        one = rng.choice(list(cluster.nodes.values()))
        other = rng.choice(list(cluster.nodes))
        match rng.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9:
                for each in cluster.nodes.values():
                    self.propose(each, f"k{number}")
            case 10 | 11:
                if one.node is not None:
                    one.kill(how=rng.choice(("killed", "lost")))
            case 12:
                for each in cluster.nodes.values():
                    if each.node is not None and rng.random() < 0.7:
                        each.kill(how="lost")
            case 13 | 14 | 15:
                for each in cluster.nodes.values():
                    if each.node is None and rng.random() < 0.8:
                        each.start()
            case 16:
                cluster.cuts |= {(one.id, other), (other, one.id)}
            case 17:
                cluster.cuts.clear()
            case 18:
                if rng.random() < 0.5:
                    one.runs_jobs = False
                else:
                    one.slow_queues.add(rng.choice(QUEUES))
            case _:
                if one.node is not None:
                    one.run_jobs()
        cluster.run(rng.expovariate(4))

    def propose(self, one: Controller, name: str) -> None:
        """A change by whoever believes to lead."""
        if one.node is None or not one.metadata.is_active:
            return
        record = ConfigRecord(resource_type=BROKER, resource_name="", name=name, value="1")
        metadata = one.metadata
        end = metadata.propose(self.cluster.clock.now(), MetadataDecision(None, [record]))
        self.asked.append((one, one.life, metadata.leader_epoch, end, name))
        one.settle()

    def look(self) -> None:
        for one in self.cluster.nodes.values():
            if one.node is None:
                continue
            assert not one.halted, one.halted
            metadata = one.metadata
            metadata.quorum.check()
            offset = metadata.committed_offset
            assert offset >= self.offsets.get((one.id, one.life), 0)
            self.offsets[one.id, one.life] = offset
            if offset:
                told = image_hash(metadata.image)
                assert self.hashes.setdefault(offset, told) == told, f"node {one.id} at offset {offset}"
        for asked in list(self.asked):
            one, life, epoch, end, name = asked
            if one.life != life or one.node is None or one.metadata.leader_epoch != epoch:
                self.asked.remove(asked)  # nobody was answered
            elif one.metadata.committed_offset >= end:
                self.asked.remove(asked)
                self.answered.append(name)

    def heal(self) -> None:
        cluster = self.cluster
        cluster.cuts.clear()
        for one in cluster.nodes.values():
            if one.node is None:
                one.start()
            one.run_jobs()
        cluster.run(10.0)
        leader = cluster.leader()
        assert leader is not None, {one.id: one.metadata.quorum.role.name for one in cluster.nodes.values()}
        self.propose(leader, "healed")
        cluster.run(2.0)
        self.look()
        assert "healed" in self.answered
        for one in cluster.nodes.values():
            known = one.metadata.image.cluster_config
            assert not set(self.answered) - known.keys(), f"node {one.id} lacks what was answered"


@pytest.mark.parametrize("first", range(0, SEEDS, 6))
def test_storms(first: int) -> None:
    answered = 0
    for seed in range(first, first + 6):
        storm = Storm(seed)
        storm.run()
        answered += len(storm.answered)
    assert answered > 30, "most changes get lost: these storms show nothing"
