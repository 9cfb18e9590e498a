"""A flush that cannot even be ordered: what runs out is tried again, what fails takes the directory along."""

from __future__ import annotations

from typing import Any

import pytest

from harness.node_records import batch
from headrace.protocol.errors import ErrorCode
from headrace.simulator.manual_host import ManualHost
from headrace.storage.errors import DiskFull, LogOffline
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk

ORIGINAL = PartitionLog.flush_job


@pytest.fixture
def host() -> ManualHost:
    host = ManualHost(
        {"log.dirs": "data", "metadata.log.dir": "meta"}, disks={"data": MemoryDisk(), "meta": MemoryDisk()}
    )
    host.create_topic("t", 2, flush_messages="1")
    return host


def fails(monkeypatch: pytest.MonkeyPatch, fault: Exception, times: int, index: int = 0) -> list[str]:
    """Orders to flush one partition of the topic fail so many times; what was asked for."""
    asked: list[str] = []

    def flush_job(log: PartitionLog) -> Any:
        if log.directory == f"t-{index}":
            asked.append(log.directory)
            if len(asked) <= times:
                raise fault
        return ORIGINAL(log)

    monkeypatch.setattr(PartitionLog, "flush_job", flush_job)
    return asked


def produce(host: ManualHost, partition: int) -> Any:
    connection = host.connect()
    host.send(connection, host.produce_request("t", batch(b"a"), partition=partition, timeout_ms=60_000), 9)
    return connection


def code(host: ManualHost, connection: Any) -> int | None:
    answer = host.receive(connection)
    return None if answer is None else int(answer.responses[0].partition_responses[0].error_code)


def test_without_space_a_write_waits_for_the_next_flush(
    host: ManualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fails(monkeypatch, DiskFull("no space"), times=2)
    waits, other = produce(host, 0), produce(host, 1)
    host.settle()
    assert code(host, waits) is None
    host.advance(30.0)
    assert code(host, waits) == ErrorCode.NONE
    assert code(host, other) == ErrorCode.NONE, "it has the same directory, and nothing is wrong with it"
    assert len(asked) == 3
    assert not host.node.directories["data"].is_offline


def test_an_error_takes_the_directory_offline(host: ManualHost, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, LogOffline("broken"), times=1)
    produce(host, 0)
    host.advance(1.0)
    assert host.node.directories["data"].is_offline
    refused = produce(host, 1)
    host.advance(1.0)
    assert code(host, refused) == ErrorCode.KAFKA_STORAGE_ERROR
