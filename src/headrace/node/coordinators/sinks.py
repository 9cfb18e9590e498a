"""The coordinator of sinks: `__sink_sessions`, its shards, and the markers of their attempts."""

from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.node.coordinators.coordinator import Coordinator, segment_bytes
from headrace.node.coordinators.markers import MarkersUnderWay
from headrace.node.coordinators.shard import Shard
from headrace.node.partition import Partition
from headrace.protocol.coordinator_records import SINK_RECORDS

if TYPE_CHECKING:
    from headrace.machines.sinks.sinks import Sinks
    from headrace.machines.transactions.effects import WriteMarkers
    from headrace.node.node import Node

TOPIC = "__sink_sessions"
# A sink has one record, written some times per batch: few shards serve many of them.
PARTITIONS = 10


class SinkCoordinator(Coordinator):
    def __init__(self, node: "Node") -> None:
        super().__init__(node, TOPIC, SINK_RECORDS, self._machine, self._write_markers)

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

    def _write_markers(self, now: Now, shard: Shard, effect: "WriteMarkers") -> None:
        def written(now: Now) -> None:
            if shard.machine is not None:
                shard.carry_out(now, shard.machine.markers_written(now, effect))

        MarkersUnderWay(self._node, effect, written).expired(now)
