"""Produce through the node: what is acknowledged, when, and what is refused and how."""

import errno
from dataclasses import replace

import pytest

from harness.desk import Desk
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import batches, read_rows
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **more: int) -> bytes:
    return build_batch([(timestamp, None, value, ()) for value in values], **more)


def only(response):  # type: ignore[no-untyped-def]
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def fetch(topic: str, offset: int = 0, **more: int) -> FetchRequest:
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, **more}
    partition_max_bytes = options.pop("partition_max_bytes")
    return FetchRequest(
        **options,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
                ],
            )
        ],
    )


def values_of(desk: Desk, topic: str) -> list[bytes | None]:
    response = desk.ask(fetch(topic), 11)
    records = bytes(response.responses[0].partitions[0].records)
    return [row[3] for position, header in batches(records) for row in read_rows(records, position, header)]


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_offsets_rise_without_gaps_in_every_version(version: int, acks: int) -> None:
    desk = Desk()
    desk.create_topic("t")
    first = only(desk.ask(desk.produce_request("t", batch(b"a", b"b"), acks=acks), version))
    second = only(desk.ask(desk.produce_request("t", batch(b"c"), acks=acks), version))
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert values_of(desk, "t") == [b"a", b"b", b"c"]


def test_by_topic_id() -> None:
    desk = Desk()
    desk.create_topic("t")
    topic_id = desk.node.broker.partitions.of_name("t")[0].topic_id
    for id, code in ((topic_id, ErrorCode.NONE), (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID)):
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    topic_id=id, partition_data=[PartitionProduceData(index=0, records=batch(b"v"))]
                )
            ],
        )
        response = desk.ask(request, 13)
        assert response.responses[0].topic_id == id
        assert only(response).error_code == code


def test_acks_0_gets_no_answer_and_its_record_is_there() -> None:
    desk = Desk()
    desk.create_topic("t")
    connection = desk.connect()
    desk.send(connection, desk.produce_request("t", batch(b"quiet"), acks=0), 9)
    assert desk.receive(connection) is None
    assert not connection.pending
    assert values_of(desk, "t") == [b"quiet"]


def test_an_error_with_acks_0_closes_the_connection() -> None:
    desk = Desk()
    connection = desk.connect()
    desk.send(connection, desk.produce_request("nowhere", batch(b"v"), acks=0), 9)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in desk.closed[connection.id]


def broken(data: bytes, position: int, value: int) -> bytes:
    changed = bytearray(data)
    changed[position] = value
    return bytes(changed)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"garbage", ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (broken(batch(b"a"), 16, 1), ErrorCode.INVALID_RECORD),
        (broken(batch(b"a"), 60, 9), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a", timestamp=1_700_000_000_000 + 7_200_000), ErrorCode.INVALID_TIMESTAMP),
        (build_batch([(1, None, b"v", ())], control=True), ErrorCode.INVALID_RECORD),
        (batch(b"a", producer_id=7, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_refused(records: bytes | None, code: ErrorCode) -> None:
    desk = Desk()
    desk.create_topic("t")
    result = only(desk.ask(desk.produce_request("t", records), 9))
    assert ErrorCode(result.error_code) is code
    assert result.base_offset == -1
    assert values_of(desk, "t") == []


def test_zstd_needs_version_7() -> None:
    desk = Desk()
    desk.create_topic("t")
    packed = batch(b"a" * 100, codec=Codec.ZSTD)
    assert (
        only(desk.ask(desk.produce_request("t", packed), 6)).error_code
        == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )
    assert only(desk.ask(desk.produce_request("t", packed), 7)).error_code == 0


@pytest.mark.parametrize(
    ("topic", "partition", "acks", "code"),
    [
        ("nowhere", 0, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, 2, ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
def test_wrong_addresses(topic: str, partition: int, acks: int, code: ErrorCode) -> None:
    desk = Desk()
    desk.create_topic("t")
    request = desk.produce_request(topic, batch(b"v"), partition=partition, acks=acks)
    assert only(desk.ask(request, 9)).error_code == code


def test_too_few_replicas_in_sync() -> None:
    desk = Desk()
    desk.create_topic("t", min_insync_replicas="2")
    refused = only(desk.ask(desk.produce_request("t", batch(b"v"), acks=-1), 9))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert only(desk.ask(desk.produce_request("t", batch(b"v"), acks=1), 9)).error_code == 0


def sequenced(first: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> bytes:
    values = [b"%d" % (first + i) for i in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=first)


def test_a_repeated_batch_is_acknowledged_with_its_first_offset() -> None:
    desk = Desk()
    desk.create_topic("t")
    for first in range(5):
        assert only(desk.ask(desk.produce_request("t", sequenced(first)), 9)).base_offset == first
    for first in range(5):
        again = only(desk.ask(desk.produce_request("t", sequenced(first)), 9))
        assert (again.error_code, again.base_offset) == (0, first)
    gap = only(desk.ask(desk.produce_request("t", sequenced(6)), 9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = only(desk.ask(desk.produce_request("t", sequenced(0, epoch=1)), 9))
    assert old.error_code == 0
    stale = only(desk.ask(desk.produce_request("t", sequenced(5, epoch=0)), 9))
    assert stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values_of(desk, "t") == [b"0", b"1", b"2", b"3", b"4", b"0"]


class TestFlush:
    """With flush.messages=1 an acknowledgement speaks of what is on the platter, not in the cache."""

    @pytest.mark.parametrize("acks", [1, -1])
    def test_the_answer_waits_for_the_fsync(self, acks: int) -> None:
        desk = Desk()
        desk.create_topic("t", flush_messages="1")
        desk.runs_jobs = False
        connection = desk.connect()
        desk.send(connection, desk.produce_request("t", batch(b"v"), acks=acks), 9)
        assert desk.receive(connection) is None
        assert values_of(desk, "t") == []  # nor does anybody see it
        desk.run_jobs()
        assert only(desk.receive(connection)).base_offset == 0
        assert values_of(desk, "t") == [b"v"]

    def test_writes_that_pile_up_share_one_fsync(self) -> None:
        desk = Desk()
        desk.create_topic("t", flush_messages="1")
        desk.runs_jobs = False
        connection = desk.connect()
        for i in range(10):
            desk.send(connection, desk.produce_request("t", batch(b"%d" % i)), 9)
        assert len(desk.jobs) == 1
        desk.run_job()
        desk.settle()
        assert only(desk.receive(connection)).base_offset == 0
        assert desk.receive(connection) is None
        assert len(desk.jobs) == 1
        desk.run_jobs()
        assert [only(desk.receive(connection)).base_offset for _ in range(9)] == list(range(1, 10))

    def test_a_flush_that_got_no_thread_is_tried_again(self) -> None:
        desk = Desk()
        desk.create_topic("t", flush_messages="1")
        desk.runs_jobs = False
        connection = desk.connect()
        desk.send(connection, desk.produce_request("t", batch(b"v"), timeout_ms=5000), 9)
        no_thread = BlockingIOError(errno.EAGAIN, "no thread can be started")
        desk.node.completed(desk.clock.now(), desk.jobs.popleft().ticket, no_thread)
        desk.settle()
        assert desk.receive(connection) is None
        desk.advance(1.1)
        desk.run_jobs()
        assert only(desk.receive(connection)).base_offset == 0

    def test_a_flush_that_ends_in_a_mistake_costs_the_directory(self) -> None:
        disks: dict[str, Disk] = {"meta": MemoryDisk(), "data": MemoryDisk()}
        desk = Desk({"metadata.log.dir": "meta", "log.dirs": "data"}, disks=disks)
        desk.create_topic("t", flush_messages="1")
        desk.runs_jobs = False
        connection = desk.connect()
        desk.send(connection, desk.produce_request("t", batch(b"v")), 9)
        desk.node.completed(desk.clock.now(), desk.jobs.popleft().ticket, ValueError("a mistake"))
        desk.settle()
        assert only(desk.receive(connection)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_the_timeout_is_answered_and_the_record_stays(self) -> None:
        desk = Desk()
        desk.create_topic("t", flush_messages="1")
        desk.runs_jobs = False
        connection = desk.connect()
        desk.send(connection, desk.produce_request("t", batch(b"v"), timeout_ms=500), 9)
        desk.advance(0.6)
        assert only(desk.receive(connection)).error_code == ErrorCode.REQUEST_TIMED_OUT
        desk.run_jobs()
        assert values_of(desk, "t") == [b"v"]

    def test_every_third_message(self) -> None:
        desk = Desk()
        desk.create_topic("t", flush_messages="3")
        desk.runs_jobs = False
        connection = desk.connect()
        for i in range(3):
            desk.send(connection, desk.produce_request("t", batch(b"%d" % i), acks=1), 9)
        assert only(desk.receive(connection)).base_offset == 0
        assert only(desk.receive(connection)).base_offset == 1
        assert desk.receive(connection) is None
        desk.run_jobs()
        assert only(desk.receive(connection)).base_offset == 2

    def test_by_time(self) -> None:
        desk = Desk()
        desk.create_topic("t", flush_ms="300")
        desk.ask(desk.produce_request("t", batch(b"v")), 9)
        log = desk.node.broker.partitions.of_name("t")[0].log
        assert log.flushed_offset == 0
        desk.advance(0.31)
        assert log.flushed_offset == 1


def test_deleting_a_topic_under_a_running_flush_harms_nobody() -> None:
    """The flush job finds its files renamed: that topic is gone, the directory is as good as before."""
    desk = Desk()
    desk.create_topic("doomed", flush_messages="1")
    desk.create_topic("stays", flush_messages="1")
    desk.runs_jobs = False
    writer, other, admin = desk.connect(), desk.connect(), desk.connect()
    desk.send(writer, desk.produce_request("doomed", batch(b"v")), 9)
    desk.send(other, desk.produce_request("stays", batch(b"v")), 9)
    desk.send(admin, DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=1000), 5)
    flush, metadata = desk.jobs
    desk.jobs.clear()
    desk.jobs.extend((metadata, flush))
    desk.run_jobs()
    assert desk.halted is None
    assert only(desk.receive(writer)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(desk.receive(other)).error_code == 0
    assert values_of(desk, "stays") == [b"v"]


class TestDiskTrouble:
    """Metadata on a sound disk, data on one that fails."""

    def desk(self) -> tuple[Desk, FaultyDisk]:
        faulty = FaultyDisk(MemoryDisk())
        desk = Desk(
            {"metadata.log.dir": "meta", "log.dirs": "data"}, disks={"data": faulty, "meta": MemoryDisk()}
        )
        desk.create_topic("t")
        assert only(desk.ask(desk.produce_request("t", batch(b"before")), 9)).error_code == 0
        return desk, faulty

    def test_a_full_disk_refuses_writes_serves_reads_and_recovers(self) -> None:
        desk, faulty = self.desk()
        faulty.space_bytes = 10
        full = only(desk.ask(desk.produce_request("t", batch(b"x" * 500)), 9))
        assert full.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(desk, "t") == [b"before"]
        faulty.space_bytes = None
        assert only(desk.ask(desk.produce_request("t", batch(b"after")), 9)).base_offset == 1
        assert values_of(desk, "t") == [b"before", b"after"]
        assert desk.halted is None

    def test_an_io_error_takes_the_directory_offline_and_no_other(self) -> None:
        desk, faulty = self.desk()
        faulty.faults.append(Fault(Fail(errno.EIO), operation="append"))
        for _ in range(2):
            failed = only(desk.ask(desk.produce_request("t", batch(b"x")), 9))
            assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert desk.ask(fetch("t"), 11).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert desk.halted is None

    def test_a_failed_fsync_is_never_taken_for_a_good_one(self) -> None:
        desk, faulty = self.desk()
        desk.create_topic("durable", flush_messages="1")
        faulty.faults.append(Fault(Fail(errno.EIO), operation="sync", path="durable"))
        failed = only(desk.ask(desk.produce_request("durable", batch(b"x")), 9))
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        again = only(desk.ask(desk.produce_request("durable", batch(b"x")), 9))
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_the_metadata_directory_failing_halts_the_node(self) -> None:
        faulty = FaultyDisk(MemoryDisk())
        desk = Desk(disks={"data": faulty})
        faulty.faults.append(Fault(Fail(errno.EIO), operation="sync", path="__cluster_metadata"))
        connection = desk.connect()
        desk.send(
            connection,
            CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1
            ),
            7,
        )
        assert desk.halted is not None
        assert desk.receive(connection) is None


def test_a_topic_that_was_not_touched_since_the_restart_is_deleted_for_good() -> None:
    """Its log was never opened in this life; another topic of the same name must not find its files."""
    desk = Desk()
    desk.create_topic("t")
    desk.ask(desk.produce_request("t", batch(b"old")), 9)
    desk = Desk(disks=desk.disks)
    desk.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    desk.create_topic("t")
    assert only(desk.ask(desk.produce_request("t", batch(b"new")), 9)).base_offset == 0
    assert values_of(desk, "t") == [b"new"]


def test_a_restart_finds_everything_that_was_acknowledged() -> None:
    desk = Desk()
    desk.create_topic("t")
    for i in range(5):
        desk.ask(desk.produce_request("t", sequenced(i)), 9)
    desk = Desk(disks=desk.disks)
    assert values_of(desk, "t") == [b"0", b"1", b"2", b"3", b"4"]
    again = only(desk.ask(desk.produce_request("t", sequenced(4)), 9))
    assert (again.error_code, again.base_offset) == (0, 4)
    assert only(desk.ask(desk.produce_request("t", sequenced(5)), 9)).base_offset == 5


def test_a_clean_stop_is_clean() -> None:
    desk = Desk()
    desk.create_topic("t")
    desk.ask(desk.produce_request("t", batch(b"v")), 9)
    desk.node.shutdown(desk.clock.now())
    desk.settle()
    assert desk.node.is_stopped
    assert desk.disks["data"].exists(".kafka_cleanshutdown")
    desk = Desk(disks=desk.disks, boot_id="boot-2")
    assert values_of(desk, "t") == [b"v"]


def test_records_are_visible_when_flush_messages_is_lifted_during_their_flush() -> None:
    desk = Desk()
    desk.create_topic("t", flush_messages="1")
    desk.runs_jobs = False
    connection = desk.connect()
    desk.send(connection, desk.produce_request("t", batch(b"1"), timeout_ms=60_000), 9)
    flush = desk.jobs.popleft()
    (partition,) = desk.node.broker.partitions.of_name("t") or []
    partition.configure(replace(partition.config, flush_messages=2**63 - 1), 1)
    desk.jobs.append(flush)
    desk.run_jobs()
    assert only(desk.receive(connection)).error_code == 0
    assert values_of(desk, "t") == [b"1"]
