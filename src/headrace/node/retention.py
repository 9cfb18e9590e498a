"""Retention of a broker's partitions, and of those whose records wait for groups.

A partition whose topic has `headrace.retention.waits.for` is looked at in two steps. If something is due, the
leader asks what the groups have committed; when it knows, it deletes as far as `machines/retention/lease.py`
allows. Followers delete nothing by themselves: their logs start where the leader's does. A follower that
becomes leader has everything that the groups need.

A coordinator that cannot say anything is asked once more in the next round: it has moved, or starts. Without
an answer then, its group counts as one that has committed nothing.
"""

from collections.abc import Callable
from functools import partial

from headrace.base.time import Now
from headrace.machines.retention.lease import Committed, Stretch, deletable_before, losses
from headrace.node.committed_offsets import CommittedOffsets, Offsets
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.ports import Reports
from headrace.node.retirement import note_retired
from headrace.node.waiting import Waiter
from headrace.storage.errors import StorageError
from headrace.storage.log import PartitionLog

Then = Callable[[Partition], None]


class Retention:
    def __init__(
        self, directories: LogDirectories, offsets: CommittedOffsets, reports: Reports, then: Then
    ) -> None:
        self._directories = directories
        self._offsets = offsets
        self._reports = reports
        self._then = then  # what housekeeping does after each look
        self._asking: set[Partition] = set()
        self._unanswered: set[Partition] = set()  # in the last round
        self._waiting: set[Partition] = set()  # for groups; told once
        self._tellings: dict[Partition, LossTelling] = {}  # of removals that wait for a flush

    def look_at(self, now: Now, partition: Partition) -> None:
        limit = partition.high_watermark
        waits_for = partition.config.retention_waits_for
        try:
            log = partition.opened(now)
            if waits_for:
                if not partition.is_led_here:
                    limit = min(limit, log.log_start_offset)
                elif log.due_before(now.wall_ms, high_watermark=limit) > log.log_start_offset:
                    self._ask(now, partition, log)
                    return
            self._retire(now, partition, log, limit)
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)

    def _retire(self, now: Now, partition: Partition, log: PartitionLog, limit: int) -> None:
        doomed = log.retire(now.wall_ms, high_watermark=limit, may_wait=True)
        log.expire_producers(now.wall_ms)
        note_retired(now, partition, doomed, self._directories, self._reports)
        self._then(partition)

    def forget_gone(self, now: Now) -> None:
        """After each round: partitions that were deleted, are led elsewhere, or do not wait any more."""
        for kept in (self._unanswered, self._waiting):
            kept -= {one for one in kept if one.is_deleted or not one.is_led_here or not waits(one)}
        for partition in [one for one, telling in self._tellings.items() if telling.is_done]:
            del self._tellings[partition]

    # --- records that wait for groups -----------------------------------------------------------------------

    def _ask(self, now: Now, partition: Partition, log: PartitionLog) -> None:
        if partition in self._asking:
            return
        self._asking.add(partition)
        then = partial(self._answered, partition, log, partition.leader_epoch)
        self._offsets.ask(now, partition.config.retention_waits_for, partition, then)

    def _answered(
        self, partition: Partition, log: PartitionLog, epoch: int, now: Now, offsets: Offsets
    ) -> None:
        self._asking.discard(partition)
        is_same = partition.log is log and partition.leader_epoch == epoch and partition.is_led_here
        if not is_same or partition.is_offline or partition.is_deleted:
            return
        if set(partition.config.retention_waits_for) != set(offsets.by_group):
            return  # the setting has changed meanwhile: the next round asks about the right groups
        if offsets.is_known:
            self._unanswered.discard(partition)
        elif partition not in self._unanswered:
            self._unanswered.add(partition)
            return
        # an offset beyond the end is of another log: of a deleted topic, or of records that an unclean leader
        # has lost. It says nothing about the records that are here.
        end = log.log_end_offset
        committed = {
            group: offset if offset is None or offset <= end else None
            for group, offset in offsets.by_group.items()
        }
        try:
            self._retire_leased(now, partition, log, committed)
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)

    def _retire_leased(self, now: Now, partition: Partition, log: PartitionLog, committed: Committed) -> None:
        config, high_watermark, start = partition.config, partition.high_watermark, log.log_start_offset
        due = log.due_before(now.wall_ms, high_watermark=high_watermark)
        limit = deletable_before(
            [Stretch(*facts) for facts in log.segment_facts()],
            start,
            committed,
            max_ms=config.retention_waits_max_ms,
            max_bytes=config.retention_waits_max_bytes,
            now_ms=now.wall_ms,
        )
        self._tell_wait(partition, committed, limit, due)
        earlier = self._tellings.pop(partition, None)
        if earlier is not None:
            earlier.forget()  # the segments still wait for a flush
        telling = LossTelling(partition, log, start, committed, self._reports)
        self._retire(now, partition, log, min(limit, high_watermark))
        telling.woken(now)
        if not telling.is_done:
            self._tellings[partition] = telling

    def _tell_wait(self, partition: Partition, committed: Committed, limit: int, due: int) -> None:
        """Once, when the wait begins."""
        if limit >= due:
            self._waiting.discard(partition)
        elif partition not in self._waiting:
            self._waiting.add(partition)
            behind = {
                group: "nothing known" if offset is None else offset
                for group, offset in sorted(committed.items())
                if offset is None or offset < due
            }
            self._reports.report(
                "warning",
                "retention_waits",
                partition=f"{partition.topic}-{partition.index}",
                due_before=due,
                committed=behind,
                advice="the records stay until these groups commit them, or up to "
                "headrace.retention.waits.max.ms and .max.bytes",
            )


def waits(partition: Partition) -> bool:
    return bool(partition.config.retention_waits_for)


class LossTelling(Waiter):
    """Reports what groups lose when the log's start has moved: at once, or after the flush that the removal
    of segments waits for.
    """

    __slots__ = ("_committed", "_log", "_partition", "_reports", "_start")

    def __init__(
        self, partition: Partition, log: PartitionLog, start: int, committed: Committed, reports: Reports
    ) -> None:
        super().__init__()
        self._partition = partition
        self._log = log
        self._start = start
        self._committed = committed
        self._reports = reports
        self.wait_for(partition)

    def woken(self, now: Now) -> None:
        start, partition = self._log.log_start_offset, self._partition
        for loss in losses(self._committed, self._start, start):
            committed = self._committed[loss.group]
            self._reports.report(
                "error",
                "records_lost_to_group",
                partition=f"{partition.topic}-{partition.index}",
                group=loss.group,
                first_offset=loss.first,
                last_offset=loss.last,
                offsets=loss.offsets,
                committed="nothing known" if committed is None else committed,
                why="retention waited up to headrace.retention.waits.max.ms or .max.bytes",
            )
        self._start = max(self._start, start)
        if self._log.retires_before is None or partition.log is not self._log:
            self.forget()
