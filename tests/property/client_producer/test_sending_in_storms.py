"""The sending machine before a real node, while the network loses, delays and repeats and the node crashes.

Whatever happens on the way: what is acknowledged is in the log where the delivery says, once; what a
partition got is in the order in which it was sent; and when the storm is over, all arrives.
"""

from __future__ import annotations

import pytest

from harness.producer_simulation import ProducerSimulation
from headrace.client.producer._batch import Delivery
from headrace.client.producer.rejections import BufferFull

STEPS = 250


def storm(simulation: ProducerSimulation, sent: dict[int, list[tuple[bytes, Delivery]]]) -> None:
    simulation.learn_topic()
    number = 0
    for _ in range(STEPS):
        simulation.cause_trouble()
        for _ in range(simulation.rng.randrange(3)):
            partition = simulation.rng.randrange(simulation.partitions)
            value = b"%d:%d:" % (partition, number) + b"x" * simulation.rng.randrange(120)
            try:
                delivery = simulation.send(partition, value)
            except BufferFull:
                continue
            sent[partition].append((value, delivery))
            number += 1


@pytest.mark.parametrize("seed", range(60))
def test_with_idempotence_every_record_arrives_once_and_in_order(seed: int) -> None:
    simulation = ProducerSimulation(
        seed, partitions=3, linger_s=0.01 * (seed % 3), codec=seed % 5, request_timeout_s=5.0
    )
    sent: dict[int, list[tuple[bytes, Delivery]]] = {partition: [] for partition in range(3)}
    storm(simulation, sent)
    simulation.settle()
    for ghost in simulation.network.ghosts:
        while simulation.network.deliver(ghost):
            pass
    for partition, records in sent.items():
        rows = simulation.log(partition)
        assert [row.value for row in rows] == [value for value, _ in records]
        assert [row.offset for row in rows] == [delivery.result().offset for _, delivery in records]
    assert simulation.accumulator.buffered_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_without_idempotence_nothing_is_lost_and_one_request_at_a_time_keeps_the_order(seed: int) -> None:
    """Repeats are allowed then; but the first of each value is in order, and all are there."""
    simulation = ProducerSimulation(seed, partitions=2, linger_s=0.0, is_idempotent=False, in_flight_max=1)
    sent: dict[int, list[tuple[bytes, Delivery]]] = {partition: [] for partition in range(2)}
    storm(simulation, sent)
    simulation.settle()
    for partition, records in sent.items():
        firsts = list(dict.fromkeys(simulation.values(partition)))
        assert firsts == [value for value, _ in records]


@pytest.mark.parametrize("seed", range(30))
def test_one_request_at_a_time_keeps_the_order_when_leaders_change(seed: int) -> None:
    """The limit of requests is per broker: a batch that waits for the old leader's answer must hold back the
    next one, which would go to the new leader, or the first is written behind the second.
    """
    simulation = ProducerSimulation(
        seed, partitions=2, brokers=3, linger_s=0.0, is_idempotent=False, in_flight_max=1
    )
    sent: dict[int, list[tuple[bytes, Delivery]]] = {partition: [] for partition in range(2)}
    storm(simulation, sent)
    simulation.settle()
    for partition, records in sent.items():
        firsts = list(dict.fromkeys(simulation.values(partition)))
        assert firsts == [value for value, _ in records]


@pytest.mark.parametrize("seed", range(20))
def test_with_idempotence_leaders_may_change_in_the_middle(seed: int) -> None:
    simulation = ProducerSimulation(seed, partitions=2, brokers=3, linger_s=0.0, request_timeout_s=5.0)
    sent: dict[int, list[tuple[bytes, Delivery]]] = {partition: [] for partition in range(2)}
    storm(simulation, sent)
    simulation.settle()
    for partition, records in sent.items():
        assert simulation.values(partition) == [value for value, _ in records]


@pytest.mark.parametrize("seed", range(30))
def test_what_expires_is_told_and_the_rest_keeps_its_order(seed: int) -> None:
    """Delivery times out in the middle of storms: some are lost or in doubt, none is there twice.

    Without ghosts: a batch that is sent in a new epoch because one before it expired may meet its own ghost
    of the old epoch, as with Kafka's producer.
    """
    simulation = ProducerSimulation(seed, partitions=2, linger_s=0.0, delivery_s=1.5, request_timeout_s=1.0)
    simulation.has_ghosts = False
    sent: dict[int, list[tuple[bytes, Delivery]]] = {partition: [] for partition in range(2)}
    storm(simulation, sent)
    simulation.settle()
    for partition, records in sent.items():
        values = simulation.values(partition)
        assert len(set(values)) == len(values), "a record is there twice"
        order = {value: place for place, (value, _) in enumerate(records)}
        assert [order[value] for value in values] == sorted(order[value] for value in values)
        delivered = {value for value, delivery in records if delivery.error is None}
        assert delivered <= set(values), "an acknowledged record is not there"
        assert all(delivery.is_done for _, delivery in records)
    assert simulation.accumulator.buffered_bytes == 0
    after = [simulation.send(partition, b"after the storm") for partition in range(2)]
    simulation.settle()
    assert all(delivery.error is None for delivery in after), "a partition is stuck behind what expired"
