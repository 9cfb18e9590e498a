"""From moments to offsets: where each partition begins and ends for `--from`, `--to` and `--before`."""

from collections.abc import Sequence

from headrace.cli.moments import AtOffset, AtTime, BeforeEnd, Edge, Moment
from headrace.client.client import Client
from headrace.client.cluster import TopicPartition
from headrace.client.offsets import EARLIEST, LATEST, list_offsets


def resolve(
    client: Client, partitions: Sequence[TopicPartition], moment: Moment, *, isolation: int = 0
) -> dict[TopicPartition, int]:
    """The offset that a moment means in each partition.

    A time means the first record that is as late; a partition without one is meant at its end.
    """
    match moment:
        case AtOffset(offset):
            return dict.fromkeys(partitions, offset)
        case Edge.EARLIEST:
            return _ends(client, partitions, EARLIEST, isolation)
        case Edge.LATEST:
            return _ends(client, partitions, LATEST, isolation)
        case BeforeEnd(records):
            starts = _ends(client, partitions, EARLIEST, isolation)
            ends = _ends(client, partitions, LATEST, isolation)
            return {at: max(starts[at], ends[at] - records) for at in partitions}
        case AtTime(timestamp_ms):
            found = list_offsets(client, dict.fromkeys(partitions, timestamp_ms), isolation=isolation)
            ends = _ends(client, partitions, LATEST, isolation)
            return {at: found[at][0] if found[at][0] >= 0 else ends[at] for at in partitions}


def _ends(
    client: Client, partitions: Sequence[TopicPartition], which: int, isolation: int
) -> dict[TopicPartition, int]:
    found = list_offsets(client, dict.fromkeys(partitions, which), isolation=isolation)
    return {at: offset for at, (offset, _) in found.items()}
