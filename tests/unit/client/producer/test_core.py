"""After `TimedOut` a transactional call may be made again, as its advice says: it goes on, and gives the
result of the first one, whether that was over meanwhile or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.producer_simulation import TOPIC, NobodyWaits, ProducerSimulation
from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput, TimedOut, TransactionMustAbort
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.producer.arguments import Options
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.transaction import State
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.keys import producer_keys
from headrace.client.steps import Steps, Wait

OFFSETS = {TopicPartition(TOPIC, 0): CommittedOffset(5)}
MEMBER = GroupMembership("g")


class Program:
    """A producer with transactions; what its calls wait for happens when the test says so."""

    def __init__(self) -> None:
        self.simulation = ProducerSimulation()
        settings = {"bootstrap.servers": "broker", "transactional.id": "tx", "linger.ms": 0}
        self.core = ProducerCore(
            Options(Configuration(producer_keys(), settings)),
            NobodyWaits(),
            self.simulation.rng,
            clock=lambda: self.simulation.now,
            wall_ms=lambda: int(self.simulation.host.clock.wall_ms),
        )
        self.simulation.sender = self.simulation.network.session = self.core.sender
        self.simulation.accumulator = self.core.accumulator
        self.simulation.cluster = self.core.sender.cluster
        self.simulation.learn_topic()

    def run(self, steps: Steps[Any], *, closely: bool = False) -> None:
        """The whole call, with all the patience that it needs; `closely`: nothing happens after its end."""
        try:
            step = next(steps)
            while True:
                assert isinstance(step, Wait)
                while not step.is_over():
                    self._pass_a_message() if closely else self._pass_time()
                step = steps.send(True)
        except StopIteration:
            pass

    def run_late(self, steps: Steps[Any]) -> TimedOut:
        """The call's time is over before anything has happened."""
        step = next(steps)
        assert isinstance(step, Wait)
        assert not step.is_over()
        with pytest.raises(TimedOut) as raised:
            steps.send(False)
        return raised.value

    def finish(self) -> None:
        """What is under way goes on while nobody waits for it."""
        for _ in range(100):
            self._pass_time()

    def _pass_time(self) -> None:
        while self.simulation.network.exchange():
            pass
        self.simulation.host.advance(0.05)

    def _pass_a_message(self) -> None:
        self.simulation.network.pump()
        for link in list(self.simulation.network.links.values()):
            if self.simulation.network.hear(link) or self.simulation.network.deliver(link):
                return
        self.simulation.host.advance(0.05)

    def begin(self) -> None:
        self.run(self.core.begin_transaction(None))
        self.simulation.send(0, b"a")


Call = Callable[[ProducerCore], Steps[Any]]
CALLS: dict[str, Call] = {
    "commit_transaction": lambda core: core.commit_transaction(1.0),
    "abort_transaction": lambda core: core.abort_transaction(1.0),
    "send_offsets": lambda core: core.send_offsets(OFFSETS, MEMBER, 1.0),
}


@pytest.mark.parametrize("is_over", [False, True], ids=["still under way", "over meanwhile"])
@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_goes_on_with_the_first(name: str, is_over: bool) -> None:
    program = Program()
    program.begin()
    late = program.run_late(CALLS[name](program.core))
    assert name in late.advice
    if is_over:
        program.finish()
    program.run(CALLS[name](program.core))
    if name == "send_offsets":
        assert sum(request.KEY == 28 for request, _ in program.simulation.network.requests) == 1, (
            "the offsets were sent twice"
        )
        program.run(program.core.commit_transaction(1.0))
    assert program.core.transaction.state is State.READY
    with pytest.raises(InvalidInput):
        program.run(program.core.commit_transaction(1.0))  # its result was taken: this would be another one


@pytest.mark.parametrize("is_over", [False, True], ids=["still under way", "over meanwhile"])
def test_initialization_goes_on(is_over: bool) -> None:
    program = Program()
    late = program.run_late(program.core.init_transactions(1.0))
    assert "init_transactions" in late.advice
    if is_over:
        program.finish()
    program.run(program.core.init_transactions(1.0))
    program.begin()
    program.run(program.core.commit_transaction(1.0))


def test_who_goes_on_without_the_result_begins_the_next_transaction() -> None:
    program = Program()
    program.begin()
    program.run_late(program.core.commit_transaction(1.0))
    program.finish()
    program.begin()
    program.core.transaction.batch_failed(TimedOut("lost"))
    with pytest.raises(TransactionMustAbort):
        program.run(program.core.commit_transaction(1.0))


def test_other_offsets_are_refused_while_the_first_are_under_way() -> None:
    program = Program()
    program.begin()
    program.run_late(program.core.send_offsets(OFFSETS, MEMBER, 1.0))
    with pytest.raises(InvalidInput, match="still in progress"):
        next(program.core.send_offsets({TopicPartition(TOPIC, 1): CommittedOffset(1)}, MEMBER, 1.0))


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction"])
def test_close_waits_for_the_end_of_a_transaction_that_is_under_way(name: str) -> None:
    """Else the transaction would stay open until its timeout, and hold up its readers."""
    program = Program()
    program.begin()
    program.run_late(CALLS[name](program.core))
    program.run(program.core.finish(30.0), closely=True)
    assert program.core.transaction.state is State.READY
    found = [b"a"] if name == "commit_transaction" else []
    assert program.simulation.values(0, committed_only=True) == found
