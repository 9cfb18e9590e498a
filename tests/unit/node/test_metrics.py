"""Counters for operators: nothing in the node reads them, so only these tests notice a wrong one."""

from __future__ import annotations

import pytest

from headrace.node.metrics import LATENCY_BOUNDS, ApiMetrics
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.memory_disk import MemoryDisk

PRODUCE, FETCH = 0, 1
BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])


def long_poll(offset: int, wait_ms: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics)


def host_with_topic(**settings: str) -> ManualHost:
    host = ManualHost({key.replace("_", "."): value for key, value in settings.items()})
    host.create_topic("t")
    return host


def test_each_time_is_in_the_first_bucket_whose_bound_it_does_not_pass() -> None:
    for number, bound in enumerate(LATENCY_BOUNDS):
        api = ApiMetrics()
        api.observe(bound)
        api.observe(bound * 1.001)
        expected = [0] * (len(LATENCY_BOUNDS) + 1)
        expected[number] += 1
        expected[number + 1] += 1
        assert api.buckets == expected
        assert api.seconds == pytest.approx(bound * 2.001)


def test_the_last_bucket_is_of_what_passes_all_bounds() -> None:
    api = ApiMetrics()
    api.observe(1e9)
    assert (api.buckets[-1], sum(api.buckets)) == (1, 1)


def test_requests_are_counted_by_api_and_waiting_ones_are_timed() -> None:
    host = host_with_topic()
    for _ in range(3):
        host.ask(host.produce_request("t", BATCH), 9)
    reader = host.connect()
    host.send(reader, long_poll(3, 2_000), 11)
    assert host.node.metrics.parked == 1
    host.advance(3)
    apis = host.node.metrics.apis
    assert (apis[PRODUCE].requests, apis[FETCH].requests) == (3, 1)
    assert apis[FETCH].seconds == pytest.approx(2.0)
    assert host.node.metrics.parked == 0


@pytest.mark.parametrize("version", [9, 13])
def test_batches_and_bytes_are_counted_once_also_by_the_fast_path(version: int) -> None:
    host = host_with_topic()
    connection = host.connect()
    for _ in range(5):
        request = host.produce_request("t", BATCH, acks=1)
        request.topic_data[0].topic_id = host.partitions("t")[0].topic_id
        host.ask(request, version, connection)
    metrics = host.node.metrics
    assert host.partitions("t")[0].high_watermark == 5
    assert (metrics.produced_batches, metrics.produced_bytes) == (5, 5 * len(BATCH))
    assert metrics.apis[PRODUCE].requests == 5


def test_batches_that_were_checked_first_are_counted_too() -> None:
    host = ManualHost()
    host.create_topic("t", cleanup_policy="compact")
    batch = build_batch([(1_700_000_000_000, b"k%d" % number, b"v" * 1000, ()) for number in range(300)])
    host.ask_patiently(host.produce_request("t", batch), 9)
    metrics = host.node.metrics
    assert host.partitions("t")[0].high_watermark == 300
    assert (metrics.produced_batches, metrics.produced_bytes) == (1, len(batch))


def test_a_batch_that_is_refused_is_not_counted() -> None:
    host = host_with_topic()
    broken = bytearray(BATCH)
    broken[-1] ^= 1
    host.ask(host.produce_request("t", broken), 9)
    assert (host.node.metrics.produced_batches, host.node.metrics.produced_bytes) == (0, 0)


def test_one_flush_serves_all_who_came_before_it() -> None:
    host = host_with_topic(log_flush_interval_messages="1")
    before = host.node.metrics.flushes
    host.runs_jobs = False
    for _ in range(4):
        host.send(host.connect(), host.produce_request("t", BATCH), 9)
    host.run_jobs()
    assert host.node.metrics.flushes - before == 2, "that of the first, and one for the rest"


def test_connections_come_and_go() -> None:
    host = host_with_topic()
    before = host.node.metrics.connections
    first, _ = host.connect(), host.connect()
    assert host.node.metrics.connections - before == 2
    host.node.disconnected(host.clock.now(), first)
    assert host.node.metrics.connections - before == 1


def test_damages_and_strays_are_told_after_a_restart() -> None:
    disk = MemoryDisk()
    host = ManualHost(disks={"data": disk})
    host.create_topic("t")
    host.ask(host.produce_request("t", BATCH), 9)
    host.node.shutdown(host.clock.now())
    host.settle()
    assert (host.node.metrics.strays, host.node.metrics.damages) == (0, 0)
    disk.make_dir("unknown-0")
    for name in ("partition.metadata", "00000000000000000000.log"):
        disk.open(f"unknown-0/{name}", create=True).append(b"x")
    file = disk.open("recovery-point-offset-checkpoint")
    file.truncate(file.size() - 1)
    file.append(b"7")
    again = ManualHost(disks={"data": disk}, seed=2)
    again.advance(10)
    assert again.node.metrics.strays == 1
    assert again.node.metrics.damages >= 1
