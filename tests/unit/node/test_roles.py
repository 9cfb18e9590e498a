"""Each role of a node alone: a controller without a broker, and a broker over a metadata log."""

from __future__ import annotations

from random import Random

import pytest

from headrace.base.time import ManualClock
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.node.authorization import Access
from headrace.node.broker import Broker
from headrace.node.controller import Controller
from headrace.node.controller_channel import ControllerChannel
from headrace.node.effects import Effect, Halt, Run
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.metrics import Metrics
from headrace.node.peers import Peers
from headrace.node.ports import Deadlines, Jobs, Lifecycle, Ports, Reports
from headrace.node.quotas import Quotas
from headrace.node.routes import SERVED, SERVED_TO_NODES, Routes
from headrace.node.settings import LiveSettings, Settings
from headrace.node.waiting import Waiting
from headrace.protocol.api import BOTH, ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.records.builder import build_batch
from headrace.simulator.frames import joined
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import MemoryDisk

PROCESS_OWN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}  # no role's
BOTH_ROLES = {"node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "data"}
CONTROLLER_ONLY = {
    "node.id": "7",
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "log.dirs": "data",
}


class RoleParts:
    """Ports, directories and a clock, without a node: jobs run when `settle` is called."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.clock = ManualClock()
        self.settings = LiveSettings(Settings.parse(texts))
        self.disks: dict[str, Disk] = {"data": MemoryDisk()}
        self.rng = Random(1)
        self.effects: list[Effect] = []
        self.lifecycle = Lifecycle()
        self.deadlines = Deadlines()
        self.jobs = Jobs(self.effects)
        self.reports = Reports(self.effects, self.lifecycle)
        self.waiting = Waiting(self.effects, self.deadlines, self.reports, Quotas(self.settings))
        peers = Peers(1, self.effects, self.deadlines)
        self.ports = Ports(self.deadlines, self.jobs, self.reports, self.lifecycle, self.waiting, peers)
        self.metrics = Metrics()
        self.access = Access()
        self.directories = LogDirectories(
            self.settings.current, self.disks, self.rng, "boot", self.clock.now(), self.ports, self.metrics
        )

    def controller(self) -> Controller:
        metadata = MetadataLog(self.settings, self.directories, self.rng, self.ports, self.clock.now())
        controller = Controller(self.settings, self.directories, metadata, self.access, self.rng, self.ports)
        metadata.role = controller
        return controller

    def broker(self, controller: Controller) -> Broker:
        return Broker(
            self.settings,
            self.directories,
            controller.metadata,
            ControllerChannel(self.settings, controller.metadata, self.ports, controller.decide),
            self.access,
            self.rng,
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
    parts = RoleParts(CONTROLLER_ONLY)
    controller = parts.controller()
    assert not controller.metadata.image.features
    controller.metadata.start(parts.clock.now())
    assert not controller.is_ready
    parts.settle()
    assert controller.is_ready
    assert controller.metadata.is_flushed
    assert controller.metadata.image.features
    (refused,) = controller.decisions.create_topics([NewTopic("t")]).reply
    assert refused.error is ErrorCode.INVALID_REPLICATION_FACTOR  # no broker has registered


def test_a_broker_follows_what_is_committed() -> None:
    parts = RoleParts(BOTH_ROLES)
    controller = parts.controller()
    broker = parts.broker(controller)
    now = parts.clock.now()
    controller.follow(broker.registration, broker.lifecycle.poke)
    controller.metadata.start(now)
    broker.start(now)
    assert not broker.lifecycle.is_ready
    parts.settle()
    assert broker.lifecycle.is_ready
    controller.metadata.propose(now, controller.decisions.create_topics([NewTopic("t", 2, 1)]))
    assert broker.partitions.of_name("t") is None  # before it is durable
    parts.settle()
    topic = broker.partitions.of_name("t")
    assert topic is not None
    first, _ = topic.replicas.values()
    assert first.is_led_here
    appended = first.append(memoryview(bytearray(build_batch([(0, None, b"v", ())]))), now)
    assert (appended.base_offset, first.visible_end(0)) == (0, 1)
    assert not broker.is_drained(now)
    parts.settle()
    assert broker.is_drained(now)


def test_every_api_is_registered_by_one_role() -> None:
    parts = RoleParts(BOTH_ROLES)
    controller = parts.controller()
    routes = Routes(parts.metrics, ["CONTROLLER"])
    controller.serve(routes, BOTH)
    parts.broker(controller).serve(routes)
    on_clients_listener = [key for key, _, _ in routes.advertised("PLAINTEXT")]
    on_controllers_listener = [key for key, _, _ in routes.advertised("CONTROLLER")]
    assert on_clients_listener == sorted(SERVED.keys() - PROCESS_OWN)
    assert set(on_controllers_listener) - SERVED_TO_NODES.keys() < set(on_clients_listener)
    assert SERVED_TO_NODES.keys() <= set(on_controllers_listener)
    assert not SERVED_TO_NODES.keys() & set(on_clients_listener)
    assert ApiKey.PRODUCE not in on_controllers_listener
    assert routes.find("CONTROLLER", ApiKey.PRODUCE, 9) is None
    assert routes.find("PLAINTEXT", ApiKey.PRODUCE, 9) is not None


def test_a_process_may_be_a_controller_alone() -> None:
    host = ManualHost(CONTROLLER_ONLY)
    assert host.node.is_ready
    told = host.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    served = {api.api_key for api in told.api_keys}
    assert {ApiKey.API_VERSIONS, ApiKey.DESCRIBE_QUORUM, ApiKey.CREATE_TOPICS} <= served
    assert not {ApiKey.PRODUCE, ApiKey.METADATA} & served
    asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    (topic,) = host.ask(DescribeQuorumRequest(topics=[asked]), 2).topics
    (quorum,) = topic.partitions
    assert (quorum.leader_id, [voter.replica_id for voter in quorum.current_voters]) == (7, [7])
    assert quorum.high_watermark > 0
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    (refused,) = host.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7).topics
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_controller_alone_refuses_what_brokers_serve() -> None:
    host = ManualHost(CONTROLLER_ONLY)
    frame = joined(request_frame(ApiKey.METADATA, 9, 1, "test", [b"\0\0\0\0\0"]))[4:]
    connection = host.connect()
    host.send_frame(connection, frame)
    assert host.receive(connection) is None
    assert host.closed == {connection.id: "API 3 v9 is not served"}


def test_a_controller_alone_stops_clean_and_leads_again() -> None:
    first = ManualHost(CONTROLLER_ONLY)
    first.clock.advance(10)
    first.node.wake(first.clock.now())  # its checkpoint is due
    first.settle()
    epoch = first.node.controller.metadata.leader_epoch
    first.node.shutdown(first.clock.now())
    first.settle()
    assert first.node.is_stopped
    again = ManualHost(CONTROLLER_ONLY, disks=first.disks)
    assert again.node.is_ready
    assert again.node.controller.metadata.leader_epoch == epoch + 1
    assert again.node.directories["data"].trust == "clean"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"process.roles": "broker"}, "needs controller.quorum.voters"),
        ({"process.roles": "controller"}, "controller.listener.names"),
        ({"process.roles": "controller", "controller.listener.names": "CONTROLLER"}, "PLAINTEXT is not in"),
    ],
)
def test_roles_that_cannot_be_served_refuse_the_start(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        Settings.parse(BOTH_ROLES | changed)
