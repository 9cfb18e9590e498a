"""Produce through the node: what is acknowledged, when, and what is refused and how."""

import errno
from dataclasses import replace

import pytest

from harness.node_records import batch, fetch, only, values_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_offsets_rise_without_gaps_in_every_version(version: int, acks: int) -> None:
    host = ManualHost()
    host.create_topic("t")
    first = only(host.ask(host.produce_request("t", batch(b"a", b"b"), acks=acks), version))
    second = only(host.ask(host.produce_request("t", batch(b"c"), acks=acks), version))
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert values_of(host, "t") == [b"a", b"b", b"c"]


def test_by_topic_id() -> None:
    host = ManualHost()
    host.create_topic("t")
    topic_id = host.partitions("t")[0].topic_id
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
        response = host.ask(request, 13)
        assert response.responses[0].topic_id == id
        assert only(response).error_code == code


def test_acks_0_gets_no_answer_and_its_record_is_there() -> None:
    host = ManualHost()
    host.create_topic("t")
    connection = host.connect()
    host.send(connection, host.produce_request("t", batch(b"quiet"), acks=0), 9)
    assert host.receive(connection) is None
    assert not connection.pending
    assert values_of(host, "t") == [b"quiet"]


def test_an_error_with_acks_0_closes_the_connection() -> None:
    host = ManualHost()
    connection = host.connect()
    host.send(connection, host.produce_request("nowhere", batch(b"v"), acks=0), 9)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in host.closed[connection.id]


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
    host = ManualHost()
    host.create_topic("t")
    result = only(host.ask(host.produce_request("t", records), 9))
    assert ErrorCode(result.error_code) is code
    assert result.base_offset == -1
    assert values_of(host, "t") == []


def test_zstd_needs_version_7() -> None:
    host = ManualHost()
    host.create_topic("t")
    packed = batch(b"a" * 100, codec=Codec.ZSTD)
    assert (
        only(host.ask(host.produce_request("t", packed), 6)).error_code
        == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )
    assert only(host.ask(host.produce_request("t", packed), 7)).error_code == 0


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
    host = ManualHost()
    host.create_topic("t")
    request = host.produce_request(topic, batch(b"v"), partition=partition, acks=acks)
    assert only(host.ask(request, 9)).error_code == code


def test_too_few_replicas_in_sync() -> None:
    """A partition cannot have more in-sync replicas than it has replicas: Kafka demands no more."""
    host = ManualHost()
    host.create_topic("t", min_insync_replicas="2")
    assert only(host.ask(host.produce_request("t", batch(b"v"), acks=-1), 9)).error_code == 0
    state = host.node.controller.metadata.image.topics["t"].partitions[0]
    two = replace(state, replicas=(1, 2), partition_epoch=state.partition_epoch + 1)
    host.partitions("t")[0].take(host.clock.now(), two)
    refused = only(host.ask(host.produce_request("t", batch(b"v"), acks=-1), 9))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert only(host.ask(host.produce_request("t", batch(b"v"), acks=1), 9)).error_code == 0


def sequenced(first: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> bytes:
    values = [b"%d" % (first + i) for i in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=first)


def test_a_repeated_batch_is_acknowledged_with_its_first_offset() -> None:
    host = ManualHost()
    host.create_topic("t")
    for first in range(5):
        assert only(host.ask(host.produce_request("t", sequenced(first)), 9)).base_offset == first
    for first in range(5):
        again = only(host.ask(host.produce_request("t", sequenced(first)), 9))
        assert (again.error_code, again.base_offset) == (0, first)
    gap = only(host.ask(host.produce_request("t", sequenced(6)), 9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = only(host.ask(host.produce_request("t", sequenced(0, epoch=1)), 9))
    assert old.error_code == 0
    stale = only(host.ask(host.produce_request("t", sequenced(5, epoch=0)), 9))
    assert stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values_of(host, "t") == [b"0", b"1", b"2", b"3", b"4", b"0"]


class TestFlush:
    """With flush.messages=1 an acknowledgement speaks of what is on the platter, not in the cache."""

    @pytest.mark.parametrize("acks", [1, -1])
    def test_the_answer_waits_for_the_fsync(self, acks: int) -> None:
        host = ManualHost()
        host.create_topic("t", flush_messages="1")
        host.runs_jobs = False
        connection = host.connect()
        host.send(connection, host.produce_request("t", batch(b"v"), acks=acks), 9)
        assert host.receive(connection) is None
        assert values_of(host, "t") == []  # nor does anybody see it
        host.run_jobs()
        assert only(host.receive(connection)).base_offset == 0
        assert values_of(host, "t") == [b"v"]

    def test_writes_that_pile_up_share_one_fsync(self) -> None:
        host = ManualHost()
        host.create_topic("t", flush_messages="1")
        host.runs_jobs = False
        connection = host.connect()
        for i in range(10):
            host.send(connection, host.produce_request("t", batch(b"%d" % i)), 9)
        assert len(host.jobs) == 1
        host.run_job()
        host.settle()
        assert only(host.receive(connection)).base_offset == 0
        assert host.receive(connection) is None
        assert len(host.jobs) == 1
        host.run_jobs()
        assert [only(host.receive(connection)).base_offset for _ in range(9)] == list(range(1, 10))

    def test_a_flush_that_got_no_thread_is_tried_again(self) -> None:
        host = ManualHost()
        host.create_topic("t", flush_messages="1")
        host.runs_jobs = False
        connection = host.connect()
        host.send(connection, host.produce_request("t", batch(b"v"), timeout_ms=5000), 9)
        no_thread = BlockingIOError(errno.EAGAIN, "no thread can be started")
        host.node.completed(host.clock.now(), host.jobs.popleft().ticket, no_thread)
        host.settle()
        assert host.receive(connection) is None
        host.advance(1.1)
        host.run_jobs()
        assert only(host.receive(connection)).base_offset == 0

    def test_a_flush_that_ends_in_a_mistake_costs_the_directory(self) -> None:
        disks: dict[str, Disk] = {"meta": MemoryDisk(), "data": MemoryDisk()}
        host = ManualHost({"metadata.log.dir": "meta", "log.dirs": "data"}, disks=disks)
        host.create_topic("t", flush_messages="1")
        host.runs_jobs = False
        connection = host.connect()
        host.send(connection, host.produce_request("t", batch(b"v")), 9)
        host.node.completed(host.clock.now(), host.jobs.popleft().ticket, ValueError("a mistake"))
        host.settle()
        assert only(host.receive(connection)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_the_timeout_is_answered_and_the_record_stays(self) -> None:
        host = ManualHost()
        host.create_topic("t", flush_messages="1")
        host.runs_jobs = False
        connection = host.connect()
        host.send(connection, host.produce_request("t", batch(b"v"), timeout_ms=500), 9)
        host.advance(0.6)
        assert only(host.receive(connection)).error_code == ErrorCode.REQUEST_TIMED_OUT
        host.run_jobs()
        assert values_of(host, "t") == [b"v"]

    def test_every_third_message(self) -> None:
        host = ManualHost()
        host.create_topic("t", flush_messages="3")
        host.runs_jobs = False
        connection = host.connect()
        for i in range(3):
            host.send(connection, host.produce_request("t", batch(b"%d" % i), acks=1), 9)
        assert only(host.receive(connection)).base_offset == 0
        assert only(host.receive(connection)).base_offset == 1
        assert host.receive(connection) is None
        host.run_jobs()
        assert only(host.receive(connection)).base_offset == 2

    def test_by_time(self) -> None:
        host = ManualHost()
        host.create_topic("t", flush_ms="300")
        host.ask(host.produce_request("t", batch(b"v")), 9)
        log = host.partitions("t")[0].opened(host.clock.now())
        assert log.flushed_offset == 0
        host.advance(0.31)
        assert log.flushed_offset == 1


def test_deleting_a_topic_under_a_running_flush_harms_nobody() -> None:
    """The flush job finds its files renamed: that topic is gone, the directory is as good as before."""
    host = ManualHost()
    host.create_topic("doomed", flush_messages="1")
    host.create_topic("stays", flush_messages="1")
    host.runs_jobs = False
    writer, other, admin = host.connect(), host.connect(), host.connect()
    host.send(writer, host.produce_request("doomed", batch(b"v")), 9)
    host.send(other, host.produce_request("stays", batch(b"v")), 9)
    host.send(admin, DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=1000), 5)
    flush, metadata = host.jobs
    host.jobs.clear()
    host.jobs.extend((metadata, flush))
    host.run_jobs()
    assert host.halted is None
    assert only(host.receive(writer)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(host.receive(other)).error_code == 0
    assert values_of(host, "stays") == [b"v"]


class TestDiskTrouble:
    """Metadata on a sound disk, data on one that fails."""

    def host(self) -> tuple[ManualHost, FaultyDisk]:
        faulty = FaultyDisk(MemoryDisk())
        host = ManualHost(
            {"metadata.log.dir": "meta", "log.dirs": "data"}, disks={"data": faulty, "meta": MemoryDisk()}
        )
        host.create_topic("t")
        assert only(host.ask(host.produce_request("t", batch(b"before")), 9)).error_code == 0
        return host, faulty

    def test_a_full_disk_refuses_writes_serves_reads_and_recovers(self) -> None:
        host, faulty = self.host()
        faulty.space_bytes = 10
        full = only(host.ask(host.produce_request("t", batch(b"x" * 500)), 9))
        assert full.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(host, "t") == [b"before"]
        faulty.space_bytes = None
        assert only(host.ask(host.produce_request("t", batch(b"after")), 9)).base_offset == 1
        assert values_of(host, "t") == [b"before", b"after"]
        assert host.halted is None

    def test_an_io_error_takes_the_directory_offline_and_no_other(self) -> None:
        host, faulty = self.host()
        faulty.faults.append(Fault(Fail(errno.EIO), operation="append"))
        for _ in range(2):
            failed = only(host.ask(host.produce_request("t", batch(b"x")), 9))
            assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert host.ask(fetch("t"), 11).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert host.halted is None

    def test_a_failed_fsync_is_never_taken_for_a_good_one(self) -> None:
        host, faulty = self.host()
        host.create_topic("durable", flush_messages="1")
        faulty.faults.append(Fault(Fail(errno.EIO), operation="sync", path="durable"))
        failed = only(host.ask(host.produce_request("durable", batch(b"x")), 9))
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        again = only(host.ask(host.produce_request("durable", batch(b"x")), 9))
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_the_metadata_directory_failing_halts_the_node(self) -> None:
        faulty = FaultyDisk(MemoryDisk())
        host = ManualHost(disks={"data": faulty})
        faulty.faults.append(Fault(Fail(errno.EIO), operation="sync", path="__cluster_metadata"))
        connection = host.connect()
        host.send(
            connection,
            CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1
            ),
            7,
        )
        assert host.halted is not None
        assert host.receive(connection) is None


def test_a_topic_that_was_not_touched_since_the_restart_is_deleted_for_good() -> None:
    """Its log was never opened in this life; another topic of the same name must not find its files."""
    host = ManualHost()
    host.create_topic("t")
    host.ask(host.produce_request("t", batch(b"old")), 9)
    host = ManualHost(disks=host.disks)
    host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    host.create_topic("t")
    assert only(host.ask(host.produce_request("t", batch(b"new")), 9)).base_offset == 0
    assert values_of(host, "t") == [b"new"]


def test_a_restart_finds_everything_that_was_acknowledged() -> None:
    host = ManualHost()
    host.create_topic("t")
    for i in range(5):
        host.ask(host.produce_request("t", sequenced(i)), 9)
    host = ManualHost(disks=host.disks)
    assert values_of(host, "t") == [b"0", b"1", b"2", b"3", b"4"]
    again = only(host.ask(host.produce_request("t", sequenced(4)), 9))
    assert (again.error_code, again.base_offset) == (0, 4)
    assert only(host.ask(host.produce_request("t", sequenced(5)), 9)).base_offset == 5


def test_a_clean_stop_is_clean() -> None:
    host = ManualHost()
    host.create_topic("t")
    host.ask(host.produce_request("t", batch(b"v")), 9)
    host.node.shutdown(host.clock.now())
    host.settle()
    assert host.node.is_stopped
    assert host.disks["data"].exists(".kafka_cleanshutdown")
    host = ManualHost(disks=host.disks, boot_id="boot-2")
    assert values_of(host, "t") == [b"v"]


def test_records_are_visible_when_flush_messages_is_lifted_during_their_flush() -> None:
    host = ManualHost()
    host.create_topic("t", flush_messages="1")
    host.runs_jobs = False
    connection = host.connect()
    host.send(connection, host.produce_request("t", batch(b"1"), timeout_ms=60_000), 9)
    flush = host.jobs.popleft()
    (partition,) = host.partitions("t")
    partition.configure(host.clock.now(), replace(partition.config, flush_messages=2**63 - 1), 1)
    host.jobs.append(flush)
    host.run_jobs()
    assert only(host.receive(connection)).error_code == 0
    assert values_of(host, "t") == [b"1"]
