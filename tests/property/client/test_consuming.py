"""A consumer against the obvious model of one: a list per partition and the place where one is in it.

Whatever the network does and whatever the application wants in between: records come in order, each once,
none is left out, a paused partition is silent, and a position is where the next record lies.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.consumer_simulation import TOPIC, ConsumerSimulation, Reader
from headrace.client.assignors import ASSIGNORS
from headrace.client.cluster import TopicPartition
from headrace.client.membership.events import Assigned, Lost, Revoked
from headrace.client.settings.consumer import GroupProtocol

PARTITIONS = 3

partition = st.integers(0, PARTITIONS - 1)
action = st.one_of(
    st.tuples(st.just("write"), partition, st.integers(1, 20)),
    st.tuples(st.just("poll"), st.just(0), st.integers(1, 30)),
    st.tuples(st.just("seek"), partition, st.integers(0, 1000)),
    st.tuples(st.just("pause"), partition, st.just(0)),
    st.tuples(st.just("resume"), partition, st.just(0)),
    st.tuples(st.just("storm"), st.just(0), st.integers(1, 20)),
    st.tuples(st.just("wait"), st.just(0), st.integers(1, 30)),
    st.tuples(st.just("reassign"), partition, st.integers(0, 1000)),
    st.tuples(st.just("crash"), st.just(0), st.just(0)),
)


class Model:
    def __init__(self, simulation: ConsumerSimulation, reader: Reader) -> None:
        self.simulation = simulation
        self.reader = reader
        self.written = [0] * PARTITIONS
        self.next = [0] * PARTITIONS
        self.paused: set[int] = set()

    def do(self, kind: str, number: int, amount: int) -> None:
        simulation, session = self.simulation, self.reader.session
        at = TopicPartition(TOPIC, number)
        match kind:
            case "write":
                simulation.write(number, *(b"%d" % (self.written[number] + step) for step in range(amount)))
                self.written[number] += amount
            case "poll":
                self.poll(amount)
            case "seek":
                self.next[number] = amount % (self.written[number] + 1)
                session.seek(simulation.now, at, self.next[number])
            case "pause":
                self.paused.add(number)
                session.pause([at])
            case "resume":
                self.paused.discard(number)
                session.resume([at])
            case "storm":
                for _ in range(amount):
                    self.reader.cause_trouble(simulation.rng)
            case "wait":
                simulation.host.advance(amount / 10)
            case "reassign":
                others = {TopicPartition(TOPIC, each) for each in range(PARTITIONS)} - {at}
                session.assign(simulation.now, others)
                self.next[number] = amount % (self.written[number] + 1)
                self.paused.discard(number)
                session.assign(simulation.now, {**dict.fromkeys(others), at: self.next[number]})
            case "crash":
                simulation.crash()
        self.check()

    def poll(self, count: int) -> None:
        self.reader.max_records = count
        found = self.reader.poll()
        assert len(found) <= count
        for message in found:
            assert message.partition not in self.paused
            assert message.offset == self.next[message.partition]
            assert message.value == b"%d" % message.offset
            self.next[message.partition] += 1

    def check(self) -> None:
        for number in range(PARTITIONS):
            assert self.reader.session.position(TopicPartition(TOPIC, number)) == self.next[number]


@settings(max_examples=60, deadline=None)
@given(st.lists(action, max_size=40), st.integers(0, 1 << 16), st.sampled_from([200, 2000, 1 << 20]))
def test_a_consumer_reads_what_a_list_would_give(actions: list[Any], seed: int, bytes_max: int) -> None:
    simulation = ConsumerSimulation(seed, partitions=PARTITIONS)
    reader = simulation.reader(partition_bytes_max=bytes_max, fetch_bytes_max=3 * bytes_max)
    reader.session.assign(simulation.now, {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)})
    model = Model(simulation, reader)
    for each in actions:
        model.do(*each)
    for number in range(PARTITIONS):
        model.do("resume", number, 0)
    reader.polls = False
    for _ in range(200):
        simulation.run(0.1)
        reader.polls = True
        model.poll(50)
        reader.polls = False
        if model.next == model.written:
            break
    assert model.next == model.written, "when the storm is over, all of it comes"
    assert reader.errors == []


WAYS: list[dict[str, Any]] = [
    {"assignors": (ASSIGNORS["range"],)},
    {"assignors": (ASSIGNORS["cooperative-sticky"],)},
    {"protocol": GroupProtocol.CONSUMER},
]


@pytest.mark.parametrize("seed", range(12))
def test_a_group_in_a_storm_leaves_nothing_out(seed: int) -> None:
    """Members come, go and are cut off, the node crashes: every record is handed out to somebody, and within
    an assignment nobody skips or goes back.
    """
    rng = Random(seed)
    simulation = ConsumerSimulation(seed, partitions=PARTITIONS)
    way = WAYS[seed % len(WAYS)] | {"session_timeout_s": 6.0, "heartbeat_interval_s": 1.0}
    written = [0] * PARTITIONS

    def join() -> None:
        reader = simulation.reader("g", auto_commit_interval_s=0.5, partition_bytes_max=300, **way)
        reader.max_records = 3
        reader.subscribe()

    def write() -> None:
        number = rng.randrange(PARTITIONS)
        simulation.write(number, *(b"%d" % (written[number] + step) for step in range(5)))
        written[number] += 5

    seen: list[set[int]] = [set() for _ in range(PARTITIONS)]
    places: dict[Reader, dict[int, int]] = {}

    def judge(reader: Reader) -> None:
        told = len(reader.events)
        found = reader.poll()
        mine = places.setdefault(reader, {})
        for event in reader.events[told:]:
            if isinstance(event, Assigned | Revoked | Lost):
                for at in event.partitions:
                    mine.pop(at.partition, None)
        for message in found:
            assert mine.get(message.partition, message.offset) == message.offset, "skipped, or gone back"
            mine[message.partition] = message.offset + 1
            seen[message.partition].add(message.offset)

    join()
    for _ in range(400):
        roll = rng.randrange(200)
        if roll < 2 and len(simulation.readers) < 3:
            join()
        elif roll < 3:
            simulation.crash()
        elif roll < 40:
            write()
        elif roll < 80:
            judge(rng.choice(simulation.readers))
        elif roll < 110:
            simulation.host.advance(rng.random() * 0.5)
        else:
            rng.choice(simulation.readers).cause_trouble(rng)
    for _ in range(600):
        for reader in simulation.readers:
            judge(reader)
            while reader.network.exchange():
                pass
        if [len(each) for each in seen] == written:
            break
        simulation.host.advance(0.1)
    assert [sorted(each) for each in seen] == [list(range(count)) for count in written]
