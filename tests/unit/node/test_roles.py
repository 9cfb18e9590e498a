"""Each role of a node alone: a controller without a broker, and a broker over a metadata log."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.base.time import ManualClock
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.node.authorization import Access
from headrace.node.broker import Broker
from headrace.node.connection import Connection
from headrace.node.controller import Controller
from headrace.node.effects import Close, Effect, Halt, Run
from headrace.node.log_directories import LogDirectories
from headrace.node.metrics import Metrics
from headrace.node.node import Node
from headrace.node.ports import Deadlines, Jobs, Lifecycle, Ports, Reports
from headrace.node.routes import SERVED, Routes
from headrace.node.settings import LiveSettings, Settings
from headrace.node.waiting import Waiting
from headrace.protocol.api import ApiKey, request_codec, response_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.records.builder import build_batch
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import MemoryDisk

BOTH_ROLES = {"node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "data"}
CONTROLLER_ONLY = {
    "node.id": "7",
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "log.dirs": "data",
}


class Stand:
    """Ports, directories and a clock, without a node: jobs run when `settle` is called."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.clock = ManualClock()
        self.settings = LiveSettings(Settings.parse(texts))
        self.disks: dict[str, Disk] = {"data": MemoryDisk()}
        self.dice = Random(1)
        self.effects: list[Effect] = []
        self.lifecycle = Lifecycle()
        self.deadlines = Deadlines()
        self.jobs = Jobs(self.effects)
        self.reports = Reports(self.effects, self.lifecycle)
        self.waiting = Waiting(self.effects, self.deadlines, self.reports)
        self.ports = Ports(self.deadlines, self.jobs, self.reports, self.lifecycle, self.waiting)
        self.metrics = Metrics()
        self.access = Access()
        self.directories = LogDirectories(
            self.settings.current, self.disks, self.dice, "boot", self.clock.now(), self.ports, self.metrics
        )

    def controller(self) -> Controller:
        return Controller(
            self.settings, self.directories, self.access, self.dice, self.ports, self.clock.now()
        )

    def broker(self, controller: Controller) -> Broker:
        return Broker(
            self.settings,
            self.directories,
            controller.metadata,
            controller.decisions,
            self.access,
            self.dice,
            self.ports,
            self.metrics,
            self.clock.now(),
        )

    def settle(self) -> None:
        while self.effects:
            taken, self.effects[:] = list(self.effects), []
            for effect in taken:
                assert not isinstance(effect, Halt), effect
                if isinstance(effect, Run):
                    result = effect.job.run(self.disks[effect.directory])
                    self.jobs.end(effect.ticket)(self.clock.now(), result)
            self.waiting.ask_awake(self.clock.now())


def test_a_controller_alone_decides_and_commits() -> None:
    stand = Stand(CONTROLLER_ONLY)
    controller = stand.controller()
    assert not controller.metadata.image.features
    controller.lead(stand.clock.now(), None)
    assert not controller.is_ready
    stand.settle()
    assert controller.is_ready
    assert controller.is_flushed
    assert controller.metadata.image.features
    (refused,) = controller.decisions.create_topics([NewTopic("t")]).reply
    assert refused.error is ErrorCode.INVALID_REPLICATION_FACTOR  # no broker has registered


def test_a_broker_follows_what_is_committed() -> None:
    stand = Stand(BOTH_ROLES)
    controller = stand.controller()
    broker = stand.broker(controller)
    now = stand.clock.now()
    controller.lead(now, broker.registration())
    broker.start(now)
    stand.settle()
    assert controller.is_ready
    controller.metadata.propose(now, controller.decisions.create_topics([NewTopic("t", 2, 1)]))
    assert broker.partitions.of_name("t") is None  # before it is durable
    stand.settle()
    first, _ = broker.partitions.of_name("t") or []
    assert first.is_led_here
    appended = first.append(memoryview(bytearray(build_batch([(0, None, b"v", ())]))), now)
    assert (appended.base_offset, first.visible_end(0)) == (0, 1)
    assert not broker.is_drained(now)
    stand.settle()
    assert broker.is_drained(now)


def test_every_api_is_registered_by_one_role() -> None:
    stand = Stand(BOTH_ROLES)
    controller = stand.controller()
    routes = Routes(stand.metrics, ["CONTROLLER"])
    controller.serve(routes)
    stand.broker(controller).serve(routes)
    on_clients_listener = [key for key, _, _ in routes.advertised("PLAINTEXT")]
    on_controllers_listener = [key for key, _, _ in routes.advertised("CONTROLLER")]
    assert on_clients_listener == sorted(SERVED.keys() - {ApiKey.API_VERSIONS})  # which is the process's own
    assert set(on_controllers_listener) < set(on_clients_listener)
    assert ApiKey.PRODUCE not in on_controllers_listener
    assert routes.find("CONTROLLER", ApiKey.PRODUCE, 9) is None
    assert routes.find("PLAINTEXT", ApiKey.PRODUCE, 9) is not None


class ControllerNode:
    """A node that is only a controller, and one connection to its controller listener."""

    def __init__(self, disks: dict[str, Disk], boot_id: str = "boot") -> None:
        self.clock = ManualClock()
        self.disks = disks
        self.node = Node(Settings.parse(CONTROLLER_ONLY), disks, Random(1), boot_id, self.clock.now())
        self.closed: list[str] = []
        self.settle()
        self.connection = Connection(1, listener="CONTROLLER", address="127.0.0.1")
        self.node.connected(self.clock.now(), self.connection)

    def settle(self) -> None:
        while effects := self.node.take_effects()[:]:
            for effect in effects:
                if isinstance(effect, Run):
                    result = effect.job.run(self.disks[effect.directory])
                    self.node.completed(self.clock.now(), effect.ticket, result)
                elif isinstance(effect, Close):
                    self.closed.append(effect.reason)

    def ask(self, request: Any, version: int) -> Any:
        key = type(request).KEY
        body = request_codec(key, version).encode(request)
        frame = b"".join(map(bytes, request_frame(key, version, 1, "test", [body])))[4:]
        parts = self.node.handle(self.clock.now(), self.connection, memoryview(frame))
        self.settle()
        if parts is None:
            return None
        answer = b"".join(map(bytes, parts))[4:]  # type: ignore[arg-type]  # no spans
        codec = response_codec(key, version)
        return codec.decode(answer, decode_response_header(answer, codec.header_version)[1])


def test_a_process_may_be_a_controller_alone() -> None:
    world = ControllerNode({"data": MemoryDisk()})
    assert world.node.is_ready
    told = world.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    served = {api.api_key for api in told.api_keys}
    assert {ApiKey.API_VERSIONS, ApiKey.DESCRIBE_QUORUM, ApiKey.CREATE_TOPICS} <= served
    assert not {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA} & served
    asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    (topic,) = world.ask(DescribeQuorumRequest(topics=[asked]), 2).topics
    (quorum,) = topic.partitions
    assert (quorum.leader_id, [voter.replica_id for voter in quorum.current_voters]) == (7, [7])
    assert quorum.high_watermark > 0
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    (refused,) = world.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7).topics
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_controller_alone_refuses_what_brokers_serve() -> None:
    world = ControllerNode({"data": MemoryDisk()})
    frame = b"".join(map(bytes, request_frame(ApiKey.METADATA, 9, 1, "test", [b"\0\0\0\0\0"])))[4:]
    assert world.node.handle(world.clock.now(), world.connection, memoryview(frame)) is None
    world.settle()
    assert world.closed == ["API 3 v9 is not served"]


def test_a_controller_alone_stops_clean_and_leads_again() -> None:
    first = ControllerNode({"data": MemoryDisk()})
    first.clock.advance(10)
    first.node.wake(first.clock.now())  # its checkpoint is due
    first.settle()
    epoch = first.node.controller.metadata.epoch
    first.node.shutdown(first.clock.now())
    first.settle()
    assert first.node.is_stopped
    again = ControllerNode(first.disks)
    assert again.node.is_ready
    assert again.node.controller.metadata.epoch == epoch + 1
    assert again.node.directories["data"].trust == "clean"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"process.roles": "broker"}, "no other node's controller"),
        ({"process.roles": "controller"}, "controller.listener.names"),
        ({"process.roles": "controller", "controller.listener.names": "CONTROLLER"}, "PLAINTEXT is not in"),
    ],
)
def test_roles_that_cannot_be_served_refuse_the_start(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        Settings.parse(BOTH_ROLES | changed)
