"""OffsetFetch requests: committed offsets of the group, with retries."""

from collections.abc import Callable, Iterable

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.backoff import backoff
from headrace.client.cluster import Address, TopicPartition
from headrace.client.coordinator import NOT_THE_ONE, Coordinator
from headrace.client.errors import ClientError, KafkaError, TimedOut
from headrace.client.membership.events import CommittedOffset, Identity, OffsetsFetched
from headrace.client.network.connection import ByVersion
from headrace.client.request_queue import Answer, RequestQueue
from headrace.client.settings.consumer import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NAMES_ONLY_VERSION = 9  # the last that names topics
GROUPS_SINCE = 8  # before, a request asks for one group
REQUIRE_STABLE_SINCE = 7

# The member has another epoch by now, or is about to hear of it.
_PASSING = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class _Lookup:
    __slots__ = ("deadline", "error", "failures", "is_under_way", "number", "partitions", "retry_at")

    def __init__(self, number: int, partitions: tuple[TopicPartition, ...], deadline: Instant) -> None:
        self.number = number
        self.partitions = partitions
        self.deadline = deadline
        self.is_under_way = False
        self.retry_at = Instant(0.0)
        self.failures = 0
        self.error: ClientError | None = None


class OffsetFetches:
    def __init__(
        self,
        settings: GroupSettings,
        request_queue: RequestQueue,
        coordinator: Coordinator,
        dice: Dice,
        *,
        identity: Callable[[], Identity | None],
        tell: Callable[[OffsetsFetched], None],
    ) -> None:
        """`identity` is None if the group does not check who asks, as classic groups do not."""
        self._settings = settings
        self._request_queue = request_queue
        self._coordinator = coordinator
        self._dice = dice
        self._identity = identity
        self._tell = tell
        self._lookups: list[_Lookup] = []
        coordinator.listeners.append(self._fail_all)

    def fetch(
        self, now: Instant, number: int, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> None:
        self._lookups.append(_Lookup(number, tuple(sorted(partitions)), Instant(now + timeout_s)))

    def advance(self, now: Instant) -> None:
        for lookup in list(self._lookups):
            if now >= lookup.deadline:
                self._end(lookup, {}, lookup.error or TimedOut("committed offsets were not read in time"))
            elif lookup.is_under_way:
                continue
            elif not lookup.partitions:
                self._end(lookup, {}, None)
            elif now >= lookup.retry_at and (to := self._coordinator.address()) is not None:
                self._ask(to, lookup)

    def deadline(self) -> Instant:
        earliest = NEVER
        for lookup in self._lookups:
            earliest = min(earliest, lookup.deadline)
            if not lookup.is_under_way and not self._coordinator.is_sought:
                earliest = min(earliest, lookup.retry_at)
        return earliest

    def _ask(self, to: Address, lookup: _Lookup) -> None:
        lookup.is_under_way = True
        group_id, identity = self._settings.group_id, self._identity()
        numbers: dict[str, list[int]] = {}
        for at in lookup.partitions:
            numbers.setdefault(at.topic, []).append(at.partition)

        def make(version: int) -> OffsetFetchRequest:
            if version < GROUPS_SINCE:
                topics = [
                    OffsetFetchRequestTopic(name=topic, partition_indexes=each)
                    for topic, each in numbers.items()
                ]
                request = OffsetFetchRequest(group_id=group_id, topics=topics)
            else:
                group = OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=[
                        OffsetFetchRequestTopics(name=topic, partition_indexes=each)
                        for topic, each in numbers.items()
                    ],
                )
                if identity is not None:
                    group.member_id, group.member_epoch = identity.member_id, identity.epoch
                request = OffsetFetchRequest(groups=[group])
            request.require_stable = self._settings.require_stable and version >= REQUIRE_STABLE_SINCE
            return request

        def then(now: Instant, answer: Answer) -> None:
            lookup.is_under_way = False
            if lookup in self._lookups:
                self._answered(now, to, lookup, answer)

        self._request_queue.post(
            to,
            ByVersion(OffsetFetchRequest, make),
            then,
            timeout_s=self._settings.request_timeout_s,
            version_max=NAMES_ONLY_VERSION,
        )

    def _answered(self, now: Instant, to: Address, lookup: _Lookup, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self._coordinator.failed(to)
            self._setback(now, lookup, answer)
            return
        assert isinstance(answer, OffsetFetchResponse)
        told = answer.groups[0] if answer.groups else answer
        if told.error_code:
            if told.error_code in NOT_THE_ONE:
                self._coordinator.failed(to)
            self._setback(now, lookup, self._error(told.error_code))
            return
        found: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(lookup.partitions)
        for topic in told.topics:
            for each in topic.partitions:
                at = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    self._setback(now, lookup, self._error(each.error_code, f"partition {at}"))
                    return
                if each.committed_offset >= 0:
                    found[at] = CommittedOffset(
                        each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                    )
        self._end(lookup, found, None)

    def _setback(self, now: Instant, lookup: _Lookup, error: ClientError) -> None:
        if not _may_pass(error):
            self._end(lookup, {}, error)
            return
        lookup.error = error
        lookup.retry_at = Instant(now + backoff(lookup.failures, self._dice))
        lookup.failures += 1

    def _end(
        self,
        lookup: _Lookup,
        found: dict[TopicPartition, CommittedOffset | None],
        error: ClientError | None,
    ) -> None:
        self._lookups.remove(lookup)
        self._tell(OffsetsFetched(lookup.number, found, error))

    def _fail_all(self, now: Instant, error: ClientError) -> None:
        """The search for the coordinator has ended for good."""
        for lookup in list(self._lookups):
            if not lookup.is_under_way:
                self._end(lookup, {}, error)

    def _error(self, code: int, what: str = "") -> KafkaError:
        subject = f"group {self._settings.group_id!r}"
        return KafkaError(code, subject=f"{subject}, {what}" if what else subject)


def _may_pass(error: ClientError) -> bool:
    if isinstance(error, KafkaError):
        return error.code in _PASSING or (error.is_retriable and not error.is_unknown_topic)
    return error.is_retriable
