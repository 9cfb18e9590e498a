"""Sinks on a node: attempts join, write and are committed as one batch, whatever else goes wrong."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.authorizers import Nobody
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.abort_sink import AbortSinkRequest
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_sink import JoinSinkRequest
from headrace.protocol.messages.list_sinks import ListedSink, ListSinksRequest
from headrace.protocol.messages.reset_sink import ResetSinkRequest
from headrace.records.builder import build_batch
from headrace.records.fetched import Fetched
from headrace.simulator.manual_host import ManualHost

TIMEOUT_MS = 60_000


def host_with_topic(disks: Any = None, boot_id: str = "boot-1") -> ManualHost:
    host = ManualHost(disks=disks, boot_id=boot_id)
    if disks is None:
        host.create_topic("out", 2)
    host.ask(FindCoordinatorRequest(key_type=100, coordinator_keys=["app"]), 4)
    host.advance(5)  # sessions are loaded, producer ids granted
    return host


def restarted(host: ManualHost) -> ManualHost:
    """After a kill: no goodbye."""
    return host_with_topic(host.disks, host.texts["node.id"] + "-again")


class Attempt:
    """A task's try to write its part of a batch."""

    def __init__(
        self,
        host: ManualHost,
        batch: int,
        task: int = 0,
        number: int = 0,
        *,
        run: str = "run-1",
        query: str = "q",
        is_passing: bool = False,
    ) -> None:
        self.host = host
        self.is_passing = is_passing
        self.batch, self.task, self.number, self.run, self.query = batch, task, number, run, query
        self.sequences = {0: 0, 1: 0}  # by partition
        self.producer = (-1, -1)
        self.answer = self.join()
        self.producer = (self.answer.producer_id, self.answer.producer_epoch)

    def join(self) -> Any:
        request = JoinSinkRequest(
            app_id="app",
            query_id=self.query,
            run_id=self.run,
            batch_id=self.batch,
            task=self.task,
            attempt=self.number,
            timeout_ms=TIMEOUT_MS,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            is_passing=self.is_passing,
        )
        return self.host.ask(request, 0)

    @property
    def has_joined(self) -> bool:
        return not self.answer.error_code and self.producer[0] >= 0

    def write(self, value: str, partition: int = 0) -> int:
        batch = build_batch(
            [(self.host.clock.now().wall_ms, None, value.encode(), ())],
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self.sequences[partition],
            transactional=True,
        )
        request = self.host.produce_request("out", bytearray(batch))
        request.transactional_id = TRANSACTIONAL_ID_PREFIX + "app"
        request.topic_data[0].partition_data[0].index = partition
        (told,) = self.host.ask(request, 12).responses
        code: int = told.partition_responses[0].error_code
        self.sequences[partition] += not code
        return code


def commit(
    host: ManualHost, batch: int, attempts: list[Attempt], *, run: str = "run-1", query: str = "q"
) -> int:
    named = [
        CommittedAttempt(producer_id=each.producer[0], producer_epoch=each.producer[1]) for each in attempts
    ]
    request = CommitSinkRequest(app_id="app", query_id=query, run_id=run, batch_id=batch, attempts=named)
    code: int = host.ask(request, 0).error_code
    return code


def abort(host: ManualHost, *, run: str = "run-1") -> int:
    code: int = host.ask(AbortSinkRequest(app_id="app", query_id="q", run_id=run), 0).error_code
    return code


def committed(host: ManualHost) -> list[str]:
    """What a read_committed consumer sees, over both partitions."""
    seen: list[str] = []
    for index in (0, 1):
        wanted = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            topics=[FetchTopic(topic="out", partitions=[wanted])],
        )
        told = host.ask(request, 11).responses[0].partitions[0]
        if not told.records:
            continue
        aborted = [(each.first_offset, each.producer_id) for each in told.aborted_transactions or []]
        fetched = Fetched("out", index, bytes(told.records), 0, aborted=aborted)
        while messages := fetched.take_messages(1000):
            seen += [message.value.decode() for message in messages if message.value is not None]
    return seen


def stable_ends(host: ManualHost) -> list[bool]:
    """Whether nothing is open in a partition."""
    partitions = host.partitions("out")
    return [
        partition.log is None or partition.visible_end(1) == partition.high_watermark
        for partition in partitions
    ]


def test_a_batch_counts_when_it_is_committed() -> None:
    host = host_with_topic()
    first, second = Attempt(host, 0, task=0), Attempt(host, 0, task=1)
    assert first.producer != second.producer
    assert [first.write("a"), second.write("b", 1), first.write("c", 1)] == [0, 0, 0]
    assert committed(host) == []
    assert commit(host, 0, [first, second]) == 0
    assert committed(host) == ["a", "b", "c"]
    assert stable_ends(host) == [True, True]


def test_an_attempt_that_is_not_named_never_counts() -> None:
    """A task was tried again, or twice at once: the driver names one of them."""
    host = host_with_topic()
    lost, won = Attempt(host, 0, number=0), Attempt(host, 0, number=1)
    assert [lost.write("a"), won.write("a")] == [0, 0]
    assert commit(host, 0, [won]) == 0
    assert committed(host) == ["a"]
    assert lost.write("late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert lost.write("late", 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable_ends(host) == [True, True]


def test_a_batch_is_committed_once() -> None:
    host = host_with_topic()
    attempt = Attempt(host, 0)
    attempt.write("a")
    assert [commit(host, 0, [attempt]), commit(host, 0, [attempt])] == [0, 0]
    again = Attempt(host, 0, number=1)
    assert (again.answer.error_code, again.answer.committed_batch_id) == (0, 0)
    assert not again.has_joined
    replayed = Attempt(host, 0, run="run-2")
    assert not replayed.has_joined
    assert committed(host) == ["a"]


def test_another_run_takes_over() -> None:
    host = host_with_topic()
    old = Attempt(host, 0)
    old.write("a")
    new = Attempt(host, 0, run="run-2")
    assert new.has_joined
    assert old.write("b") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert commit(host, 0, [old]) == ErrorCode.PRODUCER_FENCED
    assert Attempt(host, 0, number=1).answer.error_code == ErrorCode.PRODUCER_FENCED
    assert new.write("a") == 0
    assert commit(host, 0, [new], run="run-2") == 0
    assert committed(host) == ["a"]


def test_a_run_that_only_asks_for_what_is_committed_takes_over_too() -> None:
    """A second driver begins with the last batch; the first one must not commit another behind its back."""
    host = host_with_topic()
    first = Attempt(host, 0)
    first.write("a")
    commit(host, 0, [first])
    old = Attempt(host, 1)
    old.write("b")
    assert Attempt(host, 0, run="run-2").answer.committed_batch_id == 0
    assert stable_ends(host) == [True, True]
    assert commit(host, 1, [old]) == ErrorCode.PRODUCER_FENCED
    assert commit(host, 0, [], run="run-3") == 0
    assert Attempt(host, 1, run="run-2").answer.error_code == ErrorCode.PRODUCER_FENCED
    assert committed(host) == ["a"]


def test_a_sink_that_writes_once_is_forgotten_in_time() -> None:
    host = host_with_topic()
    attempt = Attempt(host, 0, is_passing=True)
    attempt.write("a")
    assert commit(host, 0, [attempt]) == 0
    host.advance(20 * 3600)
    assert commit(host, 0, [attempt]) == 0  # its answer was lost, and the driver asks again
    host = restarted(host)  # its clock begins again
    host.advance(25 * 3600)
    assert host.ask(ListSinksRequest(), 0).sinks == []
    assert committed(host) == ["a"]


def test_another_query_is_told_the_remedy() -> None:
    host = host_with_topic()
    attempt = Attempt(host, 0)
    attempt.write("a")
    commit(host, 0, [attempt])
    other = Attempt(host, 0, query="other", run="run-9")
    assert other.answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert "headrace cluster sinks reset app" in other.answer.error_message
    assert host.ask(ResetSinkRequest(app_id="app"), 0).error_code == 0
    assert host.ask(ListSinksRequest(), 0).sinks == []
    assert Attempt(host, 0, query="other", run="run-9").has_joined
    assert host.ask(ResetSinkRequest(app_id="nobody"), 0).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_stale_attempt_in_the_commit_means_nothing_is_committed() -> None:
    host = host_with_topic()
    first, second = Attempt(host, 0, task=0), Attempt(host, 0, task=1)
    first.write("a")
    second.write("b")
    second.producer = (second.producer[0], second.producer[1] + 1)
    assert commit(host, 0, [first, second]) == ErrorCode.INVALID_TXN_STATE
    assert committed(host) == []
    assert abort(host) == 0
    assert stable_ends(host) == [True, True]
    assert committed(host) == []


def test_a_run_that_gave_up_is_over() -> None:
    """A task that was about to join leaves nothing open; the next run goes on."""
    host = host_with_topic()
    attempt = Attempt(host, 0)
    attempt.write("a")
    assert (abort(host), abort(host)) == (0, 0), "also when its answer was lost"
    late = Attempt(host, 0, task=1)
    assert (late.answer.error_code, late.has_joined) == (ErrorCode.PRODUCER_FENCED, False)
    assert "has given up its batch" in late.answer.error_message
    assert commit(host, 0, []) == ErrorCode.PRODUCER_FENCED
    assert stable_ends(host) == [True, True]
    again = Attempt(host, 0, run="run-2")
    again.write("a")
    assert commit(host, 0, [again], run="run-2") == 0
    assert abort(host) == ErrorCode.PRODUCER_FENCED
    assert committed(host) == ["a"]


def test_what_nobody_ends_is_aborted_in_time_and_activity_gives_more() -> None:
    host = host_with_topic()
    attempt = Attempt(host, 0)
    attempt.write("a")
    for _ in range(5):
        host.advance(TIMEOUT_MS / 1000 * 0.8)
        assert attempt.join().producer_id == attempt.producer[0]
    host.advance(TIMEOUT_MS / 1000 * 1.1)
    assert stable_ends(host) == [True, True]
    assert commit(host, 0, [attempt]) == ErrorCode.INVALID_TXN_STATE
    assert attempt.join().error_code == ErrorCode.PRODUCER_FENCED
    again = Attempt(host, 0, number=1)
    assert again.write("a") == 0
    assert commit(host, 0, [again]) == 0
    assert committed(host) == ["a"]


def test_a_lost_answer_is_given_again() -> None:
    host = host_with_topic()
    first = Attempt(host, 0, task=3, number=7)
    same = Attempt(host, 0, task=3, number=7)
    assert same.producer == first.producer


def test_the_next_batch_ends_the_one_before() -> None:
    host = host_with_topic()
    first = Attempt(host, 4)
    first.write("a")
    second = Attempt(host, 5)
    second.write("b")
    assert Attempt(host, 4, number=1).answer.error_code == ErrorCode.PRODUCER_FENCED
    assert commit(host, 4, [first]) == ErrorCode.PRODUCER_FENCED
    assert commit(host, 5, [second]) == 0
    assert committed(host) == ["b"]


def test_a_batch_without_rows_moves_the_ledger() -> None:
    host = host_with_topic()
    old = Attempt(host, 1)
    old.write("left open")
    assert commit(host, 1, [], run="run-2") == 0
    assert not Attempt(host, 1, run="run-2").has_joined
    assert stable_ends(host) == [True, True]
    assert committed(host) == []


def test_producers_are_used_again() -> None:
    """A query of a batch a second must not fill every partition with producers that never come back."""
    host = host_with_topic()
    producers = set()
    for batch in range(20):
        attempts = [Attempt(host, batch, task=task) for task in (0, 1)]
        for attempt in attempts:
            assert attempt.write(f"{batch}/{attempt.task}", attempt.task) == 0
        producers |= {attempt.producer[0] for attempt in attempts}
        assert commit(host, batch, attempts) == 0
    assert len(producers) == 2
    assert sorted(committed(host)) == sorted(f"{batch}/{task}" for batch in range(20) for task in (0, 1))


def test_a_zombie_of_a_producer_that_is_used_again_writes_nothing() -> None:
    host = host_with_topic()
    zombie = Attempt(host, 0)
    zombie.write("a")
    abort(host)
    heir = Attempt(host, 0, run="run-2")
    assert heir.producer == (zombie.producer[0], zombie.producer[1] + 1)
    assert zombie.write("late", 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert heir.write("a", 1) == 0
    assert zombie.write("late", 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert commit(host, 0, [heir], run="run-2") == 0
    assert committed(host) == ["a"]


def test_a_restart_finishes_what_was_committed() -> None:
    host = host_with_topic()
    attempt = Attempt(host, 0)
    attempt.write("a")
    partition = host.partitions("out")[0]
    partition.is_offline = True  # its marker cannot be written before the kill
    assert commit(host, 0, [attempt]) == 0
    again = restarted(host)
    assert committed(again) == ["a"]
    assert not Attempt(again, 0, run="run-2").has_joined


def test_who_may_not_write_as_the_sink_is_refused() -> None:
    host = host_with_topic()
    attempt = Attempt(host, 0)
    host.node.access.authorizer = Nobody()
    assert attempt.join().error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert commit(host, 0, [attempt]) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert abort(host) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert host.ask(ListSinksRequest(), 0).sinks == []


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_batch_is_there_once_and_whole(seed: int) -> None:
    """Runs come and go, tasks are tried several times, nodes are killed; then the query finishes its work."""
    rng = Random(seed)
    host = host_with_topic()
    tasks, batches = 3, 6
    zombies: list[Attempt] = []
    run_number = 0
    batch = 0
    while batch < batches:
        run_number += 1
        run = f"run-{run_number}"
        while batch < batches:
            named: list[Attempt] = []
            is_committed = False
            for task in range(tasks):
                for number in range(rng.choice([1, 1, 1, 2, 3])):
                    attempt = Attempt(host, batch, task, number, run=run)
                    assert attempt.answer.error_code == 0
                    is_committed |= not attempt.has_joined
                    if not attempt.has_joined:
                        continue
                    for part in (0, 1):
                        assert attempt.write(f"{batch}/{task}/{part}", part) == 0
                    zombies.append(attempt)
                    kept = attempt
                if not is_committed:
                    named.append(kept)
            if rng.random() < 0.2:
                host = restarted(host)
                for each in zombies:
                    each.host = host
            for zombie in rng.sample(zombies, min(3, len(zombies))):
                if zombie not in named:
                    zombie.write("zombie", rng.randrange(2))  # taken only while its attempt is open
            if not is_committed:
                happened = rng.random()
                if happened < 0.15:
                    break  # the driver dies before its commit
                assert commit(host, batch, named, run=run) == 0
                if happened < 0.3:
                    break  # … and after it: the next run begins with the same batch
            batch += 1
    seen = committed(host)
    assert sorted(seen) == sorted(
        f"{batch}/{task}/{part}" for batch in range(batches) for task in range(tasks) for part in (0, 1)
    )
    assert stable_ends(host) == [True, True]


def test_all_that_is_told_of_a_sink() -> None:
    host = host_with_topic()
    first = Attempt(host, 0)
    first.write("a")
    commit(host, 0, [first])
    host.advance(5)
    second, third = Attempt(host, 1, task=0), Attempt(host, 1, task=1)
    (sink,) = host.ask(ListSinksRequest(), 0).sinks
    assert sink == ListedSink(
        app_id="app",
        query_id="q",
        run_id="run-1",
        committed_batch_id=0,
        batch_id=1,
        open_attempts=2,
        ending_attempts=0,
        producer_ids=sorted((second.producer[0], third.producer[0])),
        updated_ms=host.clock.now().wall_ms,
    )
