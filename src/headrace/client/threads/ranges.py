"""Offsets of each partition for the positions in `--from`, `--to` and `--before`."""

from collections.abc import Sequence

from headrace.base.moments import AtOffset, AtTime, BeforeEnd, Edge, Moment
from headrace.client.admin.offsets import OffsetAt
from headrace.client.cluster import TopicPartition
from headrace.client.threads.admin import Admin

READ_ALL = "read_uncommitted"


def resolve(
    admin: Admin, partitions: Sequence[TopicPartition], moment: Moment, *, isolation_level: str = READ_ALL
) -> dict[TopicPartition, int]:
    """The offset that a moment means in each partition.

    A time means the first record that is as late; a partition without one is meant at its end.
    """
    match moment:
        case AtOffset(offset):
            return dict.fromkeys(partitions, offset)
        case Edge.EARLIEST:
            return ends_of(admin, partitions, OffsetAt.EARLIEST, isolation_level)
        case Edge.LATEST:
            return ends_of(admin, partitions, OffsetAt.LATEST, isolation_level)
        case BeforeEnd(records):
            starts = ends_of(admin, partitions, OffsetAt.EARLIEST, isolation_level)
            ends = ends_of(admin, partitions, OffsetAt.LATEST, isolation_level)
            return {at: max(starts[at], ends[at] - records) for at in partitions}
        case AtTime(timestamp_ms):
            asked = dict.fromkeys(partitions, timestamp_ms)
            found = {
                at: told.offset
                for at, told in admin.list_offsets(asked, isolation_level=isolation_level).items()
                if told.offset is not None
            }
            return ends_of(admin, partitions, OffsetAt.LATEST, isolation_level) | found


def ends_of(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    which: OffsetAt = OffsetAt.LATEST,
    isolation_level: str = READ_ALL,
) -> dict[TopicPartition, int]:
    found = admin.list_offsets(dict.fromkeys(partitions, which), isolation_level=isolation_level)
    return {at: told.offset for at, told in found.items() if told.offset is not None}
