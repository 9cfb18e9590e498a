"""Fetch through the node: whole batches, long polls, limits, isolation, and whom it refuses."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.second_replica import add_second, second_fetches
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.records.builder import build_batch
from headrace.records.reader import batches
from headrace.simulator.manual_host import ManualHost
from headrace.storage.log import PartitionLog

T0 = 1_700_000_000_000


def batch(*values: bytes, timestamp: int = T0) -> bytes:
    return build_batch([(timestamp + i, None, value, ()) for i, value in enumerate(values)])


def host_with(*written: bytes, partitions: int = 1, **configs: str) -> ManualHost:
    host = ManualHost()
    host.create_topic("t", partitions, **configs)
    for data in written:
        host.ask(host.produce_request("t", data), 9)
    return host


def request(
    *wanted: FetchPartition,
    topic: str = "t",
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 24,
    **more: Any,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=list(wanted))],
        **more,
    )


def at(offset: int, *, partition: int = 0, limit: int = 1 << 20, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=limit, current_leader_epoch=epoch
    )


def only(response):
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def offsets(records: object) -> list[tuple[int, int]]:
    """(first, last) of each batch."""
    data = bytes(records)  # type: ignore[call-overload]
    return [(header.base_offset, header.last_offset) for _, header in batches(data)]


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name(version: int) -> None:
    host = host_with(batch(b"a", b"b"), batch(b"c"))
    data = only(host.ask(request(at(0)), version))
    assert data.error_code == 0
    assert data.high_watermark == 3
    assert data.last_stable_offset == 3
    assert offsets(data.records) == [(0, 1), (2, 2)]


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_by_id(version: int) -> None:
    host = host_with(batch(b"a", b"b"))
    topic_id = host.partitions("t")[0].topic_id
    for id, code in ((topic_id, 0), (b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID)):
        response = host.ask(
            FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=id, partitions=[at(0)])]),
            version,
        )
        assert response.responses[0].topic_id == id
        assert only(response).error_code == code


def test_the_batch_that_contains_the_offset_comes_whole() -> None:
    host = host_with(batch(b"a", b"b", b"c"), batch(b"d"))
    assert offsets(only(host.ask(request(at(1)), 11)).records) == [(0, 2), (3, 3)]
    assert offsets(only(host.ask(request(at(3)), 11)).records) == [(3, 3)]
    assert offsets(only(host.ask(request(at(4)), 11)).records) == []


@pytest.mark.parametrize("offset", [-1, 5, 2**62])
def test_out_of_range(offset: int) -> None:
    host = host_with(batch(b"a", b"b", b"c", b"d"))
    data = only(host.ask(request(at(offset)), 11))
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_limits_cut_between_batches_and_never_below_one() -> None:
    one = batch(b"x" * 100)
    host = host_with(one, one, one)
    size = len(one)
    for limit, count in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        assert len(offsets(only(host.ask(request(at(0, limit=limit)), 11)).records)) == count
        assert len(offsets(only(host.ask(request(at(0), max_bytes=limit), 11)).records)) == count


def test_only_the_first_partition_with_data_may_exceed_the_limit() -> None:
    host = host_with(partitions=2)
    for index in (0, 1):
        host.ask(host.produce_request("t", batch(b"x" * 100), partition=index), 9)
    response = host.ask(request(at(0), at(0, partition=1), max_bytes=10), 11)
    first, second = response.responses[0].partitions
    assert len(offsets(first.records)) == 1
    assert offsets(second.records) == []


class TestLongPoll:
    def test_a_new_record_ends_the_wait(self) -> None:
        host = host_with()
        reader = host.connect()
        host.send(reader, request(at(0), wait_ms=500), 11)
        assert host.receive(reader) is None
        host.ask(host.produce_request("t", batch(b"news")), 9)
        assert offsets(only(host.receive(reader)).records) == [(0, 0)]

    def test_the_end_of_the_wait_is_an_empty_answer_at_its_time(self) -> None:
        host = host_with()
        reader = host.connect()
        host.send(reader, request(at(0), wait_ms=500), 11)
        host.advance(0.499)
        assert host.receive(reader) is None
        host.advance(0.002)
        data = only(host.receive(reader))
        assert (data.error_code, bytes(data.records)) == (0, b"")
        assert host.node.metrics.parked == 0

    def test_min_bytes_gather(self) -> None:
        one = batch(b"x" * 100)
        host = host_with()
        reader = host.connect()
        host.send(reader, request(at(0), wait_ms=5000, min_bytes=2 * len(one)), 11)
        host.ask(host.produce_request("t", one), 9)
        assert host.receive(reader) is None
        host.ask(host.produce_request("t", one), 9)
        assert len(offsets(only(host.receive(reader)).records)) == 2

    def test_an_error_is_told_at_once(self) -> None:
        host = host_with()
        response = host.ask(request(at(0), at(0, partition=7), wait_ms=5000), 11)
        codes = [data.error_code for data in response.responses[0].partitions]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_deleting_the_topic_ends_the_wait(self) -> None:
        host = host_with()
        reader = host.connect()
        host.send(reader, request(at(0), wait_ms=5000), 11)
        host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert only(host.receive(reader)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_client_that_goes_leaves_nothing_behind(self) -> None:
        host = host_with()
        reader = host.connect()
        host.send(reader, request(at(0), wait_ms=5000), 11)
        host.node.disconnected(host.clock.now(), reader)
        assert host.node.metrics.parked == 0
        assert not host.partitions("t")[0].waiters
        host.ask(host.produce_request("t", batch(b"v")), 9)
        assert host.receive(reader) is None

    def test_an_append_has_only_its_own_partition_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each of five polls looked at all its 2,000 partitions at every append."""
        host = host_with(partitions=60)
        readers = [host.connect() for _ in range(5)]
        wanted = [at(0, partition=index) for index in range(60)]
        for reader in readers:
            host.send(reader, request(*wanted, wait_ms=5000, min_bytes=100_000), 11)
        reads = 0
        read = PartitionLog.read

        def counted(self: PartitionLog, *given: int, **more: int) -> object:
            nonlocal reads
            reads += 1
            return read(self, *given, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(PartitionLog, "read", counted)
        for index in range(10):
            host.ask(host.produce_request("t", batch(b"v"), partition=index), 9)
        assert reads == 10 * len(readers)

    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 900), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 300)), max_size=12))
    def test_it_is_answered_when_a_look_at_everything_would_find_enough(
        self, min_bytes: int, appended: list[tuple[int, int]]
    ) -> None:
        host = host_with(partitions=5)
        reader = host.connect()
        wanted = [at(0, partition=index) for index in range(5)]
        host.send(reader, request(*wanted, wait_ms=5000, min_bytes=min_bytes), 11)
        for index, size in appended:
            host.ask(host.produce_request("t", batch(b"x" * size), partition=index), 9)
            everything = host.ask(request(*wanted), 11).responses[0].partitions
            total = sum(len(data.records) for data in everything)
            answer = host.receive(reader)
            assert (answer is not None) == (total >= min_bytes)
            if answer is not None:
                parts = answer.responses[0].partitions
                assert [bytes(data.records) for data in parts] == [bytes(data.records) for data in everything]
                return

    def test_more_than_fits_is_not_waited_for(self) -> None:
        one = batch(b"x" * 100)
        host = host_with(one)
        answer = host.ask(request(at(0), wait_ms=5000, min_bytes=10_000, max_bytes=len(one)), 11)
        assert offsets(only(answer).records) == [(0, 0)]

    def test_it_does_not_wait_at_the_end_of_a_segment(self) -> None:
        """A read ends with its segment; what follows is in the next one, and need not be waited for."""
        one = batch(b"x" * 100)
        host = host_with(one, one)
        log = host.partitions("t")[0].log
        assert log is not None
        reader = host.connect()
        host.send(reader, request(at(0), wait_ms=5000, min_bytes=3 * len(one)), 11)
        assert host.receive(reader) is None
        log.roll(T0)
        host.ask(host.produce_request("t", one), 9)
        assert offsets(only(host.receive(reader)).records) == [(0, 0), (1, 1)]
        for _ in range(3):
            host.ask(host.produce_request("t", one), 9)
        host.send(reader, request(at(1), wait_ms=5000, min_bytes=3 * len(one)), 11)
        assert offsets(only(host.receive(reader)).records) == [(1, 1)]
        host.send(reader, request(at(2), wait_ms=5000, min_bytes=5 * len(one)), 11)
        assert host.receive(reader) is None


def test_answers_leave_in_the_order_of_the_requests() -> None:
    """A parked fetch, then a produce on the same connection that wakes it: the fetch's answer goes first."""
    host = host_with()
    both = host.connect()
    host.send(both, request(at(0), wait_ms=5000), 11)
    host.send(both, request(at(0), wait_ms=0), 11)
    assert host.receive(both) is None
    host.send(both, host.produce_request("t", batch(b"v")), 9)
    assert offsets(only(host.receive(both)).records) == [(0, 0)]
    assert offsets(only(host.receive(both)).records) == []
    assert host.receive(both).responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize(
    ("epoch_shift", "code"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, 0)],
)
@pytest.mark.parametrize("version", [9, 11, 12])
def test_the_leader_epoch_is_compared(version: int, epoch_shift: int, code: int) -> None:
    host = ManualHost()
    host.create_topic("t")
    # a restart raises the epoch, so that there is one below it
    host = ManualHost(disks=host.disks)
    ours = host.partitions("t")[0].leader_epoch
    assert ours >= 1
    data = only(host.ask(request(at(0, epoch=ours + epoch_shift)), version))
    assert data.error_code == code
    if code == ErrorCode.FENCED_LEADER_EPOCH and version >= 12:  # older versions have no place for it
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, ours)


def test_nobody_is_believed_to_be_a_replica() -> None:
    host = host_with(batch(b"v"))
    assert only(host.ask(request(at(0), replica_id=9), 11)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # whoever names an epoch, be it the first one, is told that it has to learn of a later one
    assert host.partitions("t")[0].leader_epoch == 0
    named = only(host.ask(request(at(0, epoch=0), replica_id=9), 11))
    assert named.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    topic_id = host.partitions("t")[0].topic_id
    forged = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        replica_state=ReplicaState(replica_id=9, replica_epoch=1),
        topics=[FetchTopic(topic_id=topic_id, partitions=[at(0)])],
    )
    assert only(host.ask(forged, 17)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_below_the_high_watermark_only() -> None:
    """A second replica that has fetched nothing holds the high watermark back: consumers see nothing."""
    host = host_with(batch(b"a"))
    partition = host.partitions("t")[0]
    add_second(host, partition)
    writer, reader = host.connect(), host.connect()
    host.send(writer, host.produce_request("t", batch(b"b"), acks=-1, timeout_ms=60_000), 9)
    host.send(reader, request(at(1), wait_ms=60_000), 11)
    assert host.receive(writer) is None
    assert host.receive(reader) is None
    assert only(host.ask(request(at(1)), 11)).high_watermark == 1
    assert offsets(only(host.ask(request(at(0), replica_id=-2), 11)).records) == [(0, 0), (1, 1)]
    second_fetches(host, partition, 2)
    assert host.receive(writer).responses[0].partition_responses[0].base_offset == 1
    assert offsets(only(host.receive(reader)).records) == [(1, 1)]


class TestSessions:
    def test_an_incremental_fetch_tells_only_news(self) -> None:
        host = host_with(batch(b"a"), partitions=2)
        reader = host.connect()
        full = host.ask(request(at(1), at(0, partition=1), session_epoch=0), 12, reader)
        assert full.session_id > 0
        assert len(full.responses[0].partitions) == 2
        quiet = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=full.session_id, session_epoch=1)
        assert host.ask(quiet, 12, reader).responses == []
        host.ask(host.produce_request("t", batch(b"b"), partition=1), 9)
        news = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=full.session_id, session_epoch=2)
        (data,) = host.ask(news, 12, reader).responses[0].partitions
        assert (data.partition_index, offsets(data.records)) == (1, [(0, 0)])

    def test_an_unknown_session_is_refused_as_a_whole(self) -> None:
        host = host_with()
        response = host.ask(FetchRequest(max_wait_ms=0, min_bytes=1, session_id=5, session_epoch=3), 12)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert response.session_id == 0


def test_a_partition_that_is_named_twice_is_told_once() -> None:
    host = host_with(batch(b"a"), batch(b"b"))
    data = only(host.ask(request(at(0), at(0), at(1)), 11))  # the last one counts, as in Kafka
    assert offsets(data.records) == [(1, 1)]


class TestListOffsets:
    def look_up(self, host: ManualHost, timestamp: int, version: int = 11):
        response = host.ask(
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
                    )
                ],
            ),
            version,
        )
        return response.topics[0].partitions[0]

    @pytest.mark.parametrize("version", range(1, 12))
    def test_ends_in_every_version(self, version: int) -> None:
        host = host_with(batch(b"a", b"b", b"c"))
        assert self.look_up(host, -2, version).offset == 0
        assert self.look_up(host, -1, version).offset == 3

    def test_a_partition_that_is_named_twice_is_refused_and_told_once(self) -> None:
        """As Kafka 4.3.1 does."""
        twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
        asked = [ListOffsetsTopic(name="t", partitions=twice), ListOffsetsTopic(name="t", partitions=twice)]
        topics = host_with(batch(b"a")).ask(ListOffsetsRequest(replica_id=-1, topics=asked), 11).topics
        told = [partition.error_code for topic in topics for partition in topic.partitions]
        assert told == [ErrorCode.INVALID_REQUEST]

    def test_a_time_inside_a_batch_finds_the_record(self) -> None:
        host = host_with(batch(b"a", b"b", b"c"), batch(b"d", timestamp=T0 + 100))
        found = self.look_up(host, T0 + 1)
        assert (found.offset, found.timestamp) == (1, T0 + 1)
        found = self.look_up(host, T0 + 50)
        assert (found.offset, found.timestamp) == (3, T0 + 100)
        none = self.look_up(host, T0 + 101)
        assert (none.error_code, none.offset, none.timestamp) == (0, -1, -1)

    def test_special_times(self) -> None:
        host = host_with(batch(b"late", timestamp=T0 + 100), batch(b"a", b"b"))
        newest = self.look_up(host, -3)
        assert (newest.offset, newest.timestamp) == (0, T0 + 100)
        assert self.look_up(host, -4).offset == 0
        assert self.look_up(host, -5).offset == -1
        assert self.look_up(host, -6).offset == -1
        assert self.look_up(host, -3, 6).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert self.look_up(host, -7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_epochs_end_where_the_next_begins() -> None:
    host = host_with(batch(b"a", b"b"))
    first = host.partitions("t")[0].leader_epoch
    host = ManualHost(disks=host.disks)
    second = host.partitions("t")[0].leader_epoch
    host.ask(host.produce_request("t", batch(b"c")), 9)

    def end_of(epoch: int) -> tuple[int, int, int]:
        response = host.ask(
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    OffsetForLeaderTopic(
                        topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=epoch)]
                    )
                ],
            ),
            4,
        )
        data = response.topics[0].partitions[0]
        return data.error_code, data.leader_epoch, data.end_offset

    assert end_of(first) == (0, first, 2)
    assert end_of(second) == (0, second, 3)
    assert end_of(second + 5) == (0, -1, -1)
    assert end_of(first - 1) == (0, -1, -1)
