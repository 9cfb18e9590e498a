"""ListOffsets, key 2, versions 1–11: the first and last offset, or the first record at or after a time.

A partition that is named more than once is refused, and told once, as Kafka does: a look-up may have to open
a batch.
"""

from collections import Counter
from typing import Any

from headrace.base.time import Instant, Now
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.partition import NO_EPOCH, Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Jobs
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waitable, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.storage.batch_opener import BatchOpener, LookJob, MustLookFirst

QUEUE = "look-up"

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The version in which each special timestamp came into being.
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

DEBUGGER = -2  # sees the end of the log
TOLD = 0  # instead of how often a partition is named, once that was refused
EPOCH_VERSION_MIN = 4
NOT_AVAILABLE_VERSION_MIN = 5


class ListOffsets:
    def __init__(
        self,
        partitions: Partitions,
        access: Access,
        jobs: Jobs,
        waiting: Waiting,
    ) -> None:
        self._partitions = partitions
        self._access = access
        self._jobs = jobs
        self._waiting = waiting

    def handle(self, request: Request) -> ListOffsetsResponse | Parked:
        body: ListOffsetsRequest = request.body
        times = Counter(
            (topic.name, asked.partition_index) for topic in body.topics for asked in topic.partitions
        )
        open_look_ups: list[LookUp] = []
        topics = []
        for topic in body.topics:
            known = self._partitions.of_name(topic.name)
            allowed = self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, topic.name)
            results = []
            for asked in topic.partitions:
                if not allowed:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif (named := times[topic.name, asked.partition_index]) != 1:
                    if named == TOLD:
                        continue
                    times[topic.name, asked.partition_index] = TOLD
                    code = ErrorCode.INVALID_REQUEST
                elif known is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif (partition := known.replicas.get(asked.partition_index)) is None:
                    code = known.absence(asked.partition_index)
                elif asked.timestamp < 0 and request.version < _SINCE.get(asked.timestamp, 2**15):
                    code = ErrorCode.UNSUPPORTED_VERSION
                else:
                    look_up = LookUp(self._jobs, self._waiting, request, partition, asked)
                    if not look_up.go_on(request.now):
                        open_look_ups.append(look_up)
                    results.append(look_up.answer)
                    continue
                results.append(
                    ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
        response = ListOffsetsResponse(topics=topics)
        return ParkedLookUps(self._waiting, request, response, open_look_ups) if open_look_ups else response


class LookUp(Waitable):
    """One partition's part; it may take several goes, with a job in between that opens a large batch."""

    __slots__ = (
        "_asked",
        "_isolation",
        "_jobs",
        "_not_yet",
        "_opener",
        "_partition",
        "_tells_epoch",
        "_uses_log_end",
        "_waiting",
        "answer",
        "is_over",
    )

    def __init__(
        self, jobs: Jobs, waiting: Waiting, request: Request, partition: Partition, asked: Any
    ) -> None:
        super().__init__()
        self._jobs = jobs
        self._waiting = waiting
        body: ListOffsetsRequest = request.body
        self._partition = partition
        self._asked = asked
        self._isolation = body.isolation_level
        self._uses_log_end = body.replica_id == DEBUGGER  # no follower asks
        self._not_yet = (
            ErrorCode.OFFSET_NOT_AVAILABLE
            if request.version >= NOT_AVAILABLE_VERSION_MIN
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
        self._tells_epoch = request.version >= EPOCH_VERSION_MIN
        self._opener = BatchOpener()
        self.answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        self.is_over = False

    def go_on(self, now: Now) -> bool:
        """Whether it is over. If not, a job is on its way, and this is called again."""
        partition = self._partition
        try:
            fault = partition.leadership_fault(self._asked.current_leader_epoch)
            if partition.is_deleted:
                fault = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if fault is not None:
                self.answer.error_code = fault
            else:
                self._look(now)
        except MustLookFirst as long:
            self._run(long.job)
            return False
        except FAULTS as raised:
            self.answer.error_code = code_of(raised)
        if not self._tells_epoch:
            self.answer.leader_epoch = NO_EPOCH
        self.is_over = True
        return True

    def _look(self, now: Now) -> None:
        partition, answer, timestamp = self._partition, self.answer, self._asked.timestamp
        log = partition.opened(now)
        leader = partition.leader
        has_reached_start = leader is not None and leader.has_reached_epoch_start
        if not (self._uses_log_end or has_reached_start or timestamp in (EARLIEST, EARLIEST_LOCAL)):
            answer.error_code = self._not_yet  # more may be committed than this leader knows
            return
        end = log.log_end_offset if self._uses_log_end else partition.visible_end(self._isolation)
        if timestamp == LATEST:
            answer.offset = end
            answer.leader_epoch = log.latest_epoch
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            answer.offset = log.log_start_offset
            answer.leader_epoch = log.epoch_at(log.log_start_offset)
        elif timestamp >= 0 or timestamp == MAX_TIMESTAMP:
            found = (
                log.max_timestamp(end, self._opener)
                if timestamp == MAX_TIMESTAMP
                else log.offset_for_timestamp(timestamp, end, self._opener)
            )
            if found is not None:
                answer.offset = found.offset
                answer.timestamp = found.timestamp
                answer.leader_epoch = found.leader_epoch
        # nothing is tiered here: the two remaining questions have the answer "none"

    def _run(self, job: LookJob) -> None:
        def finished(now: Now, result: Any) -> None:
            if isinstance(result, Exception) and not isinstance(result, FAULTS):
                # the segment went meanwhile, or the job's process did: the client asks again
                self.answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                self.is_over = True
            else:
                self._opener.tell(job, result)
                self.go_on(now)
            if self.is_over:
                self._waiting.wake(self)

        self._jobs.run(self._partition.directory, QUEUE, job, finished)


class ParkedLookUps(Parked):
    """Answered when all its look-ups are over; jobs always come back."""

    __slots__ = ("_look_ups", "_response")

    def __init__(
        self, waiting: Waiting, request: Request, response: ListOffsetsResponse, look_ups: list[LookUp]
    ) -> None:
        super().__init__(waiting, request)
        self._response = response
        self._look_ups = look_ups
        for look_up in look_ups:
            self.wait_for(look_up)

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> ListOffsetsResponse | None:
        return self._response if all(look_up.is_over for look_up in self._look_ups) else None
