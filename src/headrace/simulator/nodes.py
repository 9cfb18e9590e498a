"""What simulated clients talk to: one host, or a cluster of them."""

from typing import Protocol

from headrace.client.cluster import Address
from headrace.simulator.history import History, PartitionKey
from headrace.simulator.host import Host
from headrace.simulator.world import World


class Nodes(Protocol):
    """One simulated host, or a cluster of them."""

    @property
    def world(self) -> World: ...

    @property
    def history(self) -> History: ...

    @property
    def size(self) -> int:
        """How many nodes there are."""
        ...

    def reach(self, address: Address | None, /) -> Host:
        """The host that has this address; None: any will do."""
        ...

    def durable_end(self, partition: PartitionKey, /) -> int:
        """One past the last offset that a lost host would surely still have; -1: not asked."""
        ...
