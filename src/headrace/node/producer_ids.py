"""Producer ids for idempotent producers, handed out from blocks that the metadata log has granted.

A block is a record of metadata, so an id is never given twice, not even over restarts: what was left of the
last block is forgone.
"""

from typing import TYPE_CHECKING

from headrace.base.ids import ProducerId
from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import allocate_producer_ids

if TYPE_CHECKING:
    from headrace.node.node import Node


class ProducerIds:
    __slots__ = ("_end", "_granted_at", "_next", "_node")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._next = 0
        self._end = 0
        self._granted_at = 0  # metadata offset that must be durable before an id of this block is told

    def take(self, now: Now) -> tuple[ProducerId, int]:
        """A fresh id, and the metadata offset whose commit makes it true."""
        if self._next == self._end:
            node = self._node
            image = node.metadata.image
            decision = allocate_producer_ids(image, node.id, image.brokers[node.id].epoch)
            self._granted_at = node.metadata.propose(now, decision)
            self._next, self._end = decision.reply.start, decision.reply.stop
        taken = ProducerId(self._next)
        self._next += 1
        return taken, self._granted_at
