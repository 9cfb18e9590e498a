"""An attempt of a sink before a node: it is heard of while it writes, and learns when it does not count."""

from __future__ import annotations

import pytest

from harness.producer_simulation import ProducerSimulation
from headrace.base.time import Instant
from headrace.client.errors import ClientError, KafkaError, OutsideTransaction, UnsupportedByBroker
from headrace.client.producer.sink_attempt import Attempt, AttemptId, State, attempt_factory
from headrace.client.session import Answer
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.join_sink import JoinSinkRequest

TIMEOUT_MS = 10_000


class Writer(ProducerSimulation):
    """One attempt, on a node of its own or on that of another one."""

    def __init__(self, attempt_id: AttemptId, beside: ProducerSimulation | None = None) -> None:
        super().__init__(
            host=None if beside is None else beside.host,
            transact=attempt_factory(attempt_id),
            transactional_id=TRANSACTIONAL_ID_PREFIX + attempt_id.app_id,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_s=0.0,
        )

    @property
    def attempt(self) -> Attempt:
        attempt = self.sender.transaction
        assert isinstance(attempt, Attempt)
        return attempt

    def pass_time(self, seconds: float) -> None:
        """As its driver would: asked when it wants to be."""
        end = self.now + seconds
        while self.now < end:
            while self.network.exchange():
                pass
            wake_at = self.sender.deadline()
            self.host.advance(max(0.001, min(wake_at, end) - self.now))
        while self.network.exchange():
            pass

    def join(self) -> Writer:
        self.pass_time(5)
        if self.attempt.state is State.WRITING:
            self.learn_topic()
        return self

    def write(self, value: bytes) -> None:
        self.send(0, value)
        self.sender.flush()
        self.pass_time(1)

    def commit(self, batch: int, attempts: list[Writer]) -> int:
        attempt_id = self.attempt.attempt_id
        named = [
            CommittedAttempt(producer_id=each.attempt.producer[0], producer_epoch=each.attempt.producer[1])
            for each in attempts
        ]
        request = CommitSinkRequest(
            app_id=attempt_id.app_id,
            query_id=attempt_id.query_id,
            run_id=attempt_id.run_id,
            batch_id=batch,
            attempts=named,
        )
        code: int = self.host.ask_patiently(request, 0).error_code
        return code


def attempt_id(
    *, query: str = "query", run: str = "run-1", batch: int = 0, task: int = 0, attempt: int = 0
) -> AttemptId:
    return AttemptId("app", query, run, batch, task, attempt)


def joins(writer: Writer) -> int:
    return sum(isinstance(request, JoinSinkRequest) for request, _ in writer.network.requests)


def test_what_it_writes_counts_with_the_commit() -> None:
    writer = Writer(attempt_id()).join()
    writer.write(b"a")
    assert writer.values(0, committed_only=True) == []
    assert writer.commit(0, [writer]) == 0
    assert writer.values(0, committed_only=True) == [b"a"]
    again = Writer(attempt_id(run="run-2"), writer).join()
    assert again.attempt.state is State.COMMITTED
    with pytest.raises(OutsideTransaction):
        again.attempt.check_may_send()


def test_it_does_not_end_itself() -> None:
    """Whether it counts is the committer's decision: it asks for no end, now or later."""
    writer = Writer(attempt_id()).join()
    writer.write(b"a")
    writer.pass_time(TIMEOUT_MS / 1000 * 2)
    assert EndTxnRequest not in {type(request) for request, _ in writer.network.requests}
    assert writer.values(0, committed_only=True) == []


def test_a_batch_stays_open_while_one_of_its_attempts_lives() -> None:
    """One has written and waits for the other, which needs many times the timeout."""
    slow = Writer(attempt_id(task=0)).join()
    quick = Writer(attempt_id(task=1, attempt=1), slow).join()
    quick.write(b"quick")
    slow.pass_time(TIMEOUT_MS / 1000 * 6)
    slow.write(b"slow")
    assert slow.commit(0, [slow, quick]) == 0
    assert sorted(slow.values(0, committed_only=True)) == [b"quick", b"slow"]
    assert 20 <= joins(slow) <= 40


def test_one_that_nobody_heard_of_for_too_long_is_over() -> None:
    writer = Writer(attempt_id()).join()
    writer.write(b"a")
    writer.host.advance(TIMEOUT_MS / 1000 + 1)
    writer.pass_time(1)
    assert writer.attempt.state is State.FAILED
    with pytest.raises(KafkaError, match="ended by others, or by time"):
        writer.attempt.check_may_send()
    delivery = Writer(attempt_id(attempt=1), writer).join()
    delivery.write(b"a")
    assert delivery.commit(0, [delivery]) == 0
    assert delivery.values(0, committed_only=True) == [b"a"]


def test_a_zombie_learns_that_it_does_not_count() -> None:
    zombie = Writer(attempt_id(attempt=0)).join()
    zombie.write(b"zombie")
    winner = Writer(attempt_id(attempt=1), zombie).join()
    winner.write(b"a")
    assert winner.commit(0, [winner]) == 0
    late = zombie.send(1, b"late")  # it has not heard of it
    zombie.pass_time(TIMEOUT_MS / 1000)
    assert zombie.attempt.state is State.FAILED
    with pytest.raises(ClientError):
        late.get(timeout=0)
    assert [value for index in (0, 1) for value in winner.values(index, committed_only=True)] == [b"a"]


def test_a_zombie_that_is_silent_learns_it_by_joining() -> None:
    zombie = Writer(attempt_id(attempt=0)).join()
    winner = Writer(attempt_id(attempt=1), zombie).join()
    winner.write(b"a")
    assert winner.commit(0, [winner]) == 0
    zombie.pass_time(TIMEOUT_MS / 1000)
    with pytest.raises(KafkaError, match="committed without this attempt"):
        zombie.attempt.check_may_send()


def test_another_query_is_told_the_remedy() -> None:
    first = Writer(attempt_id()).join()
    other = Writer(attempt_id(query="other", run="run-9"), first).join()
    with pytest.raises(KafkaError, match="headrace cluster sinks reset app") as raised:
        other.attempt.check_may_send()
    assert raised.value.code == ErrorCode.INVALID_TXN_STATE


def test_a_lost_answer_does_not_make_another_attempt() -> None:
    writer = Writer(attempt_id())
    for _ in range(20):  # up to the join
        writer.network.pump()
        for link in list(writer.network.links.values()):
            while writer.network.deliver(link):
                pass
            if joins(writer):
                writer.network.cut(link)
            else:
                while writer.network.hear(link):
                    pass
        if joins(writer):
            break
        writer.host.advance(0.5)
    writer.join()
    writer.write(b"a")
    assert writer.commit(0, [writer]) == 0
    assert writer.values(0, committed_only=True) == [b"a"]


def test_brokers_without_sinks() -> None:
    writer = Writer(attempt_id())
    (asked,) = [one for one in writer.sender.requests(Instant(0.0)) if _asks_for_versions(one.question)]
    answer: Answer = ApiVersionsResponse()
    writer.sender.answered(Instant(0.0), asked.ticket, answer)
    assert writer.attempt.state is State.UNSUPPORTED
    with pytest.raises(UnsupportedByBroker):
        writer.attempt.check_may_send()
    assert (writer.attempt.has_joined, writer.accumulator.is_open) == (True, False)


def _asks_for_versions(question: object) -> bool:
    return isinstance(question, ApiVersionsRequest)
