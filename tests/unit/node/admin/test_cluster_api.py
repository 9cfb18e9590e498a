"""The cluster as a whole: elections, directories, reassignments, the quorum, features, resources.

What is expected was asked of Apache Kafka 4.3.1 with the same requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.authorizers import Nobody
from headrace.machines.metadata.versions import SUPPORTED_FEATURES
from headrace.node.handlers import update_features as update_features_handler
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import alter_replica_log_dirs as directories
from headrace.protocol.messages import elect_leaders as elections
from headrace.protocol.messages import list_partition_reassignments as reassignments
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest
from headrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import MemoryDisk

PREFERRED, UNCLEAN = 0, 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
NOT_NEEDED, UNKNOWN = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def host_with_topics() -> ManualHost:
    host = ManualHost()
    host.create_topic("orders", 2)
    host.create_topic("other", 1)
    return host


class TestElectLeaders:
    @staticmethod
    def elect(host: ManualHost, version: int, *topics: tuple[str, list[int]], kind: int = PREFERRED) -> Any:
        asked = [elections.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
        request = elections.ElectLeadersRequest(topic_partitions=asked)
        if version > 0:
            request.election_type = kind
        return host.ask(request, version)

    @staticmethod
    def codes(response: Any) -> dict[str, list[tuple[int, int]]]:
        return {
            result.topic: [(one.partition_id, one.error_code) for one in result.partition_result]
            for result in response.replica_election_results
        }

    @pytest.mark.parametrize("version", range(3))
    @pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
    def test_the_only_replica_leads_already(self, version: int, kind: int) -> None:
        response = self.elect(host_with_topics(), version, ("orders", [0, 1]), kind=kind)
        assert (response.error_code, self.codes(response)) == (
            0,
            {"orders": [(0, NOT_NEEDED), (1, NOT_NEEDED)]},
        )

    def test_what_is_not_there(self) -> None:
        response = self.elect(host_with_topics(), 2, ("nope", [0]), ("orders", [9, 1]))
        assert self.codes(response) == {"nope": [(0, UNKNOWN)], "orders": [(9, UNKNOWN), (1, NOT_NEEDED)]}
        (result,) = response.replica_election_results[0].partition_result
        assert result.error_message == "No such topic as nope"

    def test_all_topics_are_told_without_partitions_that_need_nothing(self) -> None:
        response = host_with_topics().ask(elections.ElectLeadersRequest(topic_partitions=None), 2)
        assert self.codes(response) == {"orders": [], "other": []}

    def test_an_election_of_another_kind(self) -> None:
        response = self.elect(host_with_topics(), 2, ("orders", [0]), kind=7)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert self.codes(response) == {"orders": [(0, ErrorCode.INVALID_REQUEST)]}

    def test_not_everybody_may(self) -> None:
        host = host_with_topics()
        host.node.access.authorizer = Nobody()
        response = self.elect(host, 2, ("orders", [0]))
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert self.codes(response) == {"orders": [(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]}


class TestAlterReplicaLogDirs:
    @staticmethod
    def place(
        host: ManualHost, *wanted: tuple[str, str, list[int]], version: int = 2
    ) -> dict[str, dict[int, int]]:
        request = directories.AlterReplicaLogDirsRequest(
            dirs=[
                directories.AlterReplicaLogDir(
                    path=path,
                    topics=[directories.AlterReplicaLogDirTopic(name=topic, partitions=indexes)],
                )
                for path, topic, indexes in wanted
            ]
        )
        return {
            result.topic_name: {one.partition_index: one.error_code for one in result.partitions}
            for result in host.ask(request, version).results
        }

    @staticmethod
    def host() -> ManualHost:
        disks: dict[str, Disk] = {"one": MemoryDisk(), "two": MemoryDisk()}
        host = ManualHost(disks=disks)
        host.create_topic("orders", 2)
        return host

    @pytest.mark.parametrize("version", [1, 2])
    def test_where_it_is_it_stays_and_elsewhere_it_goes(self, version: int) -> None:
        host = self.host()
        partitions = host.partitions("orders")
        before = [partition.directory for partition in partitions]
        assert sorted(before) == ["one", "two"]
        answers = self.place(host, (before[0], "orders", [0, 1]), version=version)
        assert answers == {"orders": {0: ErrorCode.NONE, 1: ErrorCode.NONE}}
        assert [partition.directory for partition in partitions] == [before[0], before[0]]

    def test_what_is_not_there(self) -> None:
        answers = self.place(
            self.host(), ("/nowhere", "orders", [0]), ("one", "orders", [7]), ("one", "nope", [0])
        )
        assert answers == {"orders": {0: ErrorCode.LOG_DIR_NOT_FOUND, 7: UNKNOWN}, "nope": {0: UNKNOWN}}

    def test_the_last_directory_named_counts(self) -> None:
        host = self.host()
        (first, _) = host.partitions("orders")
        answers = self.place(host, ("/nowhere", "orders", [0]), (first.directory, "orders", [0]))
        assert answers == {"orders": {0: ErrorCode.NONE}}

    def test_not_everybody_may(self) -> None:
        host = self.host()
        host.node.access.authorizer = Nobody()
        answers = self.place(host, ("one", "orders", [0]))
        assert answers == {"orders": {0: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}}


class TestListPartitionReassignments:
    @pytest.mark.parametrize("asks_for_all", [True, False])
    def test_nothing_is_being_moved(self, asks_for_all: bool) -> None:
        named = [
            reassignments.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9])
            for name in ("orders", "nope")
        ]
        request = reassignments.ListPartitionReassignmentsRequest(topics=None if asks_for_all else named)
        response = host_with_topics().ask(request, 0)
        assert (response.error_code, response.error_message, response.topics) == (0, None, [])

    @pytest.mark.parametrize("asks_for_all", [True, False])
    def test_what_is_being_moved_is_told(self, asks_for_all: bool) -> None:
        host = host_with_topics()
        host.node.controller.metadata.image.topics["orders"].partitions[1].adding_replicas = (5,)
        named = [reassignments.ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0, 1])]
        request = reassignments.ListPartitionReassignmentsRequest(topics=None if asks_for_all else named)
        (topic,) = host.ask(request, 0).topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index, partition.adding_replicas) == ("orders", 1, [5])

    def test_not_everybody_may(self) -> None:
        host = host_with_topics()
        host.node.access.authorizer = Nobody()
        response = host.ask(reassignments.ListPartitionReassignmentsRequest(), 0)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TestDescribeQuorum:
    @staticmethod
    def request(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
        return DescribeQuorumRequest(
            topics=[
                TopicData(
                    topic_name=name,
                    partitions=[PartitionData(partition_index=index) for index in indexes],
                )
                for name, indexes in topics
            ]
        )

    def test_the_voters_directory_is_the_one_that_has_the_log_also_after_a_setting_changed(self) -> None:
        disks: dict[str, Disk] = {"late": MemoryDisk()}
        ManualHost(disks=disks)
        host = ManualHost(disks={"early": MemoryDisk(), **disks})
        config = AlterableConfig(name="message.max.bytes", config_operation=0, value="100000")
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        host.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        response = host.ask(self.request(("__cluster_metadata", [0])), 2)
        (voter,) = response.topics[0].partitions[0].current_voters
        assert voter.replica_directory_id == host.node.directories["late"].directory_id

    @pytest.mark.parametrize("version", range(3))
    def test_the_sole_voter_leads_and_holds_everything(self, version: int) -> None:
        host = host_with_topics()
        response = host.ask(self.request(("__cluster_metadata", [0])), version)
        (partition,) = response.topics[0].partitions
        (voter,) = partition.current_voters
        metadata = host.node.controller.metadata
        assert (response.error_code, partition.error_code, partition.observers) == (0, 0, [])
        assert (partition.leader_id, partition.leader_epoch) == (1, metadata.leader_epoch)
        assert partition.high_watermark == metadata.committed_offset == voter.log_end_offset > 0
        assert voter.replica_id == 1
        if version >= 1:
            assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp == host.clock.now().wall_ms
        if version >= 2:
            assert voter.replica_directory_id == host.node.directories["data"].directory_id
            ((node_id, (listener,)),) = [(node.node_id, node.listeners) for node in response.nodes]
            assert (node_id, listener.name, listener.host, listener.port) == (
                1,
                "PLAINTEXT",
                "127.0.0.1",
                9092,
            )

    def test_a_controller_listener_is_where_the_voter_is_reached(self) -> None:
        host = ManualHost(
            {
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
            }
        )
        response = host.ask(self.request(("__cluster_metadata", [0])), 2)
        assert [(one.name, one.port) for one in response.nodes[0].listeners] == [("CONTROLLER", 9093)]

    @pytest.mark.parametrize(
        "topics",
        [
            [("orders", [0])],
            [("__cluster_metadata", [1])],
            [("__cluster_metadata", [0, 0])],
            [("__cluster_metadata", [0]), ("orders", [0])],
        ],
    )
    def test_nothing_else_can_be_asked(self, topics: list[tuple[str, list[int]]]) -> None:
        response = host_with_topics().ask(self.request(*topics), 2)
        assert (response.error_code, response.nodes) == (0, [])
        told = [
            (topic.topic_name, [(one.partition_index, one.error_code) for one in topic.partitions])
            for topic in response.topics
        ]
        assert told == [(name, [(index, UNKNOWN) for index in indexes]) for name, indexes in topics]

    def test_not_everybody_may(self) -> None:
        host = host_with_topics()
        host.node.access.authorizer = Nobody()
        response = host.ask(self.request(("__cluster_metadata", [0])), 2)
        assert (response.error_code, response.topics) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


class TestUpdateFeatures:
    @pytest.fixture(autouse=True)
    def feature(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A feature that only these tests have, beside the real ones."""
        supported = SUPPORTED_FEATURES | {"test.version": (0, 2)}
        monkeypatch.setattr(update_features_handler, "SUPPORTED_FEATURES", supported)

    @staticmethod
    def update(host: ManualHost, name: str, level: int, version: int = 1, **more: Any) -> Any:
        validates = {"validate_only": more.pop("validate_only")} if "validate_only" in more else {}
        key = FeatureUpdateKey(feature=name, max_version_level=level, **more)
        return host.ask(UpdateFeaturesRequest(feature_updates=[key], **validates), version)

    @staticmethod
    def finalized(host: ManualHost) -> dict[str, int]:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return {one.name: one.max_version_level for one in host.ask(request, 4).finalized_features}

    @pytest.mark.parametrize("version", range(3))
    def test_up_and_down_and_there_after_a_restart(self, version: int) -> None:
        host = ManualHost()
        response = self.update(host, "test.version", 2, version)
        assert (response.error_code, response.error_message) == (0, None)
        told = [(one.feature, one.error_code) for one in response.results]
        assert told == ([("test.version", 0)] if version < 2 else [])
        assert self.finalized(host)["test.version"] == 2
        assert self.finalized(ManualHost(disks=host.disks, seed=5))["test.version"] == 2
        down = {"allow_downgrade": True} if version == 0 else {"upgrade_type": SAFE_DOWNGRADE}
        assert self.update(host, "test.version", 0, version, **down).error_code == 0
        assert "test.version" not in self.finalized(host)

    def test_trying_changes_nothing(self) -> None:
        host = ManualHost()
        assert self.update(host, "test.version", 2, validate_only=True).error_code == 0
        assert "test.version" not in self.finalized(host)

    @pytest.mark.parametrize(
        ("name", "level", "upgrade", "says"),
        [
            ("test.version", 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
            ("test.version", 1, 9, "The controller does not support the given upgrade type."),
            ("test.version", -1, UPGRADE, "A feature version cannot be less than 0."),
            ("nope", 1, UPGRADE, "Local controller 1 does not support this feature."),
            ("nope", 0, SAFE_DOWNGRADE, "Feature nope not found."),
            ("metadata.version", 29, UPGRADE, "Can't downgrade the version of this feature without"),
            ("metadata.version", 29, SAFE_DOWNGRADE, "might delete metadata information"),
            ("metadata.version", 29, UNSAFE_DOWNGRADE, "Unsafe metadata downgrade is not supported"),
        ],
    )
    def test_refused(self, name: str, level: int, upgrade: int, says: str) -> None:
        host = ManualHost()
        before = self.finalized(host)
        response = self.update(host, name, level, upgrade_type=upgrade)
        assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
        assert says in response.error_message
        assert self.finalized(host) == before

    def test_all_or_nothing(self) -> None:
        host = ManualHost()
        keys = [
            FeatureUpdateKey(feature="test.version", max_version_level=1),
            FeatureUpdateKey(feature="nope", max_version_level=1),
        ]
        response = host.ask(UpdateFeaturesRequest(feature_updates=keys), 2)
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "test.version" not in self.finalized(host)

    def test_not_everybody_may(self) -> None:
        host = ManualHost()
        host.node.access.authorizer = Nobody()
        response = self.update(host, "test.version", 1)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "test.version" not in self.finalized(host)


class TestListConfigResources:
    TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

    @staticmethod
    def listed(host: ManualHost, *kinds: int) -> tuple[int, list[tuple[int, str]]]:
        response = host.ask(ListConfigResourcesRequest(resource_types=list(kinds)), 1)
        return response.error_code, [
            (one.resource_type, one.resource_name) for one in response.config_resources
        ]

    @classmethod
    def host(cls) -> ManualHost:
        host = host_with_topics()
        config = AlterableConfig(name="consumer.session.timeout.ms", value="50000")
        resource = AlterConfigsResource(resource_type=cls.GROUP, resource_name="readers", configs=[config])
        (altered,) = host.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert altered.error_code == 0
        return host

    def test_none_named_is_all(self) -> None:
        assert self.listed(self.host()) == (
            0,
            [
                (self.GROUP, "readers"),
                (self.LOGGER, "1"),
                (self.BROKER, "1"),
                (self.TOPIC, "orders"),
                (self.TOPIC, "other"),
            ],
        )

    def test_only_those_named(self) -> None:
        host = self.host()
        assert self.listed(host, self.GROUP, self.CLIENT_METRICS) == (0, [(self.GROUP, "readers")])
        assert self.listed(host, self.BROKER, self.BROKER) == (0, [(self.BROKER, "1")])

    def test_version_0_asks_for_client_metrics_of_which_there_are_none(self) -> None:
        response = self.host().ask(ListConfigResourcesRequest(), 0)
        assert (response.error_code, response.config_resources) == (0, [])

    @pytest.mark.parametrize("kind", [0, 64, -1])
    def test_a_kind_that_has_no_settings(self, kind: int) -> None:
        assert self.listed(self.host(), self.TOPIC, kind) == (ErrorCode.UNSUPPORTED_VERSION, [])

    def test_not_everybody_may(self) -> None:
        host = self.host()
        host.node.access.authorizer = Nobody()
        assert self.listed(host) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
