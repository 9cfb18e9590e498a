"""A node's life in which a call to one of its disks fails, once or for a while, and then works again.

Clients ask again until they are served, as clients do. Where something has run out (space, quota,
descriptors) they are served in the end without a restart, and nothing goes offline. After an I/O error, or a
failed fsync, that directory is offline, or the node halts if its metadata lies there. In each case every
acknowledged record is there once, at its offset, and so it is after a kill and a restart.

`make test` fails a few calls; `make fuzz` fails every one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from harness.single_partition import commit_of, committed_of, deletion_before, setting
from headrace.base.time import ManualClock
from headrace.node import replica_moves
from headrace.node.effects import Report
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost, creation
from headrace.storage.disk import Disk
from headrace.storage.errors import StorageError
from headrace.storage.faulty_disk import CHANGES, OPENS, SPACE_NEEDING, Fail, Fault, FaultyDisk, Operation
from headrace.storage.memory_disk import MemoryDisk

WALKS_ALL = "HEADRACE_FUZZ_CASES" in os.environ
PLACES_MAX = 100_000 if WALKS_ALL else 5
FOR_A_WHILE = 9
ATTEMPTS_MAX = 40
NAMES = ("meta", "one", "two")
SETTINGS = {
    "log.dirs": "one,two",
    "metadata.log.dir": "meta",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "file.delete.delay.ms": "1000",
    # logs are looked after when the story says so, such as right before a move
    "log.cleaner.backoff.ms": "3600000",
    "log.initial.task.delay.ms": "3600000",
    "log.retention.check.interval.ms": "3600000",
}
KINDS: dict[str, tuple[int, frozenset[Operation], int]] = {
    "ENOSPC once": (errno.ENOSPC, SPACE_NEEDING, 1),
    "ENOSPC for a while": (errno.ENOSPC, SPACE_NEEDING, FOR_A_WHILE),
    "EDQUOT for a while": (errno.EDQUOT, SPACE_NEEDING, FOR_A_WHILE),
    "EMFILE once": (errno.EMFILE, OPENS, 1),
    "EMFILE for a while": (errno.EMFILE, OPENS, FOR_A_WHILE),
}
FINAL: dict[str, tuple[int, frozenset[Operation]]] = {
    "EIO": (errno.EIO, CHANGES),
    "ENOSPC in fsync": (errno.ENOSPC, frozenset(("sync", "sync_dir"))),
}


class Offline(Exception):
    """A directory is, or the node has halted: this life is over."""


class Life:
    """What clients do to a node, and what they were told."""

    def __init__(self) -> None:
        self.memory = {name: MemoryDisk() for name in NAMES}
        self.faulty = {name: FaultyDisk(disk) for name, disk in self.memory.items()}
        self.host = ManualHost(SETTINGS, disks=dict[str, Disk](self.faulty))
        self.acknowledged: dict[str, list[bytes]] = {}
        self.in_flight: tuple[str, list[bytes]] = ("", [])  # all of them count, or none
        self.sequences: dict[str, int] = {}
        self.is_transient = True
        self.deletable = 0  # records of "t" whose deletion is under way
        self.committed = -1
        self.asked = -1
        for disk in self.faulty.values():
            disk.calls.clear()

    def strike(self, fault: Fault) -> None:
        for disk in self.faulty.values():
            disk.faults = [fault]  # one for all: it counts the calls of all

    def heal(self) -> None:
        for disk in self.faulty.values():
            disk.faults = []

    # --- asking until it is served ------------------------------------------------------------------------

    def check_online(self) -> None:
        directories = self.host.node.directories
        if self.host.halted or directories.offline():
            raise Offline(self.host.halted or "a directory is offline")

    def insist(self, act: Callable[[], Any]) -> Any:
        """Until it gives something."""
        for _ in range(ATTEMPTS_MAX):
            result = act()
            self.check_online()
            if result is not None:
                return result
            self.host.advance(1.1)
            self.check_online()
        raise AssertionError(f"not served after {ATTEMPTS_MAX} attempts")

    def ask(self, request: Any, version: int, code_of: Callable[[Any], int], *fine: int) -> Any:
        def attempt() -> Any:
            connection = self.host.connect()
            self.host.send(connection, request, version)
            for _ in range(5):
                answer = self.host.receive(connection)
                if answer is not None:
                    return answer if code_of(answer) in (0, *fine) else None
                self.host.advance(1.0)
            return None

        return self.insist(attempt)

    # --- what they do -------------------------------------------------------------------------------------

    def create(self, name: str, **configs: str) -> None:
        request = creation(name, configs, timeout_ms=500)
        already = 36
        self.ask(request, 7, lambda answer: answer.topics[0].error_code, already)
        self.acknowledged[name] = []
        self.sequences[name] = 0

    def produce(self, name: str, value: bytes, key: bytes | None = None, **more: Any) -> None:
        sequence = self.sequences[name]
        wall_ms = self.host.clock.now().wall_ms
        producer = {"producer_id": 77, "producer_epoch": 0, "base_sequence": sequence, **more}
        batch = build_batch([(wall_ms, key, value, ())], **producer)
        if not more:
            self.in_flight = (name, [value])

        def attempt() -> Any:
            connection = self.host.connect()
            request = self.host.produce_request(name, bytearray(batch), timeout_ms=500)
            if more:
                request.transactional_id = "tx"
            self.host.send(connection, request, 12)
            self.host.advance(0.6)
            answer = self.host.receive(connection)
            if answer is None:
                return None
            result = answer.responses[0].partition_responses[0]
            return result if result.error_code == 0 else None

        self.insist(attempt)
        if not more:
            self.acknowledged[name].append(value)
            self.in_flight = ("", [])
            self.sequences[name] += 1

    def transact(self, count: int, *, commit: bool) -> None:
        for kind in (0, 1):
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=["tx"])
            self.ask(find, 4, lambda answer: answer.coordinators[0].error_code)
        init = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        known = self.ask(init, 5, lambda answer: answer.error_code)
        values = [b"%s %d" % (b"kept" if commit else b"dropped", number) for number in range(count)]
        for number, value in enumerate(values):
            self.produce(
                "t",
                value,
                producer_id=known.producer_id,
                producer_epoch=known.producer_epoch,
                base_sequence=number,
                transactional=True,
            )
        end = EndTxnRequest(
            transactional_id="tx",
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            committed=commit,
        )
        if commit:
            self.in_flight = ("t", values)
        self.ask(end, 5, lambda answer: answer.error_code)
        self.acknowledged["t"] += self.in_flight[1]
        self.in_flight = ("", [])

    def commit(self, offset: int) -> None:
        self.asked = offset
        self.ask(commit_of("g", "t", offset), 8, lambda answer: answer.topics[0].partitions[0].error_code)
        self.committed = offset

    def configure(self, name: str, key: str, value: str) -> None:
        self.ask(setting(name, key, value), 1, lambda answer: answer.responses[0].error_code)

    def move(self, name: str, *, rest_bytes_max: int = 100) -> None:
        """By default so that logs of a few hundred bytes are copied as long ones are."""
        replica_moves.REST_BYTES_MAX = rest_bytes_max
        (partition,) = self.host.partitions(name)
        target = "two" if partition.directory == "one" else "one"
        topic = AlterReplicaLogDirTopic(name=name, partitions=[0])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[topic])])

        def attempt() -> Any:
            if partition.directory != target:
                self.host.ask(request, 2)
                self.host.advance(0.5)
            return target if partition.directory == target else None

        self.insist(attempt)

    def delete_records(self, name: str, offset: int) -> None:
        request = deletion_before(name, offset, timeout_ms=500)
        self.deletable = offset
        self.ask(request, 2, lambda answer: answer.topics[0].partitions[0].error_code)
        del self.acknowledged[name][:offset]
        self.deletable = 0

    def delete(self, name: str) -> None:
        self.acknowledged.pop(name)
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=500)
        unknown = 3
        self.ask(request, 5, lambda answer: answer.responses[0].error_code, unknown)

    def restart(self) -> None:
        """A stop, clean where the disks let it be, and starts until one succeeds."""
        self.host.node.shutdown(self.host.clock.now())
        self.host.settle()
        for _ in range(ATTEMPTS_MAX):
            if self.host.node.is_stopped:
                break  # its directories are closed, which looks as if they were offline
            self.check_online()
            self.host.advance(1.1)
        assert self.host.node.is_stopped, "the stop does not end"
        reports = [one for one in self.host.effects if isinstance(one, Report)]
        if any(one.event == "stop_not_clean" for one in reports) and not self.is_transient:
            raise Offline("a directory went offline at the end")
        self.insist_on_start()

    def insist_on_start(self) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                self.host = ManualHost(SETTINGS, disks=dict[str, Disk](self.faulty), clock=self.host.clock)
            except (OSError, StorageError) as error:
                if not self.is_transient:
                    raise Offline(str(error)) from error
                continue
            self.check_online()
            return
        raise AssertionError("does not start")

    def look_after(self) -> None:
        self.host.node.broker.housekeeping.look_after_all(self.host.clock.now())
        self.host.settle()
        self.host.advance(2.0)
        self.check_online()

    def live(self) -> None:
        small = {"internal_segment_bytes": "400"}
        self.create("t", **small)
        self.create("durable", flush_messages="1", **small)
        self.create("packed", headrace_sealed_compression_type="zstd", **small)
        self.create("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **small)
        for number in range(6):
            self.produce("t", b"first %d " % number * 8)
            self.produce("durable", b"durable %d " % number * 4)
            self.produce("compacted", b"version %d" % number, key=b"key %d" % (number % 2))
            self.produce("compacted", b"only %d" % number, key=b"only %d" % number)
        self.configure("compacted", "internal.segment.bytes", "4000")  # so that segments are merged
        for number in range(8):
            self.produce("packed", b"packed %d " % number * 12)
        self.transact(3, commit=True)
        self.commit(3)
        self.host.advance(6)
        self.transact(2, commit=False)
        self.commit(5)
        self.look_after()
        self.move("compacted", rest_bytes_max=1 << 20)
        self.delete_records("t", 3)
        self.configure("durable", "flush.messages", "9223372036854775807")
        self.produce("durable", b"no longer")
        self.configure("durable", "retention.bytes", "500")
        self.look_after()
        self.configure("durable", "retention.bytes", "-1")
        self.restart()
        self.move("t")
        self.produce("t", b"after the move")
        self.delete("packed")
        self.commit(7)
        self.host.advance(6)
        self.look_after()
        self.create("packed", **small)
        self.produce("packed", b"another topic of that name")
        self.host.advance(6)
        self.check_online()


# --- what has to be true -----------------------------------------------------------------------------------


def values_of(host: ManualHost, name: str) -> tuple[int, dict[int, bytes | None]]:
    """The log start, and what a reader of committed records finds at which offset."""
    (partition,) = host.partitions(name)
    offset = start = partition.opened(host.clock.now()).log_start_offset
    found: dict[int, bytes | None] = {}
    while True:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=name, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=1, topics=topics)
        part = host.ask(request, 11).responses[0].partitions[0]
        assert part.error_code == 0, f"{name} at {offset}: {part.error_code}"
        records = bytes(part.records or b"")
        aborted = {one.producer_id: one.first_offset for one in part.aborted_transactions or ()}
        before = offset
        for position, header in batches(records):
            offset = max(offset, header.next_offset)
            is_dropped = header.base_offset >= aborted.get(header.producer_id, 1 << 62)
            if header.is_control and is_dropped:
                del aborted[header.producer_id]
            elif not header.is_control and not is_dropped:
                for row in read_rows(records, position, header):
                    assert row[0] not in found, f"{name}: offset {row[0]} twice"
                    found[row[0]] = row[3]
        if offset == before:
            return start, found


def judge(life: Life, host: ManualHost) -> None:
    for name, kept in life.acknowledged.items():
        start, found = values_of(host, name)
        values = [found[offset] for offset in sorted(found)]
        flying = life.in_flight[1] if life.in_flight[0] == name else []
        if name == "compacted":
            newest = [value for value in kept if value.startswith(b"version")][-2:]
            newest += [value for value in kept if value.startswith(b"only")]
            assert set(newest) <= set(values) <= {*kept, *flying}, f"{name}: {values}"
        else:
            # retention may have taken some away, from the front and below the log start
            whole = {
                tuple(kept[len(kept) - n :] + extra) for n in range(len(kept) + 1) for extra in ([], flying)
            }
            assert tuple(values) in whole, f"{name} from {start}: {values}, not the end of {kept} {flying}"
            if name == "t":
                least = set(kept[life.deletable :])
                assert least <= set(values), f"{name}: {values} without some of {kept}"
    if life.committed >= 0:
        (answer,) = host.ask(committed_of("g", "t"), 9).groups
        assert answer.error_code == 0
        assert answer.topics[0].partitions[0].committed_offset in (life.committed, life.asked)


def restarted(life: Life) -> ManualHost:
    disks: dict[str, Disk] = {name: disk.crash("killed") for name, disk in life.memory.items()}
    clock = ManualClock(mono=life.host.clock.mono, wall_ms=life.host.clock.now().wall_ms)
    host = ManualHost(SETTINGS, disks=disks, clock=clock)
    host.advance(3)
    return host


@pytest.fixture(autouse=True)
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves change it."""
    monkeypatch.setattr(replica_moves, "REST_BYTES_MAX", 100)


def places(operations: frozenset[Operation], salt: int) -> list[int]:
    """Which of these calls fail, one in each life."""
    life = Life()
    life.live()
    count = sum(call.operation in operations for disk in life.faulty.values() for call in disk.calls)
    stride = max(1, count // PLACES_MAX)
    return list(range(salt % stride, count, stride))


def test_a_life_without_an_error() -> None:
    life = Life()
    life.live()
    judge(life, life.host)
    judge(life, restarted(life))


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_run_out_and_comes_back_needs_no_restart(kind: str) -> None:
    code, operations, times = KINDS[kind]
    for number in places(operations, code * 31 + times):
        life = Life()
        life.strike(Fault(Fail(code, written=20), operations, skip=number, times=times))
        try:
            life.live()
            life.heal()
            judge(life, life.host)
            judge(life, restarted(life))
        except Exception as problem:
            raise AssertionError(f"{kind} at call {number}: {problem!r}") from problem


@pytest.mark.parametrize("kind", FINAL)
def test_an_io_error_costs_its_directory_and_no_record(kind: str) -> None:
    code, operations = FINAL[kind]
    for number in places(operations, code * 31):
        life = Life()
        life.is_transient = False
        life.strike(Fault(Fail(code), operations, skip=number))
        try:
            with pytest.raises(Offline):
                life.live()
            life.heal()
            judge(life, restarted(life))
        except Exception as problem:
            raise AssertionError(f"{kind} at call {number}: {problem!r}") from problem
