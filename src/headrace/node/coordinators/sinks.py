"""The coordinator of sinks: `__sink_sessions`, its shards, and the markers of their attempts."""

from functools import partial
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.node.coordinators.coordinator import Coordinator, segment_bytes
from headrace.node.coordinators.markers import write_markers
from headrace.node.partition import Partition
from headrace.protocol.coordinator_records import SINK_RECORDS

if TYPE_CHECKING:
    from headrace.machines.sinks.sinks import Sinks
    from headrace.node.node import Node

TOPIC = "__sink_sessions"
# A sink has one record, written some times per batch: few shards serve many of them.
PARTITIONS = 10


class SinkCoordinator(Coordinator):
    def __init__(self, node: "Node") -> None:
        super().__init__(node, TOPIC, SINK_RECORDS, self._machine, partial(write_markers, node))

    def _machine(self, partition: Partition) -> "Sinks":
        # a broker without sinks starts without loading what they need
        from headrace.machines.sinks.sinks import Sinks

        return Sinks(self._node.settings.transaction_max_timeout_ms, partition.leader.epoch)

    def create_topic(self, now: Now) -> None:
        settings = self._node.settings
        self.ensure_topic(
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
