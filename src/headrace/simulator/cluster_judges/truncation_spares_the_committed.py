"""A replica that may be elected has everything that is committed, and never cuts it off."""

from headrace.base.ids import TopicId
from headrace.machines.metadata.image import ClusterImage
from headrace.node.node import Node
from headrace.simulator.history import Violation
from headrace.simulator.host import Host

Place = tuple[bytes, int]  # topic id and partition


class TruncationSparesTheCommitted:
    name = "truncation_spares_the_committed"

    def __init__(self) -> None:
        self._committed: dict[Place, int] = {}  # the highest that a leader has told
        self._ends: dict[tuple[int, Place], tuple[Node, int]] = {}  # by node
        self._newest: tuple[int, ClusterImage | None] = (0, None)  # of all metadata

    def look(self, host: Host, node: Node, /) -> None:
        metadata = node.controller.metadata
        if metadata.committed_offset >= self._newest[0]:
            self._newest = (metadata.committed_offset, metadata.image)
        for partition in node.broker.partitions.all():
            log = partition.log
            if log is None:
                continue
            place = (bytes(partition.topic_id), partition.index)
            # before a broker has registered it answers no client, and may lead by metadata of its last life
            if partition.leader is not None and node.broker.lifecycle.epoch >= 0:
                known = self._committed.get(place, 0)
                self._committed[place] = max(known, partition.leader.high_watermark)
            committed, end = self._committed.get(place, 0), log.log_end_offset
            process, before = self._ends.get((host.id, place), (None, 0))
            self._ends[host.id, place] = (node, end)
            if end >= committed or not self._may_be_elected(host.id, place):
                continue
            # a disk that was replaced by an older copy lacked records before the cut: its replica may not be
            # elected before its broker has registered, which is what the check below waits for
            if process is node and end < before and before >= committed:
                raise Violation(
                    f"it cuts {partition.topic}-{partition.index} from {before} to {end}, though {committed} "
                    "is committed and it may be elected"
                )
            if node.broker.lifecycle.epoch == self._broker_epoch(host.id):
                raise Violation(
                    f"it may be elected for {partition.topic}-{partition.index}, which is committed up to "
                    f"{committed}, and its log ends at {end}"
                )

    def _may_be_elected(self, broker: int, place: Place) -> bool:
        """In sync or eligible, as the newest metadata say."""
        image = self._newest[1]
        topic = image.topics_by_id.get(TopicId(place[0])) if image is not None else None
        state = topic.partitions.get(place[1]) if topic is not None else None
        return state is not None and broker in (*state.isr, *state.eligible_leader_replicas)

    def _broker_epoch(self, broker: int) -> int:
        known = self._newest[1].brokers.get(broker) if self._newest[1] is not None else None
        return known.epoch if known is not None else -1
