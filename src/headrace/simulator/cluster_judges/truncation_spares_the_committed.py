"""A replica that may be elected has everything that is committed, and never truncates it."""

from headrace.base.ids import TopicId
from headrace.machines.metadata.image import ClusterImage
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes

Place = tuple[bytes, int]  # topic id and partition


class TruncationSparesTheCommitted:
    name = "truncation_spares_the_committed"

    def __init__(self) -> None:
        self._committed: dict[Place, int] = {}  # the highest that a leader has told
        self._ends: dict[tuple[int, Place], tuple[Node, int]] = {}  # by node
        self._newest: tuple[int, ClusterImage | None] = (0, None)  # of all metadata
        # by node: where it lacked something when it was looked at, or may lack it since
        self._lacking: dict[int, set[Place]] = {}

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        metadata = node.controller.metadata
        if metadata.committed_offset >= self._newest[0]:
            self._newest = (metadata.committed_offset, metadata.image)
        changed, lacking = changes.partitions, self._lacking.setdefault(host.id, set())
        if lacking:
            changed = [
                one for one in node.broker.partitions.all() if _place_of(one) in lacking or one in changed
            ]
        for partition in changed:
            log = partition.log
            if log is None:
                continue
            place = _place_of(partition)
            # before a broker has registered it answers no client, and may lead by metadata of its last life
            if partition.leader is not None and node.broker.lifecycle.epoch >= 0:
                self._note_committed(place, partition.leader.high_watermark)
            committed, end = self._committed.get(place, 0), log.log_end_offset
            process, before = self._ends.get((host.id, place), (None, 0))
            self._ends[host.id, place] = (node, end)
            if end >= committed:
                lacking.discard(place)
                continue
            lacking.add(place)
            if not self._may_be_elected(host.id, place):
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

    def _note_committed(self, place: Place, high_watermark: int) -> None:
        if high_watermark > self._committed.get(place, 0):
            self._committed[place] = high_watermark
            for broker, lacking in self._lacking.items():
                _, end = self._ends.get((broker, place), (None, high_watermark))
                if end < high_watermark:
                    lacking.add(place)

    def _may_be_elected(self, broker: int, place: Place) -> bool:
        """In sync or eligible, as the newest metadata say."""
        image = self._newest[1]
        topic = image.topics_by_id.get(TopicId(place[0])) if image is not None else None
        state = topic.partitions.get(place[1]) if topic is not None else None
        return state is not None and broker in (*state.isr, *state.eligible_leader_replicas)

    def _broker_epoch(self, broker: int) -> int:
        known = self._newest[1].brokers.get(broker) if self._newest[1] is not None else None
        return known.epoch if known is not None else -1


def _place_of(partition: Partition) -> Place:
    return bytes(partition.topic_id), partition.index
