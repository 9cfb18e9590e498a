"""Who can be told a story of a consumer group: the machine alone, and a broker over a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.broker import Broker
from harness.consumer_groups import APP, FakeTopics
from harness.consumer_groups import Coordinator as Desk
from harness.consumer_stories import SETTINGS
from harness.message_socket import MessageSocket
from harness.wait import eventually
from headrace.protocol.coordinator_records import GROUP_RECORDS, Record, decode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.offset_commit import OffsetCommitRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.protocol.notation import Request
from headrace.records.reader import batches, read_rows


class MachineListener:
    """Time passes only while it is waited for."""

    def __init__(self) -> None:
        settings = {key.replace(".", "_"): int(value) for key, value in SETTINGS.items()}
        self.desk = Desk(FakeTopics(), **settings)

    def ask(self, request: Request, version: int) -> Any:
        desk = self.desk
        groups, now = desk.groups, desk.clock.now()
        answered = len(desk.answers)
        match request:
            case ConsumerGroupHeartbeatRequest():
                reply = desk.settle(groups.consumer_heartbeat(now, request, version, APP))
            case ConsumerGroupDescribeRequest():
                found = [groups.describe_consumer(now, group_id) for group_id in request.group_ids]
                reply = ConsumerGroupDescribeResponse(groups=found)
            case JoinGroupRequest():
                reply = desk.settle(groups.join(now, request, version, APP, "ticket"))
            case SyncGroupRequest():
                reply = desk.settle(groups.sync(now, request, version, APP, "ticket"))
            case HeartbeatRequest():
                reply = desk.settle(groups.heartbeat(now, request))
            case LeaveGroupRequest():
                reply = desk.settle(groups.leave(now, request, version))
            case OffsetCommitRequest():
                reply = desk.settle(groups.commit_offsets(now, request, version))
            case _:
                raise TypeError(f"stories have no {type(request).__name__}")
        desk.pass_time(0)
        return reply if reply is not None else desk.answers[answered][1]

    def create_topic(self, name: str, partitions: int) -> bytes:
        self.desk.topics.create(name, partitions)
        topic_id = self.desk.topics.id_of(name)
        assert topic_id is not None
        return topic_id

    def grow_topic(self, name: str, partitions: int) -> None:
        self.desk.topics.grow(name, partitions)

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(1_000):
            if is_so():
                return
            self.desk.pass_time(0.1)
        raise AssertionError("it never is so")

    def log(self, group_id: str) -> list[Record]:
        return [record for record in self.desk.log if group_of(record) == group_id]


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
                    record = decode(GROUP_RECORDS, key, value)
                    if record is not None and group_of(record) == group_id:
                        records.append(record)
        return records


def group_of(record: Record) -> str:
    key: Any = record.key
    return str(key.group_id if hasattr(key, "group_id") else key.group)
