"""Who can be told a story of a consumer group: the machine alone, and a broker over a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.broker import Broker
from harness.consumer_groups import APP, Coordinator
from harness.consumer_stories import SETTINGS
from harness.group_requests import Asked, response_of
from harness.group_shard import FakeTopics
from harness.message_socket import MessageSocket
from harness.wait import eventually
from headrace.protocol.coordinator_records import GROUP_RECORDS, Record, decode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.notation import Request
from headrace.records.reader import batches, read_rows


class MachineListener:
    """Time passes only while it is waited for."""

    def __init__(self) -> None:
        settings = {key.replace(".", "_"): int(value) for key, value in SETTINGS.items()}
        self.coordinator = Coordinator(FakeTopics(), **settings)

    def ask(self, request: Request, version: int) -> Any:
        coordinator = self.coordinator
        answered = len(coordinator.answers)
        asked = Asked(coordinator.groups, coordinator.clock.now(), coordinator.settle, version, APP, "ticket")
        response = asked.response(request)
        coordinator.pass_time(0)
        return response if response is not None else response_of(coordinator.answers[answered][1])

    def create_topic(self, name: str, partitions: int) -> bytes:
        self.coordinator.topics.create(name, partitions)
        topic_id = self.coordinator.topics.id_of(name)
        assert topic_id is not None
        return topic_id

    def grow_topic(self, name: str, partitions: int) -> None:
        self.coordinator.topics.grow(name, partitions)

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(1_000):
            if is_so():
                return
            self.coordinator.pass_time(0.1)
        raise AssertionError("it never is so")

    def log(self, group_id: str) -> list[Record]:
        return [record for record in self.coordinator.log if group_of(record) == group_id]


class BrokerListener:
    """A broker with one shard of groups, so that what one group knows of topics another does, too."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connection = MessageSocket(broker.port)
        self.probes = 0

    def close(self) -> None:
        self.connection.close()

    def ask(self, request: Request, version: int) -> Any:
        return self.connection.ask(APP.client_id, request, version)

    def find(self, group_id: str) -> None:
        """Returns when the group has a coordinator that has loaded its shard."""

        def errors() -> set[ErrorCode]:
            [found] = self.ask(
                FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4
            ).coordinators
            [described] = self.ask(ConsumerGroupDescribeRequest(group_ids=[group_id]), 1).groups
            return {ErrorCode(found.error_code), ErrorCode(described.error_code)}

        eventually(errors, {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})

    def create_topic(self, name: str, partitions: int) -> bytes:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        eventually(lambda: self._assignable(name), partitions)
        return bytes(self._metadata(name).topic_id)

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        self.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 3)
        eventually(lambda: self._assignable(name), partitions)

    def _metadata(self, name: str) -> Any:
        [topic] = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics
        return topic

    def _assignable(self, name: str) -> int:
        """How many partitions the coordinator knows: what a group of one would be given."""
        self.probes += 1
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"probe-{self.probes}",
            member_id="probe",
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=[name],
            topic_partitions=[],
        )
        response = self.ask(request, 1)
        request.member_epoch = -1
        self.ask(request, 1)
        given = [] if response.assignment is None else response.assignment.topic_partitions
        return sum(len(topic.partitions) for topic in given)

    def until(self, is_so: Callable[[], bool]) -> None:
        eventually(is_so, True)

    def log(self, group_id: str) -> list[Record]:
        records: list[Record] = []
        for path in sorted(self.broker.data.glob("__consumer_offsets-*/*.log")):
            content = path.read_bytes()
            for position, header in batches(content):
                for _, _, key, value, _ in [] if header.is_control else read_rows(content, position, header):
                    record = decode(GROUP_RECORDS, key or b"", value)
                    if record is not None and group_of(record) == group_id:
                        records.append(record)
        return records


def group_of(record: Record) -> str:
    key: Any = record.key
    return str(key.group_id if hasattr(key, "group_id") else key.group)
