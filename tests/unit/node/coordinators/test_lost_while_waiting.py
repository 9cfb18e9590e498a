"""A coordinator's log directory fails while requests wait for its flush.

Each is answered with an error, in the form of its version, for everything that it asked about. Otherwise a
client would wait until its own timeout, or take the answer for a success.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from harness.node_groups import SETTINGS, commit, find
from harness.node_transactions import Producer, offset_commit
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


@dataclass
class Scene:
    host: ManualHost
    disk: FaultyDisk
    producer: Producer


@pytest.fixture
def scene() -> Scene:
    """Metadata on a disk that is well; what coordinators write is flushed before they answer."""
    disk = FaultyDisk(MemoryDisk())
    settings = {
        **SETTINGS,
        "log.dirs": "data",
        "metadata.log.dir": "meta",
        "log.flush.interval.messages": "1",
        "transaction.state.log.num.partitions": "1",
    }
    host = ManualHost(settings, disks={"meta": MemoryDisk(), "data": disk})
    host.create_topic("t", 2)
    host.create_topic("u")
    find(host, "g")
    assert commit(host, "g", "t", 1) == 0
    return Scene(host, disk, Producer(host))


TOPICS = [
    AddPartitionsToTxnTopic(name="t", partitions=[0, 1]),
    AddPartitionsToTxnTopic(name="u", partitions=[0]),
]


def add_partitions(scene: Scene) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=scene.producer.name,
        v3_and_below_producer_id=scene.producer.id,
        v3_and_below_producer_epoch=scene.producer.epoch,
        v3_and_below_topics=TOPICS,
    )


def add_partitions_of_many(scene: Scene) -> AddPartitionsToTxnRequest:
    one = AddPartitionsToTxnTransaction(
        transactional_id=scene.producer.name,
        producer_id=scene.producer.id,
        producer_epoch=scene.producer.epoch,
        verify_only=False,
        topics=TOPICS,
    )
    return AddPartitionsToTxnRequest(transactions=[one])


def add_offsets(scene: Scene) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=scene.producer.name,
        producer_id=scene.producer.id,
        producer_epoch=scene.producer.epoch,
        group_id="g",
    )


def end(scene: Scene) -> EndTxnRequest:
    """Of a transaction that has a partition, so that there is something to write."""
    assert scene.producer.add("t") == 0
    return EndTxnRequest(
        transactional_id=scene.producer.name,
        producer_id=scene.producer.id,
        producer_epoch=scene.producer.epoch,
        committed=True,
    )


def init(scene: Scene) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=scene.producer.name, transaction_timeout_ms=1_000)


def commit_in_transaction(scene: Scene) -> Any:
    assert scene.host.ask(add_offsets(scene), 3).error_code == 0
    return offset_commit(scene.producer)


def commit_alone(scene: Scene) -> OffsetCommitRequest:
    parts = [OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in (0, 1)]
    topic_id = scene.host.partitions("t")[0].topic_id
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=parts)]
    )


def delete_offsets(scene: Scene) -> OffsetDeleteRequest:
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=parts)])


def delete_group(scene: Scene) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=["g"])


def error_codes(answer: Any) -> list[int]:
    """All that are in the answer, in their order."""
    if isinstance(answer, list):
        return [code for each in answer for code in error_codes(each)]
    found: list[int] = []
    for name in getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            found.append(value)
        else:
            found += error_codes(value)
    return found


@pytest.mark.parametrize(
    ("ask", "version", "count"),
    [
        *((add_partitions, version, 3) for version in range(4)),
        *((add_partitions_of_many, version, 1) for version in (4, 5)),
        *((add_offsets, version, 1) for version in (0, 4)),
        *((end, version, 1) for version in (0, 4, 5)),
        *((init, version, 1) for version in (0, 5)),
        *((commit_in_transaction, version, 1) for version in (0, 3, 5)),
        *((commit_alone, version, 2) for version in (2, 8, 10)),
        (delete_offsets, 0, 1),
        *((delete_group, version, 1) for version in (0, 2)),
    ],
)
def test_it_is_answered_with_an_error_for_everything_it_asked(
    scene: Scene, ask: Callable[[Scene], Any], version: int, count: int
) -> None:
    request = ask(scene)
    host = scene.host
    host.runs_jobs = False
    connection = host.connect()
    host.send(connection, request, version)
    assert host.receive(connection) is None, "it waits for the flush"
    scene.disk.faults = [Fault(Fail(errno.EIO), "sync", times=100)]
    host.run_jobs()
    answer = host.receive(connection)
    assert answer is not None
    refusals = [code for code in error_codes(answer) if code]
    assert set(refusals) <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert len(refusals) == count
