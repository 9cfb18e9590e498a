"""The coordinator of transactions: `__transaction_state`, its shards, and the markers of its transactions."""

from dataclasses import fields
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.versions import TRANSACTION_VERSION
from headrace.machines.transactions.settings import TransactionSettings
from headrace.node.authorization import Access
from headrace.node.coordinators.coordinator import TRANSACTIONAL_IDS, Coordinator, segment_bytes, take_over
from headrace.node.coordinators.markers import Markers
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Ports
from headrace.node.settings import LiveSettings, Settings
from headrace.node.topic_creation import TopicCreation, TopicCreations
from headrace.protocol.coordinator_records import TRANSACTION_RECORDS
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.transactions.transactions import Transactions

TOPIC = "__transaction_state"

# What a shard knows of the broker's settings has the same names there and here.
SETTINGS = tuple(field.name for field in fields(TransactionSettings) if field.name != "transaction_version")


class TransactionCoordinator(Coordinator["Transactions"]):
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        creations: TopicCreations,
        settings: LiveSettings,
        ports: Ports,
        access: Access,
        markers: Markers,
    ) -> None:
        super().__init__(
            TOPIC,
            TRANSACTION_RECORDS,
            self._make_machine,
            markers.write,
            partitions,
            directories,
            metadata,
            creations,
            settings,
            ports,
            access,
            TRANSACTIONAL_IDS,
        )
        self._transaction_settings = transaction_settings(settings.current, metadata.image)

    def _make_machine(self, partition: Partition) -> "Transactions":
        # a broker without transactions starts without loading what they need
        from headrace.machines.transactions.transactions import Transactions

        return Transactions(self._transaction_settings, partition.leader_epoch)

    def configured(self) -> None:
        """The broker's settings changed. All shards share one object, which is changed in place."""
        fresh = transaction_settings(self._settings.current, self._metadata.image)
        take_over(self._transaction_settings, fresh)

    def create_topic(self, now: Now) -> TopicCreation | None:
        settings = self._settings.current
        return self.ensure_topic(
            now,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": segment_bytes(settings.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(
                    min(settings.transaction_state_log_min_isr, self.brokers_expected())
                ),
                "unclean.leader.election.enable": "false",
            },
        )


def older(code: ErrorCode, *, is_abortable_known: bool = True, is_fenced_known: bool = True) -> ErrorCode:
    """What a client is told that may be too old for TRANSACTION_ABORTABLE or PRODUCER_FENCED."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and not is_abortable_known:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED and not is_fenced_known:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def transaction_settings(settings: Settings, image: ClusterImage) -> TransactionSettings:
    return TransactionSettings(
        **{name: getattr(settings, name) for name in SETTINGS},
        transaction_version=image.features.get(TRANSACTION_VERSION, 0),
    )
