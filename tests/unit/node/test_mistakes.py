"""A mistake of ours costs the request that met it, never those of others."""

import pytest

from headrace.base.time import Now
from headrace.machines.groups.classic.requests import Joined
from headrace.machines.metadata.image import ClusterImage
from headrace.node.connection import Connection
from headrace.node.handlers import join_group
from headrace.node.housekeeping import Slices
from headrace.node.parked_fetches import ParkedFetch
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Deadlines, Every, Lifecycle
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost, creation
from headrace.storage.flushing import Flushed
from headrace.storage.log import PartitionLog

BATCH = build_batch([(0, None, b"v", ())])


def poll(host: ManualHost) -> Connection:
    connection = host.connect()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    host.send(connection, FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), 11)
    return connection


def fail_for(monkeypatch: pytest.MonkeyPatch, unlucky: Connection) -> None:
    reply = ParkedFetch.reply

    def failing(self: ParkedFetch, *given: object, **more: object) -> object:
        if self.request.connection is unlucky:
            raise RuntimeError("a mistake of ours")
        return reply(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ParkedFetch, "reply", failing)


def test_those_who_are_woken_after_it_are_still_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were marked as awake already and were never asked again."""
    host = ManualHost()
    host.create_topic("t")
    unlucky, lucky = poll(host), poll(host)
    fail_for(monkeypatch, unlucky)
    with pytest.raises(RuntimeError):
        host.ask(host.produce_request("t", BATCH), 9)
    host.node.wake(host.clock.now())
    host.settle()
    assert host.receive(lucky) is not None
    assert host.closed == {unlucky.id: "internal error"}


def test_those_whose_time_is_over_are_still_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ManualHost()
    host.create_topic("t")
    unlucky, lucky = poll(host), poll(host)
    fail_for(monkeypatch, unlucky)
    with pytest.raises(RuntimeError):
        host.advance(1)
    host.advance(1)
    assert host.receive(lucky) is not None
    assert host.closed == {unlucky.id: "internal error"}


def test_what_is_done_again_and_again_goes_on_after_it() -> None:
    deadlines, times = Deadlines(), []

    def act(now: object) -> None:
        times.append(now)
        if len(times) == 1:
            raise RuntimeError("a mistake of ours")

    host = ManualHost()
    Every(deadlines, 100, act).start(host.clock.now())
    host.clock.advance(0.2)
    with pytest.raises(RuntimeError):
        deadlines.fire(host.clock.now())
    host.clock.advance(0.2)
    deadlines.fire(host.clock.now())
    assert len(times) == 2


def test_those_who_wait_for_the_same_rebalance_are_still_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """They waited for ever: the decision that has their answers was given up with the first of them."""
    host = ManualHost({"group.initial.rebalance.delay.ms": "1000"})
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    unlucky, lucky = join(host), join(host)
    respond = join_group.respond

    def failing(joined: Joined) -> JoinGroupResponse:
        if joined.members:
            raise RuntimeError("a mistake of ours")
        return respond(joined)

    monkeypatch.setattr(join_group, "respond", failing)
    for waiting in host.node.broker.groups.loaded_shards()[0].machine.abandon():
        waiting.respond = failing
    with pytest.raises(RuntimeError):
        host.advance(5)
    host.advance(5)
    assert host.receive(lucky).error_code == ErrorCode.NONE
    assert host.closed == {unlucky.id: "internal error"}


def join(host: ManualHost, version: int = 3, **more: str) -> Connection:
    connection = host.connect()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=more.pop("protocol", "range"), metadata=b"")],
        **more,
    )
    host.send(connection, request, version)
    return connection


def test_a_name_that_others_could_not_be_told_is_refused() -> None:
    """In an older version a string has at most 32,767 bytes."""
    host = ManualHost({"group.initial.rebalance.delay.ms": "1000"})
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    leader = join(host)
    for longer in ({"group_instance_id": "i" * 5_000}, {"protocol": "p" * 5_000}):
        assert host.receive(join(host, 9, **longer)).error_code == ErrorCode.INVALID_REQUEST
    host.advance(5)
    assert host.receive(leader).error_code == ErrorCode.NONE
    long_id = JoinGroupRequest(group_id="g" * 5_000, session_timeout_ms=10_000, protocol_type="consumer")
    assert host.ask(long_id, 9).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("owner", "method"), [(ClusterImage, "replay"), (Partitions, "committed")], ids=["image", "broker"]
)
def test_metadata_that_are_half_applied_halt_the_node(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    """It would go on with an image, or with leader epochs, that contradict the log."""
    host = ManualHost()
    host.create_topic("t")

    def failing(*given: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(owner, method, failing)
    with pytest.raises(RuntimeError):
        host.create_topic("u")
    host.settle()
    assert host.halted == "metadata records could not be applied: RuntimeError('a mistake of ours')"


def test_housekeeping_goes_on_with_the_other_partitions() -> None:
    """Retention, compaction and checkpoints of all ended with the first of them."""
    host = ManualHost()
    host.create_topic("t", 3)
    deadlines, lifecycle, seen = Deadlines(), Lifecycle(), []

    def act(now: Now, partition: Partition) -> None:
        seen.append(partition.index)
        if partition.index == 1:
            raise RuntimeError("a mistake of ours")

    rounds: list[int] = []
    Slices(
        deadlines,
        lifecycle,
        lambda: host.partitions("t"),
        8,
        1_000,
        act,
        after=lambda now: rounds.append(len(seen)),
    ).start(host.clock.now(), 0)
    with pytest.raises(RuntimeError):
        deadlines.fire(host.clock.now())
    host.clock.advance(0.1)
    deadlines.fire(host.clock.now())
    assert (seen, rounds) == ([0, 1, 2], [3])


def test_those_whose_records_were_flushed_together_are_answered_and_the_node_can_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of the directory was flushed any more: the flush counted as under way for ever."""
    host = ManualHost()
    host.create_topic("t", 3, flush_messages="1")
    flushed, unlucky = Partition.flushed, host.partitions("t")[0]
    host.runs_jobs = False
    first = write(host, 2)  # its flush is under way, and the others wait for the next one
    waiting = [write(host, index) for index in (0, 1)]
    failures: list[Partition] = []

    def failing(self: Partition, now: Now, result: Flushed) -> None:
        if self is unlucky and not failures:
            failures.append(self)
            raise RuntimeError("a mistake of ours")
        flushed(self, now, result)

    monkeypatch.setattr(Partition, "flushed", failing)
    with pytest.raises(RuntimeError):
        host.run_jobs()
    host.runs_jobs = True
    host.settle()
    assert host.receive(first) is not None
    assert host.receive(waiting[1]) is not None
    later = write(host, 1)
    assert host.receive(later) is not None
    host.node.shutdown(host.clock.now())
    host.settle()
    assert host.node.is_stopped


def test_those_who_want_a_flush_together_with_it_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each flush of the directory began with the same mistake, and none was ordered any more."""
    host = ManualHost()
    host.create_topic("t", 3, flush_messages="1")
    for index in range(3):
        assert host.receive(write(host, index)) is not None
    flush_job, unlucky = PartitionLog.flush_job, host.partitions("t")[0].log
    failures = [True]

    def failing(self: PartitionLog) -> object:
        if self is unlucky and failures:
            raise RuntimeError("a mistake of ours")
        return flush_job(self)

    monkeypatch.setattr(PartitionLog, "flush_job", failing)
    host.runs_jobs = False
    first = write(host, 2)  # its flush is under way, and the others wait for the next one
    waiting = [write(host, index) for index in (0, 1)]
    with pytest.raises(RuntimeError):
        host.run_jobs()
    host.runs_jobs = True
    host.settle()
    assert host.receive(first) is not None
    assert host.receive(waiting[1]) is not None
    failures.clear()
    host.advance(5)
    assert host.receive(waiting[0]) is not None
    host.node.shutdown(host.clock.now())
    host.settle()
    assert host.node.is_stopped


def test_metadata_that_came_during_a_flush_is_flushed_after_it() -> None:
    """The node could not stop: nobody ordered the next flush."""
    host = ManualHost()
    host.create_topic("t")
    host.runs_jobs = False
    metadata = host.node.controller.metadata
    store = metadata._store
    flushed = store._flushed
    for name in ("first", "second"):  # the second is appended while the first is flushed
        host.send(host.connect(), creation(name, {}, partitions=1), 7)

    def failing(now: Now) -> None:
        store._flushed = flushed
        raise RuntimeError("a mistake of ours")

    store._flushed = failing
    with pytest.raises(RuntimeError):
        host.run_jobs()
    host.settle()
    host.run_jobs()
    assert metadata.is_flushed
    host.node.shutdown(host.clock.now())
    host.runs_jobs = True
    host.settle()
    assert host.node.is_stopped


def write(host: ManualHost, partition: int) -> Connection:
    connection = host.connect()
    host.send(connection, host.produce_request("t", BATCH, partition=partition), 9)
    return connection
