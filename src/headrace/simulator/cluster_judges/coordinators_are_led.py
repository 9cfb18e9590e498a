"""A coordinator decides only on the leader of its partition, in the epoch in which it was loaded, and not
before the high watermark has reached the start of that epoch.
"""

from headrace.node.node import Node
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes


class CoordinatorsAreLed:
    name = "coordinators_are_led"

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        for coordinator in node.broker.coordinators:
            for shard in coordinator.loaded_shards():
                partition = shard.partition
                leader = partition.leader
                if leader is None or leader.epoch != shard.epoch:
                    name = f"{partition.topic}-{partition.index}"
                    raise Violation(
                        f"the coordinator of {name} lives in epoch {shard.epoch}, but "
                        f"{partition.leader_id} leads the partition in epoch {partition.leader_epoch}"
                    )
                if leader.high_watermark < leader.start_offset:
                    name = f"{partition.topic}-{partition.index}"
                    raise Violation(
                        f"the coordinator of {name} is loaded, though its epoch begins at "
                        f"{leader.start_offset} and the high watermark is {leader.high_watermark}"
                    )
