"""Disk calls of one of three controllers fail in turn: while it follows, leads, and gets a snapshot.

What has run out costs only time: in the end all have the same metadata. After any other error that node alone
is out of service, and the others go on deciding.
"""

from __future__ import annotations

import errno
from itertools import count

import pytest

from harness.controllers import Controller, Controllers
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.image import Endpoint
from headrace.machines.metadata.snapshot import image_hash
from headrace.machines.metadata.versions import SUPPORTED_FEATURES
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.storage.faulty_disk import CHANGES, SPACE_NEEDING, Fail, Fault, FaultyDisk, Operation
from headrace.storage.memory_disk import MemoryDisk

SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "broker.session.timeout.ms": "3600000",  # nobody runs the one that is registered
}
CALLS_MIN = 10  # that each kind of fault must have met


class Story:
    """The victim is cut off for a while, in which the others decide so much that it needs a snapshot."""

    def __init__(self, victim: int, *faults: Fault) -> None:
        self.cluster = cluster = Controllers(settings=SETTINGS)
        self.victim = cluster.nodes[victim]
        self.disk = FaultyDisk(MemoryDisk())
        self.victim.disk = self.disk
        self.created: list[str] = []
        cluster.start()
        leader = cluster.elected()
        self._register_broker(leader)
        self.create("first")
        self.disk.faults = list(faults)
        self.create("second")
        others = [id for id in cluster.nodes if id != victim]
        cluster.cuts |= {cut for other in others for cut in ((victim, other), (other, victim))}
        cluster.run(4.0)
        for number in range(12):
            self.create(f"topic-{number}")
        cluster.cuts.clear()
        cluster.run(3.0)
        self.create("last")
        cluster.run(1.0)

    def _register_broker(self, leader: Controller) -> None:
        registration = Registration(
            broker=9,
            incarnation_id=b"i" * 16,
            endpoints={"PLAINTEXT": Endpoint("127.0.0.1", 9009, 0)},
            features=SUPPORTED_FEATURES,
            rack=None,
            directories=[b"d" * 16],
        )
        decisions = leader.up.controller.decisions
        decision = decisions.register_broker(registration, leader.metadata.end_offset, is_local=True)
        leader.metadata.propose(self.cluster.clock.now(), decision)
        leader.settle()

    def create(self, name: str) -> None:
        """Whoever leads is asked until one has done it."""
        wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=1000)
        for _ in range(20):
            active = [one for one in self.cluster.nodes.values() if one.node and one.metadata.is_active]
            for leader in sorted(active, key=lambda one: -one.metadata.leader_epoch):
                response = self.cluster.ask(leader, request, 7, seconds=1.5)
                code = None if response is None else ErrorCode(response.topics[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self.created.append(name)
                    return
            self.cluster.run(0.5)
        raise AssertionError(f"nobody creates {name}")

    def images(self, *nodes: Controller) -> set[str]:
        for one in nodes:
            assert not one.halted, one.halted
            assert sorted(one.metadata.image.topics) == sorted(self.created), one.id
        return {str(image_hash(one.metadata.image)) for one in nodes}


def test_without_faults_all_have_the_same_and_the_victim_by_a_snapshot() -> None:
    story = Story(1)
    nodes = list(story.cluster.nodes.values())
    assert len(story.images(*nodes)) == 1
    assert any(name.endswith(".checkpoint") for name in story.disk.list("__cluster_metadata-0"))


@pytest.mark.parametrize(("victim", "times"), [(1, 1), (2, 3), (3, 2)])
def test_what_has_run_out_costs_only_time(victim: int, times: int) -> None:
    for skip in count(victim, step=7):
        fault = Fault(Fail(errno.ENOSPC), SPACE_NEEDING, skip=skip, times=times)
        story = Story(victim, fault)
        if fault.times == times:
            assert skip > CALLS_MIN
            return
        story.disk.faults = []
        story.cluster.run(5.0)
        story.create("after")
        story.cluster.run(2.0)
        assert len(story.images(*story.cluster.nodes.values())) == 1, f"call {skip}"
        assert not story.victim.halted, f"call {skip}"


@pytest.mark.parametrize(
    ("victim", "operations"),
    [(1, CHANGES), (2, CHANGES), (3, frozenset[Operation](("read", "open", "list")))],
    ids=["1-changes", "2-changes", "3-reads"],
)
def test_an_io_error_costs_the_node_and_no_decision(victim: int, operations: frozenset[Operation]) -> None:
    failed = 0
    for skip in count(victim, step=7):
        fault = Fault(Fail(errno.EIO), operations, skip=skip)
        story = Story(victim, fault)
        if fault.times:
            break
        others = [one for one in story.cluster.nodes.values() if one is not story.victim]
        assert len(story.images(*others)) == 1, f"call {skip}"
        is_out = story.victim.halted or story.victim.up.directories["data"].is_offline
        failed += bool(is_out)
        if not is_out:
            assert story.images(story.victim) == story.images(others[0]), f"call {skip}"
    assert failed or "read" in operations
