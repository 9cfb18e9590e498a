"""No two brokers, and no two runs of one broker, get the same producer ids to assign."""

from headrace.node.node import Node
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes


class ProducerIdsGivenOnce:
    name = "producer_ids_given_once"

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[int, Node]] = {}  # by the end of a block: who has it

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        for block in node.broker.producer_ids.blocks:
            first, process = self._blocks.setdefault(block.stop, (host.id, node))
            if process is not node:
                raise Violation(f"it has the producer ids {block}, which node {first} was given before")
