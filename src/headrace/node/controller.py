"""The controller role: the metadata log and its quorum, the decisions about the cluster, and their handlers.

With one voter it leads as soon as it has recovered its log. It knows nothing of partitions: whoever has to
act on committed metadata follows the log (`MetadataLog.followers`).
"""

from collections.abc import Mapping

from headrace.base.dice import Dice
from headrace.base.numbers import INT32_MAX, whole_number
from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.image import ALL_BROKERS
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT
from headrace.node.authorization import Access
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.ports import Ports
from headrace.node.routes import Handle, Routes
from headrace.node.settings import LiveSettings
from headrace.protocol.api import BOTH, ApiKey


class Controller:
    def __init__(
        self,
        settings: LiveSettings,
        directories: LogDirectories,
        access: Access,
        dice: Dice,
        ports: Ports,
        now: Now,
    ) -> None:
        """Recovers the metadata log. Nothing is decided before `lead`."""
        self._node_id = settings.current.node_id
        self._settings = settings
        self._directories = directories
        self._access = access
        self.metadata = MetadataLog(settings, directories, ports, now)
        self.decisions = ControllerDecisions(
            self.metadata.image,
            dice,
            settings.current.texts,
            partitions=settings.current.num_partitions,
            replication_factor=settings.current.default_replication_factor,
            check_settings=self._check_settings,
        )
        self._ready_at = 0

    def _check_settings(self, name: str, after: Mapping[str, str]) -> None:
        """InvalidConfig: this node could not take such dynamic settings of its own, or of all brokers."""
        image, settings = self.metadata.image, self._settings.current
        dynamic, cluster = image.broker_config(self._node_id), image.cluster_config
        if name == ALL_BROKERS:
            settings.overlaid(dynamic, after)
        elif whole_number(name, INT32_MAX) == self._node_id:
            settings.overlaid(after, cluster)

    def lead(self, now: Now, registration: Registration | None) -> None:
        """Begin an epoch: decide what every cluster has, and register the broker of this process, if there is
        one. All of it is flushed together.
        """
        self.metadata.begin_epoch(now)
        self._ready_at = self.metadata.append(now, self.decisions.finalize_features(FINALIZED_AT_FORMAT))
        if registration is not None:
            decision = self.decisions.register_broker(registration, self.metadata.end_offset)
            self._ready_at = self.metadata.append(now, decision)
        self.metadata.flush(now)

    @property
    def is_ready(self) -> bool:
        """What `lead` decided is durable: the process may serve."""
        return self.metadata.committed_offset >= self._ready_at

    @property
    def is_flushed(self) -> bool:
        return self.metadata.is_flushed

    # --- its handlers --------------------------------------------------------------------------------------

    def serve(self, routes: Routes) -> None:
        """What changes or tells the metadata, on clients' and on controllers' listeners."""
        for api_key, make in (
            (ApiKey.CREATE_TOPICS, self._create_topics),
            (ApiKey.DELETE_TOPICS, self._delete_topics),
            (ApiKey.ALTER_CONFIGS, self._alter_configs),
            (ApiKey.CREATE_PARTITIONS, self._create_partitions),
            (ApiKey.ELECT_LEADERS, self._elect_leaders),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, self._incremental_alter_configs),
            (ApiKey.LIST_PARTITION_REASSIGNMENTS, self._list_partition_reassignments),
            (ApiKey.DESCRIBE_QUORUM, self._describe_quorum),
            (ApiKey.UPDATE_FEATURES, self._update_features),
        ):
            routes.serve(api_key, BOTH, make)

    def _create_topics(self) -> Handle:
        from headrace.node.handlers.create_topics import CreateTopics

        return CreateTopics(self._node_id, self.metadata, self.decisions, self._settings, self._access).handle

    def _delete_topics(self) -> Handle:
        from headrace.node.handlers.delete_topics import DeleteTopics

        return DeleteTopics(self.metadata, self.decisions, self._settings, self._access).handle

    def _alter_configs(self) -> Handle:
        from headrace.node.config_changes import ConfigChanges
        from headrace.node.handlers.alter_configs import AlterConfigs

        return AlterConfigs(ConfigChanges(self.metadata, self.decisions, self._access)).handle

    def _incremental_alter_configs(self) -> Handle:
        from headrace.node.config_changes import ConfigChanges
        from headrace.node.handlers.incremental_alter_configs import IncrementalAlterConfigs

        return IncrementalAlterConfigs(ConfigChanges(self.metadata, self.decisions, self._access)).handle

    def _create_partitions(self) -> Handle:
        from headrace.node.handlers.create_partitions import CreatePartitions

        return CreatePartitions(self.metadata, self.decisions, self._access).handle

    def _elect_leaders(self) -> Handle:
        from headrace.node.handlers.elect_leaders import ElectLeaders

        return ElectLeaders(self.metadata, self.decisions, self._access).handle

    def _list_partition_reassignments(self) -> Handle:
        from headrace.node.handlers.list_partition_reassignments import ListPartitionReassignments

        return ListPartitionReassignments(self.metadata, self._access).handle

    def _describe_quorum(self) -> Handle:
        from headrace.node.handlers.describe_quorum import DescribeQuorum

        return DescribeQuorum(
            self._node_id, self._directories, self.metadata, self._settings, self._access
        ).handle

    def _update_features(self) -> Handle:
        from headrace.node.handlers.update_features import UpdateFeatures

        return UpdateFeatures(self._node_id, self.metadata, self.decisions, self._access).handle
