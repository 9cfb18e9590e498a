"""AppendAt: whoever decides from what it has read writes only if nobody else has written since."""

from __future__ import annotations

import pytest

from harness.authorizers import Nobody
from harness.two_brokers import lead
from headrace.node.connection import Connection
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.append_at import AppendAtRequest
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost


def new_host() -> ManualHost:
    host = ManualHost({})
    host.create_topic("t")
    return host


@pytest.fixture
def host() -> ManualHost:
    return new_host()


def batch(host: ManualHost, value: bytes) -> bytearray:
    return bytearray(build_batch([(host.clock.now().wall_ms, b"k", value, ())] * 2))


def send(
    host: ManualHost,
    expected: int,
    *,
    partition: int = 0,
    value: bytes = b"v",
    records: bytearray | None = None,
) -> Connection:
    request = AppendAtRequest(
        topic_id=host.node.controller.metadata.image.topics["t"].id,
        partition=partition,
        expected_offset=expected,
        timeout_ms=1_000,
        records=batch(host, value) if records is None else records,
    )
    connection = host.connect()
    host.send(connection, request, 0)
    return connection


def code_of(host: ManualHost, connection: Connection) -> int:
    code: int = host.receive(connection).error_code
    return code


def test_only_where_the_log_ends(host: ManualHost) -> None:
    assert code_of(host, send(host, 0)) == 0
    for wrong in (0, 1, 3):
        assert code_of(host, send(host, wrong)) == ErrorCode.INVALID_UPDATE_VERSION
    assert code_of(host, send(host, 2)) == 0


class TestTheQueue:
    """A large batch of a compacted topic is opened by a job, and others wait behind it."""

    @pytest.fixture
    def host(self) -> ManualHost:
        host = ManualHost({})
        host.create_topic("t", cleanup_policy="compact")
        host.runs_jobs = False
        return host

    def test_it_is_appended_when_it_was_opened(self, host: ManualHost) -> None:
        connection = send(host, 0, value=bytes(500_000))
        assert host.receive(connection) is None
        host.run_jobs()
        assert code_of(host, connection) == 0

    def test_only_one_of_two_that_expect_the_same(self, host: ManualHost) -> None:
        first, second = send(host, 0, value=bytes(500_000)), send(host, 0)
        assert host.receive(second) is None
        host.run_jobs()
        assert code_of(host, first) == 0
        assert code_of(host, second) == ErrorCode.INVALID_UPDATE_VERSION

    def test_one_whose_time_is_over_is_not_appended(self, host: ManualHost) -> None:
        connection = send(host, 0, value=bytes(500_000))
        host.advance(1)
        assert code_of(host, connection) == ErrorCode.REQUEST_TIMED_OUT
        host.run_jobs()
        assert code_of(host, send(host, 0)) == 0


class TestReplicas:
    @pytest.fixture
    def host(self, host: ManualHost) -> ManualHost:
        lead(host, "t", 0, 1, isr=(1, 2))
        return host

    def test_it_is_answered_when_all_have_it(self, host: ManualHost) -> None:
        connection = send(host, 0)
        assert host.receive(connection) is None
        host.advance(1)
        assert code_of(host, connection) == ErrorCode.REQUEST_TIMED_OUT

    def test_another_leader_may_have_other_records_there(self, host: ManualHost) -> None:
        connection = send(host, 0)
        lead(host, "t", 0, 2)
        assert code_of(host, connection) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_of(host, send(host, 2)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_may_not_write_does_not(host: ManualHost) -> None:
    host.node.access.authorizer = Nobody()
    assert code_of(host, send(host, 0)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_partition_that_is_not_there(host: ManualHost) -> None:
    assert code_of(host, send(host, 0, partition=1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestRecords:
    def test_a_batch_of_a_transaction_is_refused(self, host: ManualHost) -> None:
        """No coordinator would know of the transaction, and readers of committed records would wait for its
        end forever.
        """
        records = build_batch(
            [(host.clock.now().wall_ms, b"k", b"v", ())],
            producer_id=77,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        assert code_of(host, send(host, 0, records=bytearray(records))) == ErrorCode.INVALID_RECORD
        assert code_of(host, send(host, 0)) == 0
        (partition,) = host.partitions("t")
        assert partition.log is not None
        assert partition.log.last_stable_offset(partition.high_watermark) == 2

    @pytest.mark.parametrize("records", [b"", b"x" * 60])
    def test_something_shorter_than_a_batch_is_refused(self, host: ManualHost, records: bytes) -> None:
        assert code_of(host, send(host, 0, records=bytearray(records))) == ErrorCode.INVALID_RECORD
