"""A node that is told to stop at any moment of its work, while requests still come and every job is early,
late or never run.

The seed chooses the work, the order of jobs (those of one queue keep theirs), and the moment of the
stop. A job's work and the news of its end are two events, and threads go on after the node has stopped. In
the end the node has stopped, and the machine may lose its memory, or it never comes to that, and the process
is killed. Whatever was acknowledged is there after the restart, once and at its offset; and no record is
there whose sender is still owed an answer by a node that has stopped.

`make test` plays some seeds, `make fuzz` thousands; a failure names its seed:

    python -m tests.crash.test_every_shutdown 4711
"""

from __future__ import annotations

import os
import sys
from collections import deque
from random import Random
from typing import Any

import pytest

from harness.single_partition import commit_of, committed_of, deletion_before, setting
from headrace.base.time import ManualClock
from headrace.node.connection import Connection
from headrace.node.effects import Run
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import CrashKind, MemoryDisk
from headrace.storage.stop_record import CLEAN_MARKER

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "0"))
SEEDS = max(40, CASES // 40)
STEPS = 45
STEPS_AFTER_STOP = 120
SETTINGS = {
    "log.dirs": "one,two",
    "metadata.log.dir": "one",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "file.delete.delay.ms": "200",
    "log.cleaner.backoff.ms": "300",
    "log.retention.check.interval.ms": "400",
    "log.initial.task.delay.ms": "100",
}
SMALL = {"internal.segment.bytes": "600"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "durable": {"flush.messages": "1"},
    "counted": {"flush.messages": "3"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "packed": {"headrace.sealed.compression.type": "zstd"},
}
OPENED = "compacted"  # its batches may be too large to be opened on the spot
QUEUES = ("", "", "", "checkpoint", "flush", "removal", "rewriting", "validation")  # one may never move
LONG = 4_000  # partitions of a request that is decoded in slices


class Sent:
    """A produce request: what it carries, and what its sender was told."""

    def __init__(self, topic: str, value: bytes) -> None:
        self.topic = topic
        self.value = value
        self.offset: int | None = None
        self.is_answered = False
        self.was_before_stop = True


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.memory = {name: MemoryDisk() for name in ("one", "two")}
        self.host = ManualHost(SETTINGS, disks=dict[str, Disk](self.memory))
        for name, configs in TOPICS.items():
            self.host.create_topic(name, **configs, **SMALL)
        self.host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        self.host.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
        self.host.advance(1)
        self.host.runs_jobs = False
        self.queues: dict[tuple[str, str], deque[Run]] = {}
        self.done: list[tuple[Run, Any]] = []  # run, and nobody knows yet
        self.stuck = self.rng.choice(QUEUES)
        self.connections = [self.host.connect() for _ in range(3)]
        self.owed: dict[int, deque[Sent | int | None]] = {one.id: deque() for one in self.connections}
        self.sent: list[Sent] = []
        self.committed = self.commit_asked = -1
        self.deleted: dict[str, int] = {}
        self.producer: tuple[int, int] | None = None
        self.is_stopping = False

    # --- what happens -------------------------------------------------------------------------------------

    def play(self) -> None:
        stops_at = self.rng.randrange(STEPS)
        for step in range(STEPS):
            if step == stops_at:
                self.stop()
            self.step()
        for _ in range(STEPS_AFTER_STOP):
            if self.host.node.is_stopped:
                break
            self.step()
        for _ in range(self.rng.randrange(12)):  # threads end what they have begun, and requests still come
            self.step()

    def stop(self) -> None:
        self.is_stopping = True
        self.host.node.shutdown(self.host.clock.now())
        self.settle()

    def step(self) -> None:
        weights = {self.produce: 6, self.job: 6, self.news: 6, self.time: 3, self.other: 2}
        (act,) = self.rng.choices(list(weights), list(weights.values()))
        act()
        self.settle()

    def settle(self) -> None:
        self.host.settle()
        while self.host.jobs:
            run = self.host.jobs.popleft()
            self.queues.setdefault((run.directory, run.queue), deque()).append(run)
        for connection in self.connections:
            self.read_answers(connection)

    def job(self) -> None:
        """Some queue's next job does its work."""
        busy = {(run.directory, run.queue) for run, _ in self.done}
        ready = [
            key for key, queue in self.queues.items() if queue and key[1] != self.stuck and key not in busy
        ]
        if not ready:
            return
        run = self.queues[self.rng.choice(sorted(ready))].popleft()
        result: Any
        try:
            result = run.job.run(self.memory[run.directory])
        except Exception as error:
            result = error
        self.done.append((run, result))

    def news(self) -> None:
        """The node learns of a job that has done its work."""
        if self.done:
            run, result = self.done.pop(self.rng.randrange(len(self.done)))
            self.host.node.completed(self.host.clock.now(), run.ticket, result)

    def time(self) -> None:
        self.host.clock.advance(self.rng.choice((0.001, 0.01, 0.3, 1.2, 5.1)))
        self.host.node.wake(self.host.clock.now())

    def send(self, request: Any, version: int, sent: Sent | int | None = None) -> None:
        """By a connection that is still open, and is read from; a number is an offset to be committed."""
        usable = [one for one in self.connections if one.id not in self.host.closed and not one.is_decoding]
        if not usable:
            connection = self.host.connect()
            self.connections.append(connection)
            self.owed[connection.id] = deque()
        else:
            connection = self.rng.choice(usable)
        self.owed[connection.id].append(sent)
        self.host.send(connection, request, version)

    def read_answers(self, connection: Connection) -> None:
        while (answer := self.host.receive(connection)) is not None:
            sent = self.owed[connection.id].popleft()
            if not isinstance(sent, Sent):
                self.note(answer, sent)
                continue
            result = answer.responses[0].partition_responses[0]
            sent.is_answered = True
            if result.error_code == 0:
                sent.offset = result.base_offset

    def note(self, answer: Any, committed: int | None) -> None:
        if committed is not None:
            if not answer.topics[0].partitions[0].error_code:
                self.committed = max(self.committed, committed)
        elif isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            self.producer = answer.producer_id, answer.producer_epoch

    def produce(self) -> None:
        topic = self.rng.choice(list(TOPICS))
        number = len(self.sent)
        value = b"%d " % number
        wall_ms = self.host.clock.now().wall_ms
        codec = Codec.NONE
        if topic == OPENED and self.rng.randrange(3) == 0:
            codec = Codec.ZSTD
            value += self.rng.randbytes(70_000)
        else:
            value += b"." * self.rng.choice((5, 60, 250))
        batch = build_batch([(wall_ms, b"key %d" % (number % 5), value, ())], codec=codec)
        sent = Sent(topic, value)
        sent.was_before_stop = not self.is_stopping
        self.sent.append(sent)
        self.send(self.host.produce_request(topic, bytearray(batch), timeout_ms=60_000), 9, sent)

    def other(self) -> None:
        kind = self.rng.randrange(7)
        if kind == 0:
            self.commit_asked = self.commit_asked + 1
            self.send(commit_of("g", "plain", self.commit_asked), 8, self.commit_asked)
        elif kind == 1:
            topic = self.rng.choice(("plain", "packed"))
            placed = [one.offset for one in self.sent if one.topic == topic and one.offset is not None]
            if placed:
                offset = self.rng.choice(placed)
                self.deleted[topic] = max(offset, self.deleted.get(topic, 0))
                self.send(deletion_before(topic, offset, timeout_ms=60_000), 2)
        elif kind == 2:
            value = self.rng.choice(("1", "2", "9223372036854775807"))
            self.send(setting("counted", "flush.messages", value), 1)
        elif kind == 3:
            asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(LONG)]
            topics = [ListOffsetsTopic(name="plain", partitions=asked)]
            self.send(ListOffsetsRequest(replica_id=-1, topics=topics), 1)
        elif kind == 4:
            self.send(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=2_000), 5)
        elif kind == 5 and self.producer is not None:
            producer_id, epoch = self.producer
            batch = build_batch(
                [(self.host.clock.now().wall_ms, None, b"in a transaction", ())],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                transactional=True,
            )
            request = self.host.produce_request("plain", bytearray(batch), timeout_ms=60_000)
            request.transactional_id = "tx"
            sent = Sent("plain", b"in a transaction")  # not to be compared: there may be several
            self.send(request, 12, sent)
        elif kind == 6 and self.producer is not None:
            producer_id, epoch = self.producer
            self.producer = None
            end = EndTxnRequest(
                transactional_id="tx",
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=bool(self.rng.randrange(2)),
            )
            self.send(end, 5)

    # --- what has to be true ------------------------------------------------------------------------------

    def judge(self) -> None:
        is_stopped = self.host.node.is_stopped
        assert self.host.halted is None, self.host.halted
        if is_stopped:
            assert all(disk.exists(CLEAN_MARKER) for disk in self.memory.values())
        # a process that has stopped may be the last thing that the machine did
        is_lost = is_stopped and self.rng.randrange(2) == 0
        how: CrashKind = "lost" if is_lost else "killed"
        disks: dict[str, Disk] = {name: disk.crash(how, self.rng) for name, disk in self.memory.items()}
        clock = ManualClock(mono=self.host.clock.mono, wall_ms=self.host.clock.now().wall_ms)
        host = ManualHost(SETTINGS, disks=disks, clock=clock, boot_id="boot-2" if is_lost else "boot-1")
        host.advance(1)
        for topic in TOPICS:
            self.judge_topic(host, topic, is_stopped=is_stopped)
        if self.committed >= 0:
            (answer,) = host.ask(committed_of("g", "plain"), 9).groups
            assert answer.error_code == 0, answer
            offset = answer.topics[0].partitions[0].committed_offset
            assert self.committed <= offset <= self.commit_asked

    def judge_topic(self, host: ManualHost, topic: str, *, is_stopped: bool) -> None:
        (partition,) = host.partitions(topic)
        log = partition.opened(host.clock.now())
        found: dict[int, bytes | None] = {}
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            span = log.read(offset, max_bytes=1 << 20, limit_offset=end, at_least_one=True)
            assert span is not None, f"{topic}: nothing at {offset}, though the log ends at {end}"
            data = span.read()
            for position, header in batches(data):
                offset = header.next_offset
                if not header.is_control:
                    for row in read_rows(data, position, header):
                        assert row[0] not in found, f"{topic}: offset {row[0]} twice"
                        found[row[0]] = row[3]
        places = {value: offset for offset, value in found.items()}
        for sent in self.sent:
            if sent.topic != topic:
                continue
            if sent.offset is not None:
                self.judge_acknowledged(sent, found, log.log_start_offset)
            elif is_stopped and sent.was_before_stop and not sent.is_answered:
                assert sent.value not in places, f"{topic}: {sent.value[:9]!r} is there, its sender not told"

    def judge_acknowledged(self, sent: Sent, found: dict[int, bytes | None], start: int) -> None:
        assert sent.offset is not None
        if sent.topic == OPENED:
            kept = found.get(sent.offset, sent.value)  # a newer one of its key may be all there is
        elif sent.offset < start:
            assert start <= self.deleted.get(sent.topic, 0), f"{sent.topic} begins at {start}"
            return
        else:
            kept = found.get(sent.offset, b"nothing")
        assert kept == sent.value, (
            f"{sent.topic}: {(kept or b'')[:9]!r} at {sent.offset}, not {sent.value[:9]!r}"
        )


def play(seed: int) -> Walk:
    walk = Walk(seed)
    try:
        walk.play()
        walk.judge()
    except Exception as problem:
        raise AssertionError(f"seed {seed}: {problem!r}") from problem
    return walk


@pytest.mark.timeout(0 if CASES else 300)
def test_a_restart_finds_what_was_promised() -> None:
    walks = [play(seed).host.node.is_stopped for seed in range(SEEDS)]
    assert sum(walks) > SEEDS // 3, "most of them come to their end"
    assert not all(walks), "and some are killed"


if __name__ == "__main__":
    play(int(sys.argv[1]))
