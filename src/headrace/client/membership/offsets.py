"""Committed offsets of a group: OffsetCommit and OffsetFetch requests, with retries, and automatic commits.

Commits go one request at a time, in the order of the calls. What waits travels together: a request carries
the newest offset of each partition, and ends all the commits it carried, in their order. A commit that has to
be tried again holds back those behind it, so that no older offset is ever written over a newer one.

A commit goes out in the name that the member has at that moment. One whose partitions were given up since is
good only in the name it was asked under: in a later generation it would overwrite what the new owner has
committed.
"""

from collections.abc import Callable, Iterable, Mapping

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.backoff import backoff
from headrace.client.cluster import Address, TopicPartition
from headrace.client.coordinator import NOT_THE_ONE, Coordinator
from headrace.client.errors import ClientError, KafkaError, TimedOut
from headrace.client.membership.events import AutoCommitFailed, CommittedOffset, Identity, OffsetsFetched
from headrace.client.network.connection import ByVersion
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.consumer import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

Offsets = Mapping[TopicPartition, CommittedOffset]
Done = Callable[[Instant, ClientError | None], None]

NAMES_ONLY_VERSION = 9  # of both requests the last that names topics: an application commits by name
GROUPS_SINCE = 8  # before, an OffsetFetch asks for one group
REQUIRE_STABLE_SINCE = 7

# The group is between two generations, or our name has changed while the commit was under way.
_PASSING_FOR_COMMITS = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH)
# The member has another epoch by now, or is about to hear of it.
_PASSING_FOR_FETCHES = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


def _group_error(group_id: str, code: int, what: str = "") -> KafkaError:
    subject = f"group {group_id!r}"
    return KafkaError(code, subject=f"{subject}, {what}" if what else subject)


class _Commit:
    __slots__ = ("deadline", "done", "error", "identity", "is_given_up", "offsets")

    def __init__(self, offsets: Offsets, deadline: Instant, identity: Identity | None, done: Done) -> None:
        self.offsets = offsets
        self.deadline = deadline
        self.identity = identity  # under which it was asked for
        self.done = done
        self.is_given_up = False  # whether partitions of it were, since
        self.error: ClientError | None = None  # of the last try

    def may_go_as(self, identity: Identity | None) -> bool:
        return not self.is_given_up or self.identity == identity


class Commits:
    """Invariant: `_flying`, which the request under way carries and somebody still waits for, came before all
    of `_waiting`.
    """

    def __init__(
        self,
        settings: GroupSettings,
        request_queue: RequestQueue,
        coordinator: Coordinator,
        rng: Randomness,
        *,
        identity: Callable[[], Identity | None],
        may_commit: Callable[[TopicPartition], bool],
        refused: Callable[[int], None],
    ) -> None:
        """`identity` is None while the member has no generation: commits wait for the next. `may_commit` says
        whether a partition is ours, and `refused` hears of error codes that answered a commit in the member's
        present name.
        """
        self._settings = settings
        self._request_queue = request_queue
        self._coordinator = coordinator
        self._rng = rng
        self._identity = identity
        self._may_commit = may_commit
        self._refused = refused
        self._waiting: list[_Commit] = []
        self._flying: list[_Commit] = []
        self._is_under_way = False
        self._retry_at = Instant(0.0)
        self._failures = 0
        coordinator.listeners.append(self._fail_all)

    def commit(self, now: Instant, offsets: Offsets, timeout_s: float, done: Done) -> None:
        """A commit of nothing ends when those before it have."""
        if not offsets and self.is_idle:
            done(now, None)
            return
        foreign = next((at for at in offsets if not self._may_commit(at)), None)
        if foreign is not None:
            # perhaps it was ours a moment ago: its new owner's commits must not be overwritten
            done(
                now,
                _group_error(
                    self._settings.group_id,
                    ErrorCode.ILLEGAL_GENERATION,
                    f"partition {foreign} is not assigned to this member",
                ),
            )
            return
        deadline = Instant(now + timeout_s)
        self._waiting.append(_Commit(dict(offsets), deadline, self._identity(), done))

    @property
    def is_idle(self) -> bool:
        """Whether every commit has ended."""
        return not self._waiting and not self._flying

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are no longer owned."""
        gone = frozenset(partitions)
        for commit in (*self._flying, *self._waiting):
            if not gone.isdisjoint(commit.offsets):
                commit.is_given_up = True

    # --- time ----------------------------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        identity = self._identity()
        self._drop(now, identity)
        while self._waiting and not self._waiting[0].offsets and not self._is_under_way:
            self._waiting.pop(0).done(now, None)
        if self._is_under_way or not self._waiting or now < self._retry_at or identity is None:
            return
        to = self._coordinator.address()
        if to is None:
            return
        self._is_under_way = True
        self._flying, self._waiting = self._waiting, []

        def then(now: Instant, answer: Answer) -> None:
            self._answered(now, to, identity, answer)

        self._request_queue.post(
            to,
            self._question(identity),
            then,
            timeout_s=self._settings.request_timeout_s,
            version_max=NAMES_ONLY_VERSION,
        )

    def deadline(self) -> Instant:
        expiry = min((commit.deadline for commit in (*self._flying, *self._waiting)), default=NEVER)
        can_go = not self._is_under_way and not self._coordinator.is_sought and self._identity() is not None
        return min(expiry, self._retry_at) if self._waiting and can_go else expiry

    def _drop(self, now: Instant, identity: Identity | None) -> None:
        """Ends what waits in vain; nobody has to wait for those before it to hear that."""
        late = [commit for commit in (*self._flying, *self._waiting) if now >= commit.deadline]
        refused = [commit for commit in self._waiting if not commit.may_go_as(identity)]
        if not late and not refused:
            return
        self._flying = [commit for commit in self._flying if commit not in late]
        self._waiting = [commit for commit in self._waiting if commit not in late and commit not in refused]
        for commit in refused:
            commit.done(
                now, commit.error or _group_error(self._settings.group_id, ErrorCode.ILLEGAL_GENERATION)
            )
        for commit in late:
            if commit not in refused:
                commit.done(now, commit.error or TimedOut("the offsets were not committed in time"))

    # --- requests and answers ------------------------------------------------------------------------------

    def _question(self, identity: Identity) -> OffsetCommitRequest:
        newest: dict[TopicPartition, CommittedOffset] = {}
        for commit in self._flying:
            newest.update(commit.offsets)
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for at, committed in sorted(newest.items()):
            topic = topics.setdefault(at.topic, OffsetCommitRequestTopic(name=at.topic))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=at.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=self._settings.group_id,
            generation_id_or_member_epoch=identity.epoch,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=list(topics.values()),
        )

    def _answered(self, now: Instant, to: Address, identity: Identity, answer: Answer) -> None:
        self._is_under_way = False
        if isinstance(answer, ClientError):
            self._coordinator.failed(to)
            errors: dict[TopicPartition, ClientError] = {
                at: answer for commit in self._flying for at in commit.offsets
            }
        else:
            assert isinstance(answer, OffsetCommitResponse)
            errors = self._errors(to, identity, answer)  # may tell the member that all is lost
        flying, self._flying = self._flying, []
        ended: list[_Commit] = []
        for commit in flying:
            commit.error = next((errors[at] for at in commit.offsets if at in errors), None)
            if commit.error is not None and self._passes(commit, commit.error, identity):
                # those behind it come along once more, even if they were written: callbacks keep their order
                self._retry_at = Instant(now + backoff(self._failures, self._rng))
                self._failures += 1
                break
            ended.append(commit)
        else:
            self._failures = 0
        self._waiting = flying[len(ended) :] + self._waiting
        for commit in ended:
            commit.done(now, commit.error)

    def _errors(
        self, to: Address, identity: Identity, answer: OffsetCommitResponse
    ) -> dict[TopicPartition, ClientError]:
        errors: dict[TopicPartition, ClientError] = {}
        codes: set[int] = set()
        for topic in answer.topics:
            for told in topic.partitions:
                if told.error_code:
                    at = TopicPartition(topic.name, told.partition_index)
                    errors[at] = _group_error(self._settings.group_id, told.error_code, f"partition {at}")
                    codes.add(told.error_code)
        if codes & NOT_THE_ONE:
            self._coordinator.failed(to)
        if identity == self._identity():
            for code in sorted(codes):
                self._refused(code)
        return errors

    def _passes(self, commit: _Commit, error: ClientError, identity: Identity) -> bool:
        """Whether the same commit may succeed later, perhaps in another name."""
        if not commit.may_go_as(self._identity()):
            return False
        if error.is_retriable:
            return True
        if not isinstance(error, KafkaError):
            return False
        if error.code in _PASSING_FOR_COMMITS:
            return True
        was_renamed = identity != self._identity()
        return was_renamed and error.code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)

    def _fail_all(self, now: Instant, error: ClientError) -> None:
        """Fails all, because the lookup of the coordinator has failed permanently."""
        waiting, self._waiting = self._waiting, []
        for commit in waiting:
            commit.done(now, error)


class AutoCommit:
    """Invariant: `_unsaved` is how far we read where `_saved`, the last commit, says something else."""

    def __init__(
        self,
        commits: Commits,
        tell: Callable[[AutoCommitFailed], None],
        *,
        interval_s: float,
        timeout_s: float,
    ) -> None:
        self._commits = commits
        self._tell = tell
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._unsaved: dict[TopicPartition, CommittedOffset] = {}
        self._saved: dict[TopicPartition, CommittedOffset] = {}
        self._is_under_way = False
        self._due_at = NEVER

    def consumed(self, now: Instant, positions: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The application has processed the records before these positions."""
        for at, position in positions.items():
            if self._saved.get(at) == position:
                self._unsaved.pop(at, None)
            else:
                self._unsaved[at] = position
        if self._unsaved and self._due_at == NEVER:
            self._due_at = Instant(now + self._interval_s)

    @property
    def unsaved(self) -> dict[TopicPartition, CommittedOffset]:
        return dict(self._unsaved)

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self._unsaved.pop(at, None)
            self._saved.pop(at, None)

    def advance(self, now: Instant) -> None:
        if self._is_under_way or now < self._due_at:
            return
        self._is_under_way = True
        self._due_at = NEVER
        self._save(now, dict(self._unsaved), self._ended)

    def _ended(self, now: Instant) -> None:
        self._is_under_way = False
        self._due_at = Instant(now + self._interval_s) if self._unsaved else NEVER

    def deadline(self) -> Instant:
        return NEVER if self._is_under_way else self._due_at

    def save(
        self, now: Instant, partitions: Iterable[TopicPartition], then: Callable[[Instant], None]
    ) -> None:
        """Commits what is unsaved of these now; `then` follows, however that ends."""
        self._save(now, {at: self._unsaved[at] for at in partitions if at in self._unsaved}, then)

    def _save(self, now: Instant, offsets: Offsets, then: Callable[[Instant], None]) -> None:
        def done(now: Instant, error: ClientError | None) -> None:
            if error is not None and offsets:
                self._tell(AutoCommitFailed(offsets, error))
            else:
                self._saved.update(offsets)
                for at, committed in offsets.items():
                    if self._unsaved.get(at) == committed:
                        del self._unsaved[at]
            then(now)

        self._commits.commit(now, offsets, self._timeout_s, done)


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
        rng: Randomness,
        *,
        identity: Callable[[], Identity | None],
        tell: Callable[[OffsetsFetched], None],
    ) -> None:
        """`identity` is None if the group does not check who asks, as classic groups do not."""
        self._settings = settings
        self._request_queue = request_queue
        self._coordinator = coordinator
        self._rng = rng
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
                self._end(lookup, {}, _late(lookup.error))
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
            self._setback(now, lookup, _group_error(self._settings.group_id, told.error_code))
            return
        found: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(lookup.partitions)
        for topic in told.topics:
            for each in topic.partitions:
                at = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    self._setback(
                        now, lookup, _group_error(self._settings.group_id, each.error_code, f"partition {at}")
                    )
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
        lookup.retry_at = Instant(now + backoff(lookup.failures, self._rng))
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
        """Fails all, because the lookup of the coordinator has failed permanently."""
        for lookup in list(self._lookups):
            if not lookup.is_under_way:
                self._end(lookup, {}, error)


def _late(error: ClientError | None) -> ClientError:
    """Why a lookup was not answered in time. An error that was expected to pass is only the cause: whoever
    asks again, as a consumer does, is to take it for passing, too.
    """
    if error is not None and error.is_retriable:
        return error
    late = TimedOut("committed offsets were not read in time")
    late.__cause__ = error
    return late


def _may_pass(error: ClientError) -> bool:
    if isinstance(error, KafkaError):
        return error.code in _PASSING_FOR_FETCHES or (error.is_retriable and not error.is_unknown_topic)
    return error.is_retriable
