"""The same requests above the same quotas: both brokers answer them with the same throttle times.

A throttle time depends on the time between requests. That of a client's first request does not, and it tells
exactly how many bytes the broker has counted. So each question is asked by a client id of its own.
"""

from __future__ import annotations

from typing import Any

from harness.broker import Broker
from harness.message_socket import MessageSocket
from harness.wait import eventually
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch
from interop.side_by_side import assert_same

BATCH = bytes(build_batch([(1_700_000_000_000, None, b"v" * 5000, ())]))
TOPIC = "quotas"
QUOTAS = {
    "producer_byte_rate": 10.0,
    "consumer_byte_rate": 300.0,  # one batch, which a fetch always returns, is more than ten seconds of it
    "controller_mutation_rate": 1.0,
}


class Asking:
    """One broker, asked by a new client for each question."""

    def __init__(self, broker: Broker) -> None:
        self._port = broker.node_ports[0]
        self._clients = 0
        self._open: list[MessageSocket] = []
        created = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        self.ask(CreateTopicsRequest(topics=[created]), 7)
        self.produce(9)
        entity = [EntityData(entity_type="client-id", entity_name=None)]
        ops = [OpData(key=key, value=value) for key, value in QUOTAS.items()]
        self.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]), 1)
        # Kafka answers before its broker knows the quotas
        eventually(lambda: self.produce(9).throttle_time_ms > 0, True)

    def new_client(self) -> str:
        self._clients += 1
        return f"client-{self._clients}"

    def ask(self, request: Any, version: int, client_id: str = "") -> Any:
        """On a connection of its own: one that was throttled before is not read from."""
        socket = MessageSocket(self._port)
        self._open.append(socket)
        return socket.ask(client_id or self.new_client(), request, version)

    def produce(self, version: int) -> Any:
        data = [PartitionProduceData(index=0, records=BATCH)]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        return self.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), version)

    def fetch(self, version: int, epoch: int) -> FetchRequest:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        return FetchRequest(
            session_epoch=epoch, max_wait_ms=100, min_bytes=1, max_bytes=100_000, topics=topics
        )

    def end(self) -> None:
        entity = [EntityData(entity_type="client-id", entity_name=None)]
        ops = [OpData(key=key, remove=True) for key in QUOTAS]
        self.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]), 1)
        self.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000), 5)
        for socket in self._open:
            socket.close()


def bytes_and_partitions(broker: Broker) -> list[tuple[str, Any]]:
    asking = Asking(broker)
    told: list[tuple[str, Any]] = []
    try:
        for version in (3, 8, 9, 12):
            answer = asking.produce(version)
            code = answer.responses[0].partition_responses[0].error_code
            told.append((f"produce v{version}", (code, answer.throttle_time_ms)))
        for version in (4, 11, 12):
            for epoch in (-1, 0):
                answer = asking.ask(asking.fetch(version, epoch), version)
                assert answer.session_id == 0
                told.append((f"fetch v{version} {epoch}", (len(answer.responses), answer.throttle_time_ms)))
        for version in (5, 6, 7):
            client_id = asking.new_client()
            for number in range(2):
                name = f"{TOPIC}-{version}-{number}"
                topic = CreatableTopic(name=name, num_partitions=16, replication_factor=1)
                answer = asking.ask(CreateTopicsRequest(topics=[topic]), version, client_id)
                one = answer.topics[0]
                throttle_s = round(answer.throttle_time_ms / 1000)  # less what the answer took
                told.append((f"create v{version}", (one.error_code, one.error_message, throttle_s)))
        for version in (4, 5):
            client_id = asking.new_client()
            for name in (f"{TOPIC}-5-0", f"{TOPIC}-5-1") if version == 4 else (f"{TOPIC}-6-0", TOPIC):
                answer = asking.ask(
                    DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), version, client_id
                )
                throttle_s = round(answer.throttle_time_ms / 1000)
                one = answer.responses[0]
                told.append((f"delete v{version}", (one.error_code, one.error_message, throttle_s)))
        for version in (2, 3):
            client_id = asking.new_client()
            for count in (30, 50):
                grown = CreatePartitionsTopic(name=f"{TOPIC}-7-0", count=count * version, assignments=None)
                growth = CreatePartitionsRequest(topics=[grown], timeout_ms=10_000)
                answer = asking.ask(growth, version, client_id)
                throttle_s = round(answer.throttle_time_ms / 1000)
                one = answer.results[0]
                told.append((f"grow v{version}", (one.error_code, one.error_message, throttle_s)))
        client_id = asking.new_client()
        for _ in range(2):
            topic = CreatableTopic(name=f"{TOPIC}-dry", num_partitions=16, replication_factor=1)
            answer = asking.ask(CreateTopicsRequest(topics=[topic], validate_only=True), 7, client_id)
            told.append(("dry run", answer.topics[0].error_code))
    finally:
        asking.end()
    return told


def test_throttle_times(brokers: tuple[Broker, Broker]) -> None:
    told = assert_same(brokers, bytes_and_partitions)
    assert all(answer[1] > 0 for kind, answer in told if kind.startswith(("produce", "fetch")))
    assert all(answer[0] == 0 for kind, answer in told if kind.startswith("fetch")), "they are empty"
