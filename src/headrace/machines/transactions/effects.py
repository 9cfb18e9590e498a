"""Effects of the transaction coordinator: orders to write end markers."""

from dataclasses import dataclass

from headrace.machines.transactions.transaction import TopicPartition


@dataclass(slots=True, eq=False)
class WriteMarkers:
    """Write an end marker into each partition, then hand this very order to `Transactions.markers_written`.

    A partition whose topic is gone counts as written, and there may be none at all. Until it is done, the
    transactional id is busy, so it is tried until it succeeds, or until `is_writing` says that the order does
    not count any more. The order is compared by identity: one given by a machine that has since been made
    again from the log means nothing, and its successor orders the same again.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: list[TopicPartition]  # sorted
    transaction_version: int  # from 2 on, a partition takes the marker only if the epoch is above its own
