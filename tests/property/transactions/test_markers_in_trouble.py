"""Transactions of the first protocol while disks fill up and coordinators are made again from their log.

All transactions of such a producer have one epoch: a marker is taken for the end of whichever is open. So
every marker must have been ordered for the transaction that it ends. Judged is the log itself, after every
step: no record has an outcome before its producer asked for one, and none has another than it asked for.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.node_transactions import Producer
from headrace.node.coordinators import markers
from headrace.protocol.errors import ErrorCode
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.partition_producers import end_marker_of

TOPICS = ("t", "u")
COORDINATOR = "__transaction_state"
STEPS = 60


class OldProducer(Producer):
    """One that speaks the first protocol, and what it knows of its transactions."""

    def __init__(self, host: ManualHost, name: str) -> None:
        super().__init__(host, name, timeout_ms=600_000)
        self.sequences = dict.fromkeys(TOPICS, 0)
        self.number = 0  # of the transaction
        self.wanted: dict[int, bool] = {}  # by number: it asked for a commit

    def write_to(self, topic: str) -> None:
        if self.number in self.wanted or self.add(topic):
            return  # it is ending, or the coordinator has other troubles
        batch = build_batch(
            [(self.host.clock.now().wall_ms, self.name.encode(), b"%d" % self.number, ())],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[topic],
            transactional=True,
        )
        request = self.host.produce_request(topic, bytearray(batch))
        request.transactional_id = self.name
        (told,) = self.host.ask(request, 9).responses
        self.sequences[topic] += not told.partition_responses[0].error_code

    def finish(self, is_commit: bool) -> None:
        """Asks until it is told that it has ended; the second time it asks for the same."""
        is_commit = self.wanted.setdefault(self.number, is_commit)
        code = self.end(commit=is_commit, version=3).error_code
        if code == ErrorCode.INVALID_TXN_STATE:  # nothing was added
            code = ErrorCode.NONE
        if code == ErrorCode.NONE:
            self.number += 1


class History:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = FaultyDisk(MemoryDisk())
        self.host = ManualHost(
            {"log.dirs": "data", "metadata.log.dir": "meta", "transaction.state.log.num.partitions": "1"},
            disks={"meta": MemoryDisk(), "data": self.disk},
        )
        for topic in TOPICS:
            self.host.create_topic(topic)
        self.producers = {name: OldProducer(self.host, name) for name in ("a", "b")}

    def run(self) -> None:
        acts = {self.write: 8, self.finish: 4, self.fill: 1, self.free: 1, self.wait: 6, self.starve: 1}
        for act in self.rng.choices(list(acts), list(acts.values()), k=STEPS):
            act()
            self.judge()
        self.free()
        self.host.advance(5)
        self.judge()
        for name, producer in self.producers.items():
            assert producer.state() in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"), name

    def starve(self) -> None:
        """What chance alone hardly ever does in this order: a transaction ends where there is no space, its
        coordinator is made again meanwhile, space returns, and the next transaction begins.
        """
        for act in (self.write, self.fill, self.finish, self.wait, self.reload, self.write, self.wait):
            act()
        self.host.advance(1.1)
        self.free()
        for act in (self.wait, self.write, self.write, self.wait):
            act()
            self.judge()

    def producer(self) -> OldProducer:
        return self.producers[self.rng.choice("ab")]

    def write(self) -> None:
        self.producer().write_to(self.rng.choice(TOPICS))

    def finish(self) -> None:
        self.producer().finish(self.rng.random() < 0.5)

    def fill(self) -> None:
        fault = Fault(Fail(errno.ENOSPC), "append", f"{self.rng.choice(TOPICS)}-0", times=1_000_000)
        self.disk.faults.append(fault)

    def free(self) -> None:
        self.disk.faults.clear()

    def reload(self) -> None:
        """The next record that the coordinator wants to write finds no space, and costs it its memory."""
        self.disk.faults.append(Fault(Fail(errno.ENOSPC), "append", COORDINATOR))

    def wait(self) -> None:
        self.host.advance(self.rng.choice((0.05, 0.3, 0.6, 1.1)))

    def judge(self) -> None:
        names = {producer.id: name for name, producer in self.producers.items()}
        for topic in TOPICS:
            (partition,) = self.host.partitions(topic)
            log = partition.log
            span = log and log.read(0, max_bytes=1 << 20, limit_offset=log.log_end_offset, at_least_one=True)
            view = span.read() if span else b""
            undecided: dict[int, set[int]] = {}  # by producer: its transactions without an end so far
            for position, header in batches(view):
                if not header.is_control:
                    numbers = {int(value or b"") for *_, value, _ in read_rows(view, position, header)}
                    undecided.setdefault(header.producer_id, set()).update(numbers)
                    continue
                marker = end_marker_of(memoryview(view)[position : position + header.size], header)
                assert marker is not None
                for number in undecided.pop(header.producer_id, ()):
                    name = names[header.producer_id]
                    wanted = self.producers[name].wanted.get(number)
                    told = f"{topic}: transaction {number} of {name}, aborted: {marker.is_aborted}"
                    assert wanted is not None, f"{told}, and nobody has ended it"
                    assert wanted is not marker.is_aborted, f"{told}, and commit was {wanted}"


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_marker_ends_the_transaction_that_it_was_ordered_for(seed: int) -> None:
    History(seed).run()


def test_the_judge_sees_an_order_that_outlives_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = markers.MarkersUnderWay.__init__

    def always(self: Any, writer: Any, order: Any, _: object, *rest: Any) -> None:
        wanted(self, writer, order, lambda: True, *rest)

    monkeypatch.setattr(markers.MarkersUnderWay, "__init__", always)
    with pytest.raises(AssertionError, match="and nobody has ended it"):
        play(range(100))


def play(seeds: Iterable[int]) -> None:
    for seed in seeds:
        History(seed).run()
