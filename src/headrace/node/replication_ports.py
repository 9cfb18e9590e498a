"""What a partition asks of replication among brokers, and what replication tells a partition."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from headrace.base.ids import BrokerId
from headrace.base.time import Now
from headrace.machines.replication.leader import NOBODY, IsrCounts, ProposeIsr
from headrace.storage.flushing import Flushed

if TYPE_CHECKING:
    from headrace.node.partition import Partition


class Follower(Protocol):
    """The follower role of a partition."""

    @property
    def high_watermark(self) -> int: ...

    def flushed(self, now: Now, result: Flushed, /) -> None: ...

    def configured(self, now: Now, /) -> None:
        """The partition has other settings."""
        ...


class Feed(Protocol):
    """A follower on another broker, as its leader sees it."""

    def records_appended(self) -> None:
        """There is something to fetch."""
        ...

    def high_watermark_raised(self) -> None:
        """To be told with the next answer."""
        ...

    def log_start_moved(self) -> None:
        """Records were deleted on request."""
        ...

    def leader_changed(self, now: Now, /) -> None:
        """This broker does not lead the partition any more, or in another epoch."""
        ...


class Replication(Protocol):
    """What partitions ask of replication among brokers."""

    @property
    def live(self) -> Mapping[BrokerId, int]:
        """Broker epochs of all brokers that are registered and may be in sync."""
        ...

    def has_directory(self, broker: BrokerId, directory: bytes, /) -> bool:
        """Whether that log directory of the broker has not failed, according to the metadata."""
        ...

    @property
    def isr_counts(self) -> IsrCounts:
        """Of all leaders of this broker."""
        ...

    @property
    def lag_seconds(self) -> float:
        """replica.lag.time.max.ms"""
        ...

    def follow(self, now: Now, partition: "Partition", /) -> None:
        """Another broker leads the partition from now on."""
        ...

    def unfollow(self, now: Now, partition: "Partition", /) -> None: ...

    def propose(self, now: Now, partition: "Partition", proposal: ProposeIsr, /) -> None:
        """Ask the controller for another in-sync set."""
        ...


class NoReplication:
    """Of a broker whose partitions have one replica each."""

    live: Mapping[BrokerId, int] = NOBODY
    isr_counts = IsrCounts()
    lag_seconds = 30.0

    def has_directory(self, broker: BrokerId, directory: bytes) -> bool:
        return True

    def follow(self, now: Now, partition: "Partition") -> None:
        pass

    def unfollow(self, now: Now, partition: "Partition") -> None:
        pass

    def propose(self, now: Now, partition: "Partition", proposal: ProposeIsr) -> None:
        pass
