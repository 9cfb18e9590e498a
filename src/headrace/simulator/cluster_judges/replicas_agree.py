"""Below the high watermark all replicas have the same offsets, epochs and checksums, whoever leads later."""

from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.simulator.cluster_judges.replica_contents import BatchSeen, batches_between
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes


class ReplicasAgree:
    name = "replicas_agree_below_high_watermark"

    def __init__(self) -> None:
        self._batches: dict[tuple[bytes, int], dict[int, tuple[BatchSeen, int]]] = {}
        self._checked: dict[tuple[int, bytes, int], tuple[Node, int]] = {}  # up to where, by node
        # by node: its process, and partitions of which not all below the high watermark could be read
        self._unread: dict[int, tuple[Node, set[Partition]]] = {}

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        if node.broker.lifecycle.epoch < 0:
            return  # not registered yet: it answers no client, and may lead by metadata of its last life
        changed = changes.partitions
        process, unread = self._unread.get(host.id, (None, set()))
        if process is not node:
            unread = set()
            self._unread[host.id] = (node, unread)
        if unread:
            changed = [one for one in node.broker.partitions.all() if one in unread or one in changed]
        for partition in changed:
            unread.discard(partition)
            log = partition.log
            if log is None or log.is_offline or partition.is_offline or partition.topic.startswith("__"):
                continue
            key = (host.id, bytes(partition.topic_id), partition.index)
            process, start = self._checked.get(key, (None, 0))
            if process is not node:
                start = log.log_start_offset
            high_watermark = min(partition.high_watermark, log.log_end_offset)
            if high_watermark <= start:
                self._checked[key] = (node, start)
                continue
            known = self._batches.setdefault(key[1:], {})
            end = start
            for batch in batches_between(log, start, high_watermark):
                first, whose = known.setdefault(batch.base_offset, (batch, host.id))
                if first != batch:
                    raise Violation(
                        f"{partition.topic}-{partition.index} has {batch} below its high watermark "
                        f"{high_watermark}; node {whose} had {first}"
                    )
                end = batch.end_offset
            self._checked[key] = (node, end)
            if end < high_watermark:
                unread.add(partition)
