"""What stories about groups share: records to read, members that leave in the end, who owns what."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient

from harness.members import CLIENTS, Member, Place
from harness.wait import WAIT_S, eventually

TESTS = Path(__file__).resolve().parents[1]


def places(topic: str, count: int) -> list[Place]:
    return [Place(topic, partition) for partition in range(count)]


def produce(bootstrap: str, topic: str, partitions: int, per_partition: int, first: int = 0) -> list[bytes]:
    """Writes numbered values, `per_partition` of them to each partition, and returns them."""
    sender = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    values = []
    for number in range(first, first + per_partition):
        for partition in range(partitions):
            values.append(b"%d/%d" % (partition, number))
            sender.produce(topic, values[-1], partition=partition)
    assert sender.flush(WAIT_S) == 0
    return values


@contextmanager
def leaving(members: list[Member]) -> Iterator[list[Member]]:
    """Members may be added and taken away; those who are there at the end leave one by one."""
    try:
        yield members
    finally:
        for member in members:
            member.close()


def division(members: Sequence[Member]) -> list[Place]:
    """Every partition as often as it is owned; a member that failed fails the test."""
    for member in members:
        if member.failure is not None:
            raise AssertionError(f"a member of {member.group} ended") from member.failure
    return sorted(place for member in members for place in member.owned)


def is_even(members: Sequence[Member], expected: Sequence[Place]) -> bool:
    """Whether exactly these partitions are owned, each once, by all members evenly."""
    counts = [len(member.owned) for member in members]
    return division(members) == sorted(expected) and max(counts) - min(counts) <= 1


def share(members: Sequence[Member], expected: Sequence[Place]) -> None:
    """Waits until the members own exactly these partitions, evenly.

    Every member gets one at least. Where some get none, this would be true before those have joined, and a
    rebalance would still be to come: `settle` is for them.
    """
    assert len(expected) >= len(members), "a member without a partition may join later: use settle"
    eventually(lambda: (division(members), is_even(members, expected)), (sorted(expected), True))


def settle(members: Sequence[Member], expected: Sequence[Place]) -> None:
    """Waits until every member takes part and owns what the coordinator gave it, these partitions in all.

    No rebalance is to come then, unless something new happens. The coordinator is asked first: a member gives
    up what it had before the coordinator gives it to another one, so that what it owns afterwards is its own.
    """
    admin = AdminClient({"bootstrap.servers": members[0].bootstrap, "log_level": 0})
    group = members[0].group

    def is_settled() -> bool:
        told = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        given = [[(p.topic, p.partition) for p in one.assignment.topic_partitions] for one in told.members]
        owned = [sorted(member.owned) for member in members]
        return told.state is ConsumerGroupState.STABLE and sorted(map(sorted, given)) == sorted(owned)

    eventually(lambda: division(members), sorted(expected))  # the coordinator knows the group from then on
    eventually(lambda: is_settled() and division(members) == sorted(expected), True)


def values_of(members: Sequence[Member]) -> list[bytes]:
    return sorted(received.value for member in members for received in member.received)


def receive(members: Sequence[Member], expected: Sequence[bytes]) -> None:
    """Waits until the members have received these values in all, none of them twice."""
    eventually(lambda: (division(members) and None, values_of(members)), (None, sorted(expected)))


@contextmanager
def doomed(client: str, bootstrap: str, group: str, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own; `kill` it when it has said what it owns."""
    assert client in CLIENTS
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.members", client, bootstrap, group, topic],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
