"""Offsets that a consumer asks for: ListOffsets requests, and calls about offsets that finish later.

ListOffsets finds offsets by timestamp or at the ends, from each partition's leader, with retries. Lookups of
several callers share a request; a request names each partition once, as Kafka requires. The calls are
commits, committed offsets, ends of partitions, and offsets by time.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import BadResponse, ClientError, InvalidInput, KafkaError, TimedOut
from headrace.client.membership.events import CommitEnded, CommittedOffset, OffsetsFetched
from headrace.client.membership.group import Group
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.consumer import ConsumerSettings
from headrace.client.steps import Pending
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


class OffsetAndTimestamp(NamedTuple):
    """A record that was looked for by its time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


FoundOffsets = dict[TopicPartition, OffsetAndTimestamp | None]  # None: no record is that late
Done = Callable[[Instant, FoundOffsets, ClientError | None], None]


class _Search:
    __slots__ = ("deadline", "done", "error", "found", "is_called_for", "is_over", "left")

    def __init__(self, left: int, deadline: Instant, done: Done, *, is_called_for: bool) -> None:
        self.is_called_for = is_called_for  # the application waits for it
        self.left = left  # questions without an answer
        self.deadline = deadline
        self.done = done
        self.found: FoundOffsets = {}
        self.error: ClientError | None = None  # the last one
        self.is_over = False


class _Question:
    __slots__ = ("at", "failures", "is_asked", "retry_at", "search", "timestamp")

    def __init__(self, search: _Search, at: TopicPartition, timestamp: int) -> None:
        self.search = search
        self.at = at
        self.timestamp = timestamp
        self.is_asked = False
        self.retry_at = Instant(0.0)
        self.failures = 0


class ListOffsets:
    """Invariant: every search that is not over has `left` questions here, each of them asked or waiting."""

    def __init__(
        self, settings: ConsumerSettings, cluster: Cluster, request_queue: RequestQueue, rng: Randomness
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._request_queue = request_queue
        self._rng = rng
        self._questions: list[_Question] = []
        self._wake_at = NEVER
        self._is_due = False

    def find(
        self,
        now: Instant,
        wanted: Mapping[TopicPartition, int],
        timeout_s: float,
        done: Done,
        *,
        is_called_for: bool = False,
    ) -> None:
        """Timestamps by partition; those below zero have meanings of their own (EARLIEST, LATEST).

        `is_called_for`: the application waits for it, and not for what a poll would raise.
        """
        if not wanted:
            done(now, {}, None)
            return
        search = _Search(len(wanted), Instant(now + timeout_s), done, is_called_for=is_called_for)
        self._questions += [_Question(search, at, timestamp) for at, timestamp in wanted.items()]
        self._is_due = True

    def partitions(self) -> set[TopicPartition]:
        """Whose leaders have to be known."""
        return {question.at for question in self._questions}

    def hurry(self) -> None:
        """Leaders are known that were not."""
        self._is_due = True

    def cannot_ask(self, now: Instant, error: ClientError) -> None:
        """Brokers will not talk to us: no leader will be found."""
        for search in dict.fromkeys(question.search for question in self._questions):
            if search.is_called_for:
                self._end(now, search, error)

    def advance(self, now: Instant) -> None:
        if not self._questions or (not self._is_due and now < self._wake_at):
            return
        self._is_due = False
        self._wake_at = NEVER
        self._expire(now)
        loads: dict[int, dict[TopicPartition, _Question]] = {}
        for question in self._questions:
            self._wake_at = min(self._wake_at, question.search.deadline)
            leader = None if question.is_asked else self._leader(now, question)
            if leader is not None:  # another question about the same partition waits for the answer
                loads.setdefault(leader, {}).setdefault(question.at, question)
        for leader, load in loads.items():
            self._ask(leader, load)

    def deadline(self) -> Instant:
        if not self._questions:
            return NEVER
        return Instant(0.0) if self._is_due else self._wake_at

    def _expire(self, now: Instant) -> None:
        for search in dict.fromkeys(question.search for question in self._questions):
            if now >= search.deadline:
                self._end(now, search, search.error or TimedOut("the offsets were not found in time"))

    def _leader(self, now: Instant, question: _Question) -> int | None:
        leader = self._cluster.leader_of(question.at)
        if leader is None or question.at.topic in self._cluster.stale:
            self._cluster.mark_stale(question.at.topic)
            return None
        if now < question.retry_at:
            self._wake_at = min(self._wake_at, question.retry_at)
            return None
        return leader

    def _ask(self, leader: int, load: dict[TopicPartition, _Question]) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for at, question in load.items():
            question.is_asked = True
            known = self._cluster.topics[at.topic].partitions[at.partition]
            topics.setdefault(at.topic, ListOffsetsTopic(name=at.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=at.partition,
                    current_leader_epoch=known.leader_epoch,
                    timestamp=question.timestamp,
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._settings.isolation,
            topics=list(topics.values()),
            timeout_ms=round(self._settings.request_timeout_s * 1000),
        )
        self._request_queue.post(
            self._cluster.brokers[leader],
            request,
            partial(self._answered, load),
            timeout_s=self._settings.request_timeout_s,
        )

    def _answered(self, load: dict[TopicPartition, _Question], now: Instant, answer: Answer) -> None:
        self._is_due = True
        left = dict(load)
        for question in load.values():
            question.is_asked = False
        if isinstance(answer, ClientError):
            missing = answer
        else:
            assert isinstance(answer, ListOffsetsResponse)
            missing = BadResponse("the broker's answer leaves out partitions that it was asked for")
            for topic in answer.topics:
                for told in topic.partitions:
                    asked = left.pop(TopicPartition(topic.name, told.partition_index), None)
                    if asked is not None and not asked.search.is_over:
                        self._judge(now, asked, told)
        for question in left.values():
            if not question.search.is_over:
                self._set_back(now, question, missing)

    def _judge(self, now: Instant, question: _Question, told: ListOffsetsPartitionResponse) -> None:
        if told.error_code:
            self._set_back(now, question, KafkaError(told.error_code, subject=f"partition {question.at}"))
            return
        search = question.search
        found = OffsetAndTimestamp(told.offset, told.timestamp, told.leader_epoch)
        search.found[question.at] = found if told.offset >= 0 else None
        search.left -= 1
        self._questions.remove(question)
        if search.left == 0:
            self._end(now, search, None)

    def _set_back(self, now: Instant, question: _Question, error: ClientError) -> None:
        if not error.is_retriable:
            self._end(now, question.search, error)
            return
        question.search.error = error
        question.retry_at = Instant(now + self._settings.backoff(question.failures, self._rng))
        question.failures += 1
        self._cluster.mark_stale(question.at.topic)

    def _end(self, now: Instant, search: _Search, error: ClientError | None) -> None:
        search.is_over = True
        self._questions = [question for question in self._questions if question.search is not search]
        search.done(now, search.found, error)


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
            raise InvalidInput(f"set group.id {what}")
        return self._group

    def commit(
        self,
        now: Instant,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        timeout_s: float | None,
    ) -> Pending[Committed]:
        group = self.needed_group("to commit")
        wanted = {at: committed_offset(each) for at, each in offsets.items()}
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
                raise InvalidInput(f"timestamp {timestamp} for partition {at}: must be at least 0")
        pending: Pending[ByTime] = Pending("asking for offsets")

        def done(now: Instant, found: FoundOffsets, error: ClientError | None) -> None:
            pending.finish({at: found.get(at) for at in times}, error)

        self._list_offsets.find(now, times, timeout_s, done, is_called_for=True)
        return pending


def committed_offset(given: int | CommittedOffset) -> CommittedOffset:
    """With an offset alone nobody knows under which leader the record before it was written."""
    committed = CommittedOffset(given) if isinstance(given, int) else CommittedOffset(*given)
    check_offset(committed.offset)
    return committed


def check_offset(offset: int) -> None:
    if offset < 0:
        raise InvalidInput(f"offset {offset}: must be at least 0")


def check_partitions(partitions: Iterable[TopicPartition]) -> None:
    for at in partitions:
        if at.partition < 0:
            raise InvalidInput(f"there is no partition {at}")
