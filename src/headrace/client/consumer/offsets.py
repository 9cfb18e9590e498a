"""Calls about offsets that finish later: commits, committed offsets, ends of partitions, offsets by time."""

from collections.abc import Iterable, Mapping

from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.list_offsets import FoundOffsets, ListOffsets, OffsetAndTimestamp
from headrace.client.errors import ClientError, InvalidInput
from headrace.client.membership.events import CommitEnded, CommittedOffset, OffsetsFetched
from headrace.client.membership.group import Group
from headrace.client.pending import Pending

Committed = dict[TopicPartition, CommittedOffset]
CommittedOffsets = dict[TopicPartition, CommittedOffset | None]
Ends = dict[TopicPartition, int]
ByTime = dict[TopicPartition, OffsetAndTimestamp | None]


class OffsetCalls:
    """Invariant: every number that the group gave and did not answer yet has its pending here."""

    def __init__(self, group: Group | None, list_offsets: ListOffsets) -> None:
        self._group = group
        self._list_offsets = list_offsets
        self._commits: dict[int, Pending[Committed]] = {}
        self._lookups: dict[int, Pending[CommittedOffsets]] = {}

    def needed_group(self, what: str) -> Group:
        if self._group is None:
            raise InvalidInput(f"group.id is needed {what}")
        return self._group

    def commit(
        self,
        now: Instant,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        timeout_s: float | None,
    ) -> Pending[Committed]:
        group = self.needed_group("to commit")
        wanted = {at: _committed(each) for at, each in offsets.items()}
        pending: Pending[Committed] = Pending("committing offsets")
        self._commits[group.commit(now, wanted, timeout_s)] = pending
        return pending

    def commit_ended(self, event: CommitEnded) -> None:
        pending = self._commits.pop(event.number)
        pending.finish(None if event.error is not None else dict(event.offsets), event.error)

    def committed(
        self, now: Instant, partitions: Iterable[TopicPartition], timeout_s: float | None
    ) -> Pending[CommittedOffsets]:
        group = self.needed_group("for committed offsets")
        pending: Pending[CommittedOffsets] = Pending("reading committed offsets")
        self._lookups[group.fetch_committed(now, partitions, timeout_s)] = pending
        return pending

    def fetched(self, event: OffsetsFetched) -> None:
        pending = self._lookups.pop(event.number)
        pending.finish(None if event.error is not None else dict(event.offsets), event.error)

    def ends(
        self, now: Instant, partitions: Iterable[TopicPartition], end: int, timeout_s: float
    ) -> Pending[Ends]:
        """`end` is EARLIEST or LATEST."""
        pending: Pending[Ends] = Pending("asking for offsets")
        wanted = dict.fromkeys(partitions, end)
        check_partitions(wanted)

        def done(now: Instant, found: FoundOffsets, error: ClientError | None) -> None:
            places = ((at, found.get(at)) for at in wanted)
            pending.finish({at: place.offset for at, place in places if place is not None}, error)

        self._list_offsets.find(now, wanted, timeout_s, done, is_called_for=True)
        return pending

    def by_time(self, now: Instant, times: Mapping[TopicPartition, int], timeout_s: float) -> Pending[ByTime]:
        check_partitions(times)
        for at, timestamp in times.items():
            if timestamp < 0:
                raise InvalidInput(f"timestamp {timestamp} for partition {at} is negative")
        pending: Pending[ByTime] = Pending("asking for offsets")

        def done(now: Instant, found: FoundOffsets, error: ClientError | None) -> None:
            pending.finish({at: found.get(at) for at in times}, error)

        self._list_offsets.find(now, times, timeout_s, done, is_called_for=True)
        return pending


def _committed(given: int | CommittedOffset) -> CommittedOffset:
    committed = CommittedOffset(given) if isinstance(given, int) else CommittedOffset(*given)
    check_offset(committed.offset)
    return committed


def check_offset(offset: int) -> None:
    if offset < 0:
        raise InvalidInput(f"offset {offset} is negative")


def check_partitions(partitions: Iterable[TopicPartition]) -> None:
    for at in partitions:
        if at.partition < 0:
            raise InvalidInput(f"there is no partition {at}")
