"""A combined fault: an end marker cannot be written because the disk is full, the coordinator is rebuilt from
its log, and then there is space again.

By then two coordinators have ordered the same marker, and the producer may have begun its next transaction.
Independent random faults hardly ever combine in this way.
"""

from collections.abc import Callable, Generator
from typing import Any

from headrace.node.coordinators.shard import Shard
from headrace.node.node import Node
from headrace.simulator.host import Host
from headrace.simulator.world import World

LOOKS_EVERY_S = 0.004  # a transaction's steps follow each other within some milliseconds
PATIENCE_S = 4.0

# Ends that failed are tried again every second, and a coordinator is made again a second after its failure:
# any time, or just before that.
SPACE_AFTER_S = ((0.1, 1.3), (0.85, 1.0))

# Lets every append to paths with this text fail, so many times; what it returns ends that.
RefuseAppends = Callable[[str, int], Callable[[], None]]


def strand_an_end(host: Host, refuse_appends: RefuseAppends) -> None:
    """Takes its steps when the node comes to them, and gives up when the node is gone or nothing happens."""
    world, node = host.world, host.node
    if node is None:
        return
    steps = _steps(world, node, refuse_appends)
    until = world.mono + PATIENCE_S

    def look() -> None:
        if host.node is not node or world.mono > until:
            steps.close()
        elif next(steps, "over") != "over":
            world.after(LOOKS_EVERY_S, look)

    look()


def _steps(world: World, node: Node, refuse_appends: RefuseAppends) -> Generator[str]:
    while (found := _about_to_end(node)) is None:
        yield "no transaction is about to end"
    shard, name, (topic, index) = found
    has_space_again = refuse_appends(f"{topic}-{index}/", 1_000)
    try:
        machine = shard.machine
        while shard.current is machine and shard.machine.state()[name].is_open:
            yield "it has not ended"
        coordinator = shard.partition
        refuse_appends(f"{coordinator.topic}-{coordinator.index}/", 1)
        while shard.current is machine:
            yield "its coordinator has not written"
        space_at = world.mono + world.between(*world.rng.choice(SPACE_AFTER_S))
        while world.mono < space_at:
            yield "there is no space"
    finally:
        has_space_again()


def _about_to_end(node: Node) -> tuple[Shard[Any], str, tuple[str, int]] | None:
    """A transaction to which offsets were added, which is the last step before its end, and one of the
    partitions that it has written to.
    """
    for shard in node.broker.transactions.loaded_shards():
        for name, transaction in sorted(shard.machine.state().items()):
            written = [one for one in sorted(transaction.partitions) if not one[0].startswith("__")]
            if transaction.is_open and written and len(written) < len(transaction.partitions):
                return shard, name, written[0]
    return None
