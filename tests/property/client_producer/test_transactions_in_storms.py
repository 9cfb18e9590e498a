"""Transactions before a real node while the network and the node fail: all or nothing, and in order.

A producer writes transaction after transaction to several partitions; some it aborts itself, some fail and
are aborted, and now and then another producer with the same transactional id takes over. Whoever reads only
what is committed sees exactly the committed transactions, whole, in every partition.
"""

from __future__ import annotations

import pytest

from harness.producer_simulation import TOPIC, ProducerSimulation
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, ProducerUnusable, TransactionMustAbort
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.steps import Pending
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

TRANSACTIONS = 6
GROUP = "g"


def play(simulation: ProducerSimulation, pending: Pending[None]) -> ClientError | None:
    """Through the storm until it is done; then the storm is over, if it takes too long."""
    for _ in range(400):
        if pending.is_done:
            return pending.error
        simulation.cause_trouble()
    try:
        simulation.run(pending)
    except ClientError as error:
        return error
    return None


def committed_offset(simulation: ProducerSimulation) -> int:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=GROUP, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            )
        ],
        require_stable=True,
    )
    # who never had offsets has no coordinator yet either
    simulation.host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
    for _ in range(50):
        (group,) = simulation.host.ask(request, 8).groups
        if not group.error_code and not group.topics[0].partitions[0].error_code:
            return int(group.topics[0].partitions[0].committed_offset)
        simulation.host.advance(0.5)
    raise AssertionError("the group's offsets cannot be read")


def transaction(
    simulation: ProducerSimulation, number: int, offset: int | None, sent: dict[int, list[bytes]]
) -> bool:
    """Whether it was committed; `sent` is filled with what belongs to it."""
    session = simulation.session
    session.begin()
    for partition in range(simulation.partitions):
        for place in range(simulation.rng.randrange(4)):
            value = b"%d.%d.%d" % (number, partition, place)
            simulation.send(partition, value)
            sent.setdefault(partition, []).append(value)
            if simulation.rng.randrange(3) == 0:
                simulation.cause_trouble()
    error: ClientError | None = None
    try:
        if offset is not None:
            offsets = {TopicPartition(TOPIC, 0): CommittedOffset(offset)}
            error = play(simulation, session.send_offsets(offsets, GroupMembership(GROUP)))
        if error is None and simulation.rng.randrange(4):
            error = play(simulation, session.commit())
            if error is None:
                return True
    except TransactionMustAbort as doomed:
        error = doomed
    assert not session.is_fatal, session.error
    assert play(simulation, session.abort()) is None
    return False


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("seed", range(16))
def test_transactions_are_all_or_nothing(seed: int, transaction_version: int) -> None:
    simulation = ProducerSimulation(
        seed,
        partitions=3,
        transaction_version=transaction_version,
        transactional_id="tx",
        linger_s=0.0,
        batch_bytes=150,
        delivery_s=60.0,
    )
    simulation.learn_topic()
    assert play(simulation, simulation.session.init()) is None
    expected: dict[int, list[bytes]] = {partition: [] for partition in range(3)}
    expected_offset = -1
    for number in range(TRANSACTIONS):
        sent: dict[int, list[bytes]] = {}
        offset = number if simulation.rng.randrange(2) else None
        if transaction(simulation, number, offset, sent):
            for partition, values in sent.items():
                expected[partition] += values
            if offset is not None:
                expected_offset = offset
    for ghost in simulation.network.ghosts:
        while simulation.network.deliver(ghost):
            pass
    simulation.host.advance(5.0)
    seen = {partition: simulation.values(partition, committed_only=True) for partition in range(3)}
    assert seen == expected
    assert committed_offset(simulation) == expected_offset


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_who_takes_over_fences_who_was_there(seed: int, transaction_version: int) -> None:
    first = ProducerSimulation(
        seed, partitions=2, transaction_version=transaction_version, transactional_id="tx", linger_s=0.0
    )
    first.learn_topic()
    first.run(first.session.init())
    first.session.begin()
    first.send(0, b"of the first")
    for _ in range(seed):
        first.cause_trouble()
    second = ProducerSimulation(seed, partitions=2, host=first.host, transactional_id="tx", linger_s=0.0)
    second.learn_topic()
    second.run(second.session.init())
    second.session.begin()
    second.send(0, b"of the second")
    second.run(second.session.commit())

    with pytest.raises((ProducerUnusable, TransactionMustAbort)):
        first.run(first.session.commit())
    if not first.session.is_fatal:
        with pytest.raises(ProducerUnusable):
            first.run(first.session.abort())
    with pytest.raises(ProducerUnusable):
        first.session.begin()
    assert second.values(0, committed_only=True) == [b"of the second"]
