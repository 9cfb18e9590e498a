"""DeleteRecords, key 21, versions 0–2: deletes the records before an offset, where the log then starts.

Offset -1 means the high watermark. The answer has the new start of each log. It waits until the new starts
are durable, here and on the followers that are alive; until then no other answer contains them, so that
deleted records cannot reappear after a crash. Before a new start is written, the producers' state at that
place is flushed: it stands for the segments that go.
"""

from typing import Any

from headrace.base.time import Instant, Now
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.partitions import INTERNAL_TOPICS, Partitions
from headrace.node.ports import Jobs
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waitable, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE
from headrace.storage.errors import LogOffline

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


class Deletion:
    """One partition's new start, on its way to the disk."""

    __slots__ = ("_leader", "is_settled", "offset", "partition", "result")

    def __init__(self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.offset = offset
        self.result = result
        self._leader = partition.leader
        self.is_settled = False

    @property
    def is_over(self) -> bool:
        """Settled, also by the followers. Whoever does not lead any more cannot know."""
        if not self.is_settled or self.result.error_code:
            return self.is_settled
        partition = self.partition
        if partition.leader is None or partition.leader is not self._leader:
            self.result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.is_deleted or partition.is_offline or partition.log is None:
            self.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            lowest = partition.lowest_start(partition.log)
            if lowest < self.offset:
                return False
            self.result.low_watermark = lowest  # what every replica that is alive has deleted
            partition.leader.deleted_before = max(partition.leader.deleted_before, lowest)
        return True

    def is_prepared(self, now: Now, directories: LogDirectories) -> bool:
        """Whether the new start may be written, or nothing will be: it is settled then."""
        partition = self.partition
        if partition.is_deleted or partition.is_offline or partition.log is None:
            self.settle(now, LogOffline("its log is gone"), directories)
            return True
        if partition.leader is not self._leader:
            self.is_settled = True  # and `is_over` says why
            return True
        try:
            if partition.log.prepare_log_start(self.offset, now.wall_ms):
                return True
        except FAULTS as fault:
            self.result.error_code = code_of(fault)
            self.is_settled = True
            directories.storage_failed(now, partition, fault)
            return True
        directories.want_flush(now, partition)
        return False

    def settle(self, now: Now, outcome: Any, directories: LogDirectories) -> None:
        """The start is durable, or `outcome` says why it is not."""
        self.is_settled = True
        partition, result = self.partition, self.result
        if partition.is_deleted:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        if isinstance(outcome, Exception):
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return
        try:
            log = partition.opened(now)
            doomed = log.advance_log_start(self.offset, now.wall_ms)
            directories.remove_segments(now, partition, doomed)
        except FAULTS as fault:
            result.error_code = code_of(fault)
            directories.storage_failed(now, partition, fault)
            return
        partition.log_start_moved()


class DeleteRecords:
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        access: Access,
        jobs: Jobs,
        waiting: Waiting,
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._access = access
        self._jobs = jobs
        self._waiting = waiting

    def handle(self, request: Request) -> DeleteRecordsResponse | Parked:
        body: DeleteRecordsRequest = request.body
        deletions: list[Deletion] = []
        response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name, partitions=self._topic_results(request, topic, deletions)
                )
                for topic in body.topics
            ]
        )
        if not deletions:
            return response
        return ParkedDeletion(self._waiting, self._jobs, self._directories, request, response, deletions)

    def _topic_results(
        self, request: Request, topic: DeleteRecordsTopic, deletions: list[Deletion]
    ) -> list[DeleteRecordsPartitionResult]:
        asked = {
            partition.partition_index: partition for partition in topic.partitions
        }  # the last one counts
        code = ErrorCode.NONE
        known = self._partitions.of_name(topic.name)
        if not self._access.allows(request, Operation.DELETE, Resource.TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic.name in INTERNAL_TOPICS:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION  # coordinators rebuild their state from all of it
        elif known is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is not ErrorCode.NONE or known is None:
            return [failed(index, code) for index in asked]
        return [
            delete(request.now, known.replicas[index], partition, deletions)
            if index in known.replicas
            else failed(index, known.absence(index))
            for index, partition in asked.items()
        ]


def delete(
    now: Now, partition: Partition, asked: DeleteRecordsPartition, deletions: list[Deletion]
) -> DeleteRecordsPartitionResult:
    policy = partition.config.cleanup_policy
    if policy and "delete" not in policy:
        return failed(partition.index, ErrorCode.POLICY_VIOLATION)
    if partition.is_offline:
        return failed(partition.index, ErrorCode.KAFKA_STORAGE_ERROR)
    not_leader = partition.leadership_fault()
    if not_leader is not None:
        return failed(partition.index, not_leader)
    try:
        log = partition.opened(now)
        high_watermark = partition.high_watermark
        offset = high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= high_watermark:
            return failed(partition.index, ErrorCode.OFFSET_OUT_OF_RANGE)
    except FAULTS as fault:
        return failed(partition.index, code_of(fault))
    lowest = max(partition.lowest_start(log), 0)  # -1: a follower has not told where it begins
    result = DeleteRecordsPartitionResult(partition_index=partition.index, low_watermark=lowest)
    if offset > 0:  # also below a start that retention has moved: that one need not be durable yet
        result.low_watermark = NO_LOW_WATERMARK
        deletions.append(Deletion(partition, offset, result))
    return result


def failed(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=code
    )


class ParkedDeletion(Parked):
    """Answered when the new starts of all its partitions are durable, or when the client's time is over."""

    __slots__ = ("_at", "_deletions", "_directories", "_jobs", "_response", "_unprepared")

    def __init__(
        self,
        waiting: Waiting,
        jobs: Jobs,
        directories: LogDirectories,
        request: Request,
        response: DeleteRecordsResponse,
        deletions: list[Deletion],
    ) -> None:
        super().__init__(waiting, request)
        self._jobs = jobs
        self._directories = directories
        self._response = response
        self._deletions = deletions
        self._at = request.now.after_ms(max(request.body.timeout_ms, 0))
        for deletion in deletions:
            self.wait_for(deletion.partition)
        self._unprepared = deletions
        self._go_on(request.now)

    def _go_on(self, now: Now) -> None:
        """Order the new starts of the logs that are prepared for them. The others wait for a flush."""
        unprepared: list[Deletion] = []
        by_directory: dict[str, list[Deletion]] = {}
        for deletion in self._unprepared:
            if not deletion.is_prepared(now, self._directories):
                unprepared.append(deletion)
            elif not deletion.is_settled:
                by_directory.setdefault(deletion.partition.directory, []).append(deletion)
        self._unprepared = unprepared
        for directory, group in by_directory.items():
            self._order(directory, group)

    def _order(self, directory: str, group: list[Deletion]) -> None:
        kept = Waitable()
        self.wait_for(kept)

        def finished(now: Now, outcome: Any) -> None:
            self._directories[directory].complete_log_starts(job, are_durable=outcome is None)
            if isinstance(outcome, Exception):
                self._directories.offsets_moved()  # a checkpoint ordered meanwhile has them, the next has not
                # not the directory where the partition lies by now: it may have moved
                self._directories.job_failed(now, directory, outcome)
            for deletion in group:
                deletion.settle(now, outcome, self._directories)
            self.waiting.wake(kept)

        starts: dict[tuple[str, int], int] = {}
        for one in group:  # a request may name a topic twice: the highest offset counts
            key = (one.partition.topic, one.partition.index)
            starts[key] = max(one.offset, starts.get(key, 0))
        # in the queue of the other checkpoints: an older one must not be written over this one
        job = self._directories[directory].log_start_job(starts)
        self._jobs.run(directory, CHECKPOINT_QUEUE, job, finished)

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> DeleteRecordsResponse | None:
        if self._unprepared and not is_expired:
            self._go_on(now)
        open_ones = [deletion for deletion in self._deletions if not deletion.is_over]
        if open_ones and not is_expired:
            return None
        for deletion in open_ones:
            deletion.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return self._response
