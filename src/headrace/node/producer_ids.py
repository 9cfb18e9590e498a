"""Producer ids, handed out from blocks that the metadata log has granted.

A block is a record of metadata, so an id is never given twice, not even over restarts: what was left of the
last block is forgone.
"""

from collections.abc import Callable

from headrace.base.ids import ProducerId
from headrace.base.time import Now
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.node.metadata_log import MetadataLog


class NotGrantedYet(Exception):
    """The block that the next id comes from is not durable yet."""


class ProducerIds:
    __slots__ = ("_broker_id", "_decisions", "_end", "_granted_at", "_metadata", "_next")

    def __init__(self, broker_id: int, metadata: MetadataLog, decisions: ControllerDecisions) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._decisions = decisions
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
            decision = self._decisions.allocate_producer_ids(self._broker_id)
            self._granted_at = self._metadata.propose(now, decision)
            self._next, self._end = decision.reply

    def source(self, now: Now) -> Callable[[], int]:
        """What gives ids to a coordinator that may or may not need one.

        NotGrantedYet, or FAULTS, when there is none that may be told at once; in a moment there may be.
        """

        def fresh_id() -> int:
            self.prepare(now)
            if self._metadata.committed_offset < self._granted_at:
                raise NotGrantedYet
            return self.take(now)[0]

        return fresh_id
