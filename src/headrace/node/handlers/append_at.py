"""AppendAt, key 30002, version 0: a batch for a partition whose log ends at an expected offset.

The schema registries of all brokers write to one partition with it (server/registry.py). Answered once all
in-sync replicas have the batch, as a Produce with acks=all.
"""

from typing import Any

from headrace.base.time import Instant, Now
from headrace.node.append_queue import HeldBatch
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.commit_queue import is_led_in
from headrace.node.error_codes import FAULTS, Refused, refusal_of
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.partitions import INTERNAL_TOPICS, Partitions
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.append_at import AppendAtRequest, AppendAtResponse
from headrace.records.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL
from headrace.storage.appending import Appended
from headrace.storage.errors import MustBeOpenedFirst


class AppendAt:
    def __init__(
        self, partitions: Partitions, directories: LogDirectories, access: Access, waiting: Waiting
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: AppendAtRequest = request.body
        try:
            partition = self._addressed(request, body)
            try:
                appended = self._append(request, partition, body)
            except FAULTS as fault:
                self._directories.storage_failed(request.now, partition, fault)
                raise refusal_of(fault) from fault
        except Refused as refusal:
            return AppendAtResponse(error_code=refusal.code)
        return AwaitedAppend(self._waiting, request, partition, appended, body.timeout_ms).or_reply()

    def _addressed(self, request: Request, body: AppendAtRequest) -> Partition:
        topic = self._partitions.of_id(body.topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._access.allows(request, Operation.WRITE, Resource.TOPIC, topic.name):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic.name in INTERNAL_TOPICS:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = topic.replicas.get(body.partition)
        if partition is None:
            raise Refused(topic.absence(body.partition))
        return partition

    @staticmethod
    def _append(request: Request, partition: Partition, body: AppendAtRequest) -> Appended | HeldBatch:
        """The batch in its log, or in the append queue: what is compacted is looked into first."""
        leader = partition.leader
        if leader is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if len(leader.isr) < partition.min_insync_replicas:
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        if partition.is_offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
        records = body.records
        if not isinstance(records, memoryview) or len(records) < HEADER_BYTES:
            raise Refused(ErrorCode.INVALID_RECORD)
        if records[ATTRIBUTES_AT + 1] & TRANSACTIONAL:
            # it would open a transaction that no coordinator knows, and that nobody ends
            raise Refused(ErrorCode.INVALID_RECORD)
        permit = AtEnd(partition, body.expected_offset)
        permit.ask(request.now)
        must_be_opened = False
        if not partition.has_queue:
            try:
                return partition.append(records, request.now)
            except MustBeOpenedFirst:
                must_be_opened = True
        queue = partition.append_queue
        if not queue.has_room(records):
            raise Refused(ErrorCode.REQUEST_TIMED_OUT)
        held = HeldBatch(request.connection, records, closes_if_refused=False, permit=permit)
        queue.hold(request.now, held, must_be_opened=must_be_opened)
        return held


class AtEnd:
    """The permit of a batch (append_queue.py) that is appended only at an expected offset."""

    __slots__ = ("_expected", "_partition")

    def __init__(self, partition: Partition, expected: int) -> None:
        self._partition = partition
        self._expected = expected

    def ask(self, now: Now) -> None:
        if self._partition.opened(now).log_end_offset != self._expected:
            raise Refused(ErrorCode.INVALID_UPDATE_VERSION)

    def drop(self) -> None:
        pass


class AwaitedAppend(Parked):
    """Waits until the batch is in the log, and committed."""

    __slots__ = ("_appended", "_at", "_epoch", "_partition")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        partition: Partition,
        appended: Appended | HeldBatch,
        timeout_ms: int,
    ) -> None:
        super().__init__(waiting, request)
        request.body = None  # it views the connection's buffer
        self._partition = partition
        self._epoch = partition.leader_epoch
        self._appended = appended
        self._at = request.now.after_ms(max(timeout_ms, 0))

    def or_reply(self) -> "AwaitedAppend | AppendAtResponse":
        """The reply if it is known already."""
        reply = self.reply(self.request.now, is_expired=False)
        if reply is not None:
            return reply
        self.wait_for(self._partition)
        if isinstance(self._appended, HeldBatch):
            self.wait_for(self._appended)
        return self

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> AppendAtResponse | None:
        code = self._outcome()
        if code is None and is_expired:
            if isinstance(self._appended, HeldBatch):
                self._partition.append_queue.withdraw(now, self._appended)
            code = ErrorCode.REQUEST_TIMED_OUT
        return None if code is None else AppendAtResponse(error_code=code)

    def _outcome(self) -> ErrorCode | None:
        """None: not yet."""
        partition = self._partition
        if isinstance(self._appended, HeldBatch):
            outcome = self._appended.outcome
            if outcome is None:
                return None
            if isinstance(outcome, Refused):
                return outcome.code
            self._appended = outcome
        if not is_led_in(partition, self._epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_committed = partition.high_watermark > self._appended.last_offset
        return ErrorCode.NONE if is_committed else None
