"""Requests to coordinators and the answers they have to get, as bytes, and the few questions asked before.

The frames are made here, with the project's own codecs, and sent by frames.go, so that no time is spent on
making them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from harness.broker import Broker
from headrace.protocol import framing
from headrace.protocol.api import ApiKey, request_codec, response_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import (
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

PATIENCE_S = 60.0
SESSION_MS = 1_800_000  # nobody is to be removed while others are measured
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Exchange(NamedTuple):
    request: bytes
    wanted: bytes  # the whole answer, from its correlation id on


class Member(NamedTuple):
    group: str
    member_id: str
    generation: int


class TransactionalProducer(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int


def exchange(key: ApiKey, version: int, asked: Any, wanted: Any) -> Exchange:
    answer = response_codec(key, version)
    parts = framing.response_frame(1, answer.header_version, answer.encode_parts(wanted))
    return Exchange(_frame(key, version, asked)[4:], b"".join(map(bytes, parts))[4:])


def _frame(key: ApiKey, version: int, asked: Any) -> bytes:
    body = request_codec(key, version).encode_parts(asked)
    return b"".join(map(bytes, framing.request_frame(key, version, 1, "bench", body)))


def write(path: Path, by_connection: list[list[Exchange]]) -> None:
    with path.open("w") as file:
        for number, exchanges in enumerate(by_connection):
            for each in exchanges:
                file.write(f"{number},{each.request.hex()},{each.wanted.hex()}\n")


class Desk:
    """Asks one question at a time, again while the coordinator is not ready for it."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S)

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def once(self, key: ApiKey, version: int, asked: Any) -> Any:
        self.socket.sendall(_frame(key, version, asked))
        (length,) = struct.unpack(">i", self._exactly(4))
        answer = response_codec(key, version)
        return answer.decode(self._exactly(length), 4 + answer.header_version)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("closed by the broker")
            data += more
        return bytes(data)

    def ask(self, key: ApiKey, version: int, asked: Any, codes: Callable[[Any], Iterable[int]]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.once(key, version, asked)
            found = set(codes(answer)) - {0}
            if not found:
                return answer
            if not found <= NOT_YET or time.monotonic() > deadline:
                raise RuntimeError(f"{key.name}: {answer}")
            time.sleep(0.001)

    def coordinator(self, name: str, *, of_transactions: bool = False) -> None:
        """Waits until somebody coordinates it: the first question also makes the topic."""
        asked = find_coordinator.FindCoordinatorRequest(key=name, key_type=int(of_transactions))
        self.ask(ApiKey.FIND_COORDINATOR, 3, asked, lambda answer: [answer.error_code])

    def join(self, group: str) -> Member:
        """A classic group with this one member."""
        self.coordinator(group)
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
        asked = join_group.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        version = 3  # the last that lets a member in without an id
        joined = self.ask(ApiKey.JOIN_GROUP, version, asked, lambda answer: [answer.error_code])
        member = Member(group, joined.member_id, joined.generation_id)
        given = sync_group.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"")
        synced = sync_group.SyncGroupRequest(
            group_id=group,
            generation_id=member.generation,
            member_id=member.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[given],
        )
        self.ask(ApiKey.SYNC_GROUP, 5, synced, lambda answer: [answer.error_code])
        return member

    def begin(self, transactional_id: str) -> TransactionalProducer:
        self.coordinator(transactional_id, of_transactions=True)
        asked = init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        made = self.ask(ApiKey.INIT_PRODUCER_ID, 4, asked, lambda answer: [answer.error_code])
        return TransactionalProducer(transactional_id, made.producer_id, made.producer_epoch)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """All offsets of a group; waits until its coordinator has loaded them."""
        asked = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)]
        )
        answer = self.ask(ApiKey.OFFSET_FETCH, 9, asked, lambda got: [got.groups[0].error_code])
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in answer.groups[0].topics
            for partition in topic.partitions
        }


def heartbeats(member: Member) -> Exchange:
    asked = heartbeat.HeartbeatRequest(
        group_id=member.group, generation_id=member.generation, member_id=member.member_id
    )
    return exchange(ApiKey.HEARTBEAT, 4, asked, heartbeat.HeartbeatResponse())


def commit(member: Member, topic: str, partitions: int, offset: int) -> Exchange:
    asked = offset_commit.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )
    done = [offset_commit.OffsetCommitResponsePartition(partition_index=index) for index in range(partitions)]
    wanted = offset_commit.OffsetCommitResponse(
        topics=[offset_commit.OffsetCommitResponseTopic(name=topic, partitions=done)]
    )
    return exchange(ApiKey.OFFSET_COMMIT, 9, asked, wanted)


def empty_transaction(producer: TransactionalProducer, topic: str, partition: int) -> list[Exchange]:
    """A partition joins and the transaction ends: nothing is written but what transactions themselves write.

    In these versions the epoch stays, so that the same bytes can be sent again.
    """
    joining = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[partition])
        ],
    )
    result = add_partitions_to_txn.AddPartitionsToTxnPartitionResult(partition_index=partition)
    joined = add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=[result])
        ]
    )
    ending = end_txn.EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    return [
        exchange(ApiKey.ADD_PARTITIONS_TO_TXN, 3, joining, joined),
        exchange(ApiKey.END_TXN, 4, ending, end_txn.EndTxnResponse()),
    ]
