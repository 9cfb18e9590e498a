"""A second replica of a partition of one node: in sync by name, and fetching when the test says so."""

from __future__ import annotations

from headrace.base.ids import BrokerId
from headrace.machines.replication.leader import NO_BROKER_EPOCH, PartitionChanged, ReplicaFetched
from headrace.node.partition import Partition
from headrace.simulator.manual_host import ManualHost

SECOND = BrokerId(2)


def add_second(host: ManualHost, partition: Partition) -> None:
    """From now on nothing is committed before it was fetched."""
    now, leader = host.clock.now(), partition.leader
    assert leader is not None
    partition.opened(now)
    both = (leader.id, SECOND)
    change = PartitionChanged(leader.partition_epoch + 1, both, both)
    partition.carry_out(now, leader.step(now.mono, change))


def second_fetches(host: ManualHost, partition: Partition, offset: int) -> None:
    """It has everything before the offset."""
    now, leader = host.clock.now(), partition.leader
    assert leader is not None
    fetched = ReplicaFetched(SECOND, NO_BROKER_EPOCH, leader.epoch, offset)
    partition.carry_out(now, leader.step(now.mono, fetched))
    host.node.wake(now)
    host.settle()
