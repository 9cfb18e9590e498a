"""Random histories of three brokers that replicate: links break, leaders move, nothing acknowledged is lost.

`tests/property/machines/test_replication_histories.py` does the same with the machines alone, and with
crashes. Here it is the brokers' own code: fetchers, feeds, logs, jobs, parked answers.
"""

from __future__ import annotations

from random import Random

import pytest

from harness.replica_brokers import ReplicaBrokers
from headrace.node.connection import Connection
from headrace.simulator.manual_host import ManualHost

STEPS = 120
SEEDS = 12


class History:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.brokers = ReplicaBrokers()
        self.brokers.create_topic(min_insync_replicas="2", index_interval_bytes="100")
        self.value = 0
        self.asked: list[tuple[bytes, ManualHost, Connection]] = []
        self.acked: list[bytes] = []

    def run(self) -> None:
        acts = (
            (self.produce, 30),
            (self.brokers.move, 40),
            (self.pass_time, 10),
            (self.brokers.control, 8),
            (self.cut, 3),
            (self.brokers.heal, 3),
            (self.elect, 4),
            (self.hold_jobs, 3),
        )
        for act in self.rng.choices([act for act, _ in acts], [weight for _, weight in acts], k=STEPS):
            act()
            self.collect()
        self.settle()

    def produce(self) -> None:
        leader = self.brokers.state().leader
        self.value += 1
        value = b"%06d" % self.value * self.rng.randint(1, 20)
        acks = self.rng.choice((-1, -1, 1))
        host, connection = self.brokers.produce(leader, value, acks=acks, timeout_ms=3_000)
        if acks == -1:
            self.asked.append((value, host, connection))

    def collect(self) -> None:
        still: list[tuple[bytes, ManualHost, Connection]] = []
        for value, host, connection in self.asked:
            response = host.receive(connection)
            if response is None:
                still.append((value, host, connection))
            elif response.responses[0].partition_responses[0].error_code == 0:
                self.acked.append(value)
        self.asked = still

    def pass_time(self) -> None:
        self.brokers.advance(self.rng.choice((0.05, 0.3, 1.5)))

    def cut(self) -> None:
        self.brokers.separate(*self.rng.sample(self.brokers.ids, 2))

    def elect(self) -> None:
        """A clean election: one of those that are in sync."""
        isr = self.brokers.state().isr
        self.brokers.lead(self.rng.choice(isr), isr)

    def hold_jobs(self) -> None:
        host = self.brokers.hosts[self.rng.choice(self.brokers.ids)]
        host.runs_jobs = not host.runs_jobs
        if host.runs_jobs:
            host.run_jobs()

    def settle(self) -> None:
        for host in self.brokers.hosts.values():
            host.runs_jobs = True
            host.run_jobs()
        self.brokers.heal()
        for _ in range(6):
            self.brokers.advance(1.5)
            self.brokers.control()
        self.collect()

    def check(self) -> None:
        brokers = self.brokers
        contents = {brokers.content(id) for id in brokers.ids}
        assert len(contents) == 1, "replicas differ"
        assert set(brokers.state().isr) == set(brokers.ids)
        kept = brokers.values(1)
        assert [value for value in self.acked if value not in kept] == []
        ends = {brokers.partition(id).opened(brokers.clock.now()).log_end_offset for id in brokers.ids}
        assert ends == {brokers.partition(id).high_watermark for id in brokers.ids}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replicas_are_equal_in_the_end_and_have_all_that_was_acknowledged(seed: int) -> None:
    history = History(seed)
    history.run()
    history.check()
    assert history.acked
