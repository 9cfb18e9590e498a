"""Metadata and ApiVersions: the first things every client asks."""

from __future__ import annotations

import pytest

from harness.authorizers import ByName
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT
from headrace.node.authorization import Operation, Resource
from headrace.node.connection import Connection
from headrace.node.handlers.api_versions import SOFTWARE_CHARACTERS_MAX
from headrace.node.routes import SERVED
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

TWO_LISTENERS = {
    "listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://0.0.0.0:19092",
    "advertised.listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://kafka.example.org:443",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


def named(*names: str, **more: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **more)


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_a_topic_in_every_version(self, version: int) -> None:
        host = ManualHost()
        host.create_topic("t", 2)
        response = host.ask(named("t"), version)
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)
        (topic,) = response.topics
        assert (topic.error_code, topic.name) == (0, "t")
        assert [(one.partition_index, one.leader_id) for one in topic.partitions] == [(0, 1), (1, 1)]
        assert all(one.replica_nodes == one.isr_nodes == [1] for one in topic.partitions)
        if version >= 10:
            assert topic.topic_id == host.node.controller.metadata.image.topics["t"].id
        if version >= 2:
            assert response.cluster_id == host.node.directories.cluster_id

    def test_null_is_all_and_an_empty_list_is_none_except_in_version_0(self) -> None:
        host = ManualHost()
        host.create_topic("a")
        host.create_topic("b")
        assert [topic.name for topic in host.ask(MetadataRequest(topics=None), 12).topics] == ["a", "b"]
        assert host.ask(MetadataRequest(topics=[]), 12).topics == []
        assert [topic.name for topic in host.ask(MetadataRequest(topics=[]), 0).topics] == ["a", "b"]

    def test_a_missing_topic_is_made_only_when_client_and_settings_allow(self) -> None:
        host = ManualHost({"num.partitions": "3"})
        (topic,) = host.ask(named("t", allow_auto_topic_creation=False), 12).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (topic,) = host.ask(named("t", allow_auto_topic_creation=True), 12).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 3)
        assert host.node.broker.partitions.of_name("t") is not None
        forbidding = ManualHost({"auto.create.topics.enable": "false"})
        (topic,) = forbidding.ask(named("t", allow_auto_topic_creation=True), 12).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_below_version_4_asking_is_allowing(self) -> None:
        (topic,) = ManualHost().ask(named("t"), 1).topics
        assert topic.error_code == 0

    @pytest.mark.parametrize("name", ["bad name", "", ".", "a/b", "x" * 250])
    def test_a_bad_name_is_refused_and_never_made(self, name: str) -> None:
        host = ManualHost()
        (topic,) = host.ask(named(name, allow_auto_topic_creation=True), 12).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert host.node.controller.metadata.image.topics == {}

    def test_a_topic_asked_for_twice_is_told_once(self) -> None:
        host = ManualHost()
        assert len(host.ask(named("t", "t"), 12).topics) == 1

    def test_by_id_from_version_12(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        known = host.node.controller.metadata.image.topics["t"].id
        asked = MetadataRequest(
            topics=[
                MetadataRequestTopic(topic_id=known, name=None),
                MetadataRequestTopic(topic_id=b"?" * 16, name=None),
            ]
        )
        found, missing = host.ask(asked, 12).topics
        assert (found.error_code, found.name) == (0, "t")
        assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        (topic,) = host.ask(
            MetadataRequest(topics=[MetadataRequestTopic(topic_id=known, name="t")]), 10
        ).topics
        assert topic.error_code == ErrorCode.INVALID_REQUEST

    def test_a_client_is_told_the_addresses_of_its_own_listener(self) -> None:
        host = ManualHost(TWO_LISTENERS)
        for listener, name, port in [("INSIDE", "10.0.0.1", 9092), ("OUTSIDE", "kafka.example.org", 443)]:
            connection = host.connect()
            connection.listener = listener
            (broker,) = host.ask(MetadataRequest(topics=[]), 12, connection).brokers
            assert (broker.host, broker.port) == (name, port)
            (broker,) = host.ask(DescribeClusterRequest(), 1, connection).brokers
            assert (broker.host, broker.port) == (name, port)

    def test_operations_are_told_when_asked_for(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        request = named(
            "t", include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        response = host.ask(request, 8)
        # as Apache Kafka 4.3.1 answers without ACLs
        assert response.topics[0].topic_authorized_operations == 3576
        assert response.cluster_authorized_operations == 8096
        assert host.ask(named("t"), 8).topics[0].topic_authorized_operations == -(2**31)

    def test_a_failed_directory_has_no_leaders(self) -> None:
        """The metadata is elsewhere, so the node lives on and says what it lost."""
        broken = FaultyDisk(MemoryDisk())
        settings = {"log.dirs": "broken", "metadata.log.dir": "sound"}
        host = ManualHost(settings, disks={"broken": broken, "sound": MemoryDisk()})
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        host.ask(CreateTopicsRequest(topics=[topic]), 7)
        homes = [partition.directory for partition in host.partitions("t")]
        broken.faults.append(Fault(Fail(), "append", ".log"))
        for index in range(2):
            records = build_batch([(0, None, b"value", ())])
            host.ask(host.produce_request("t", records, partition=index), 9)
        for index, told in enumerate(host.ask(named("t"), 12).topics[0].partitions):
            if homes[index] == "broken":
                assert (told.error_code, told.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
                assert told.offline_replicas == [1]
            else:
                assert (told.error_code, told.leader_id, told.offline_replicas) == (0, 1, [])
        assert "broken" in homes


class Forbidding(ByName):
    """Allows nothing on topics whose name begins with "secret"."""

    def allows(self, connection: Connection, operation: Operation, resource: Resource, name: str, /) -> bool:
        return not (resource is Resource.TOPIC and name.startswith("secret"))


def test_names_that_may_not_be_seen_are_not_leaked() -> None:
    host = ManualHost()
    host.create_topic("open")
    host.create_topic("secret")
    host.node.access.authorizer = Forbidding()
    assert [topic.name for topic in host.ask(MetadataRequest(topics=None), 12).topics] == ["open"]
    exists, absent = host.ask(named("secret", "secret-and-absent"), 12).topics
    assert exists.error_code == absent.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    by_id = MetadataRequestTopic(topic_id=host.node.controller.metadata.image.topics["secret"].id, name=None)
    (topic,) = host.ask(MetadataRequest(topics=[by_id]), 12).topics
    assert (topic.error_code, topic.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


class TestApiVersions:
    @pytest.mark.parametrize("version", range(5))
    def test_every_version_lists_what_is_served_and_nothing_else(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        response = ManualHost().ask(request, version)
        assert response.error_code == 0
        listed = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert listed == {key: (low, high) for key, (low, high) in SERVED.items()}
        assert listed[0][0] == 0, "old librdkafka switches compression off otherwise (KAFKA-18659)"
        if version >= 3:
            finalized = {one.name: one.max_version_level for one in response.finalized_features}
            assert finalized == FINALIZED_AT_FORMAT
            assert response.finalized_features_epoch > 0
            assert all(feature.min_version > 0 for feature in response.supported_features) or version > 3

    @pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä", "x" * 3 + "\n"])
    def test_software_with_a_bad_name_is_refused(self, name: str) -> None:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        assert ManualHost().ask(request, 3).error_code == ErrorCode.INVALID_REQUEST

    def test_software_with_a_long_name_is_not_remembered(self) -> None:
        """Who has not logged in could have megabytes of it kept on each connection."""
        host = ManualHost()
        connection = host.connect()
        long = "x" * (SOFTWARE_CHARACTERS_MAX + 1)
        for software in ((long, "1"), ("x", long)):
            name, version = software
            request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
            assert host.ask(request, 3, connection).error_code == ErrorCode.INVALID_REQUEST
        assert connection.client_software == ("unknown", "unknown")
        request = ApiVersionsRequest(client_software_name=long[1:], client_software_version="1")
        assert host.ask(request, 3, connection).error_code == 0

    def test_software_is_remembered(self) -> None:
        host = ManualHost()
        connection = host.connect()
        host.ask(
            ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.15.0"),
            3,
            connection,
        )
        assert connection.client_software == ("librdkafka", "2.15.0")

    def test_an_unknown_version_is_answered_in_version_0(self) -> None:
        host = ManualHost()
        connection = host.connect()
        host.asked[connection.id].append((18, 0))
        host.send_frame(connection, bytes.fromhex("0012 0063 00000007 ffff 00 02 61 02 61 00"))
        response = host.receive(connection)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        (api,) = response.api_keys
        assert (api.api_key, api.min_version, api.max_version) == (18, 0, 4)
        assert connection.id not in host.closed


class TestDescribeCluster:
    def test_the_cluster(self) -> None:
        host = ManualHost({"broker.rack": "r1"})
        response = host.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
        assert response.cluster_id == host.node.directories.cluster_id
        assert response.controller_id == 1
        (broker,) = response.brokers
        assert (broker.broker_id, broker.rack, broker.is_fenced) == (1, "r1", False)
        assert response.cluster_authorized_operations == 8096

    @pytest.mark.parametrize(
        ("kind", "code"),
        [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
    )
    def test_only_brokers_are_told(self, kind: int, code: ErrorCode) -> None:
        assert ManualHost().ask(DescribeClusterRequest(endpoint_type=kind), 1).error_code == code
