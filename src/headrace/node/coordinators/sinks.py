"""The coordinator of sinks: `__sink_sessions`, its shards, and the markers of their attempts."""

from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.node.authorization import Access
from headrace.node.coordinators.coordinator import TRANSACTIONAL_IDS, Coordinator, segment_bytes
from headrace.node.coordinators.markers import Markers
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Ports
from headrace.node.settings import LiveSettings
from headrace.node.topic_creation import TopicCreation, TopicCreations
from headrace.protocol.coordinator_records import SINK_RECORDS

if TYPE_CHECKING:
    from headrace.machines.sinks.sinks import Sinks

TOPIC = "__sink_sessions"
# A sink has one record, written some times per batch: few shards serve many of them.
PARTITIONS = 10


class SinkCoordinator(Coordinator["Sinks"]):
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
            SINK_RECORDS,
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

    def _make_machine(self, partition: Partition) -> "Sinks":
        # a broker without sinks starts without loading what they need
        from headrace.machines.sinks.sinks import Sinks

        return Sinks(self._settings.current.transaction_max_timeout_ms, partition.leader_epoch)

    def create_topic(self, now: Now) -> TopicCreation | None:
        settings = self._settings.current
        return self.ensure_topic(
            now,
            PARTITIONS,
            settings.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": segment_bytes(settings.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
