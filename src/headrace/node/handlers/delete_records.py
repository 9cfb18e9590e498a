"""DeleteRecords, key 21, versions 0–2: everything before an offset is gone, and the log starts there.

Offset -1 means up to the high watermark. The answer tells where each log starts now. It waits for the new
starts to be durable, and until then nobody is told of them: what was deleted on request does not come back.
"""

from typing import Any

from headrace.base.time import Instant, Now
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.faults import FAULTS, code_of
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
from headrace.storage.directory_jobs import CHECKPOINT_LANE

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


class Deletion:
    """One partition's new start, on its way to the disk."""

    __slots__ = ("is_settled", "offset", "partition", "result")

    def __init__(self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.offset = offset
        self.result = result
        self.is_settled = False

    def settle(self, now: Now, outcome: Any, directories: LogDirectories, waiting: Waiting) -> None:
        """The start is durable, or `outcome` says why it is not."""
        self.is_settled = True
        partition, result = self.partition, self.result
        if partition.is_deleted:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        if isinstance(outcome, OSError):
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            directories.job_failed(now, partition.directory, outcome)
            return
        try:
            log = partition.opened(now)
            doomed = log.advance_log_start(self.offset, now.wall_ms)
            if doomed:
                partition.remove_later(now, doomed)
        except FAULTS as fault:
            result.error_code = code_of(fault)
            return
        result.low_watermark = log.log_start_offset
        waiting.wake(partition)  # a fetch that waits below the new start learns of it


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
        partitions = self._partitions.of_name(topic.name)
        if not self._access.allows(request, Operation.DELETE, Resource.TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic.name in INTERNAL_TOPICS:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION  # coordinators rebuild their state from all of it
        elif partitions is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is not ErrorCode.NONE or partitions is None:
            return [failed(index, code) for index in asked]
        return [
            delete(request.now, partitions[index], partition, deletions)
            if 0 <= index < len(partitions)
            else failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for index, partition in asked.items()
        ]


def delete(
    now: Now, partition: Partition, asked: DeleteRecordsPartition, deletions: list[Deletion]
) -> DeleteRecordsPartitionResult:
    policy = partition.config.cleanup_policy
    if policy and "delete" not in policy:
        return failed(partition.index, ErrorCode.POLICY_VIOLATION)
    try:
        log = partition.opened(now)
        high_watermark = partition.leader.high_watermark
        offset = high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= high_watermark:
            return failed(partition.index, ErrorCode.OFFSET_OUT_OF_RANGE)
    except FAULTS as fault:
        return failed(partition.index, code_of(fault))
    result = DeleteRecordsPartitionResult(partition_index=partition.index, low_watermark=log.log_start_offset)
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

    __slots__ = ("_at", "_deletions", "_directories", "_jobs", "_response")

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
        by_directory: dict[str, list[Deletion]] = {}
        for deletion in deletions:
            by_directory.setdefault(deletion.partition.directory, []).append(deletion)
        for directory, group in by_directory.items():
            self._order(directory, group)

    def _order(self, directory: str, group: list[Deletion]) -> None:
        kept = Waitable()
        self.wait_for(kept)

        def finished(now: Now, outcome: Any) -> None:
            for deletion in group:
                deletion.settle(now, outcome, self._directories, self.waiting)
            self.waiting.wake(kept)

        starts = {(one.partition.topic, one.partition.index): one.offset for one in group}
        # in the lane of the other checkpoints: an older one must not be written over this one
        job = self._directories[directory].log_start_job(starts)
        self._jobs.run(directory, CHECKPOINT_LANE, job, finished)

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> DeleteRecordsResponse | None:
        open_ones = [deletion for deletion in self._deletions if not deletion.is_settled]
        if open_ones and not is_expired:
            return None
        for deletion in open_ones:
            deletion.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return self._response
