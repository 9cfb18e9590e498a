"""Producer ids, handed out from blocks that the metadata log has granted.

A block is a record of metadata, so an id is never given twice, not even over restarts: what was left of the
last block is forgone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.base.ids import ProducerId
from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import allocate_producer_ids

if TYPE_CHECKING:
    from headrace.node.node import Node


class NotGrantedYet(Exception):
    """The block that the next id comes from is not durable yet."""


class ProducerIds:
    __slots__ = ("_end", "_granted_at", "_next", "_node")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._next = 0
        self._end = 0
        self._granted_at = 0  # metadata offset that must be durable before an id of this block is told

    def take(self, now: Now) -> tuple[ProducerId, int]:
        """A fresh id, and the metadata offset whose commit makes it true."""
        self.prepare(now)
        taken = ProducerId(self._next)
        self._next += 1
        return taken, self._granted_at

    def prepare(self, now: Now) -> None:
        """See to it that there is an id to give, soon. FAULTS when the metadata log cannot take the block."""
        if self._next == self._end:
            node = self._node
            image = node.metadata.image
            decision = allocate_producer_ids(image, node.id, image.brokers[node.id].epoch)
            self._granted_at = node.metadata.propose(now, decision)
            self._next, self._end = decision.reply.start, decision.reply.stop

    def source(self, now: Now) -> Callable[[], int]:
        """What gives ids to a coordinator that may or may not need one.

        NotGrantedYet, or FAULTS, when there is none that may be told at once; in a moment there may be.
        """

        def fresh_id() -> int:
            self.prepare(now)
            if self._node.metadata.committed_offset < self._granted_at:
                raise NotGrantedYet
            return self.take(now)[0]

        return fresh_id
