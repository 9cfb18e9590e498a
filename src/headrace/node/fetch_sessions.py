"""Incremental fetch sessions (KIP-227): a client need not list the same partitions in each request.

A session stores the partitions that its client fetches, and what the client knows about each; an incremental
answer contains only partitions that have changed. The broker does not look at all of them either. A partition
that the client has read to its end is *quiet*: the session skips it until the partition wakes it. The others
are *busy*. So the cost of a fetch depends on the number of busy partitions, not on the size of the session.

Sessions are a cache: if it is full, it evicts a session that was idle for long, or else answers with session
0, after which the client sends full requests. The limit counts partitions of all sessions, because a client
may name any number that do not exist.
"""

from collections.abc import Iterator
from typing import Any

from headrace.base.limits import FETCH_SESSION_PARTITIONS_MAX
from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.node.authorization import Access
from headrace.node.waiting import Parked, Waitable, Waiter
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchRequest

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0

Key = tuple[str | bytes, int]


class SessionRefused(Exception):
    """The session id, the epoch, or the form of topic names or ids does not match the session."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class CachedPartition:
    """One partition of a session: what the client fetches, and what the client knows about it."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "source", "wanted")

    def __init__(self, key: Key, wanted: Any) -> None:
        self.key = key
        self.wanted = wanted  # the request's FetchPartition
        self.high_watermark = -1
        self.log_start_offset = -1
        self.source: Waitable | None = None  # the partition that wakes the session


class FetchSession(Waiter):
    """The partitions of a session wake it, whether one of its fetches waits or not. A partition wakes it
    once; then it is busy, and the next fetch reads it.
    """

    __slots__ = (
        "busy",
        "epoch",
        "fetches",
        "id",
        "is_evicted",
        "last_used",
        "partitions",
        "reader",
        "sources",
        "uses_ids",
    )

    def __init__(self, id: int, uses_ids: bool, last_used: Instant) -> None:
        self.is_done = False
        self.is_awake = False
        self.moved: dict[Waitable, None] = {}
        self.id = id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.last_used = last_used
        self.partitions: dict[Key, CachedPartition] = {}
        self.busy: dict[Key, CachedPartition] = {}  # those that are not quiet: a fetch looks at them
        self.sources: dict[Waitable, CachedPartition] = {}  # that wake it
        self.reader: Any = None  # for whom they are quiet
        self.fetches: dict[Parked, None] = {}  # that wait
        self.is_evicted = False

    def update(self, topics: Iterator[tuple[str | bytes, Any]], forgotten: Iterator[Key]) -> None:
        for topic, wanted in topics:
            key = (topic, wanted.partition)
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = CachedPartition(key, wanted)
            else:
                known.wanted = wanted
            self.busy[key] = known
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None:
                self.busy.pop(key, None)
                self._leave_source(gone)

    def read_by(self, reader: Any) -> None:
        """Notes how the session is read: a partition that is quiet at one isolation level may not be at
        another.
        """
        if reader != self.reader:
            self.reader = reader
            self.busy = dict(self.partitions)

    def wait_on(self, key: Key, partition: Waitable, wanted: Any, read: Any) -> None:
        """A fetch has read the partition, which wakes the session when it changes. `read` is the result if
        the fetch reached the end of what it wanted. The partition then becomes quiet, if the client knows its
        offsets and has not asked for something else since.
        """
        known = self.partitions.get(key)
        if known is None or (self.is_evicted and not self.fetches):
            return  # while the fetch was parked: nobody asks the session any more
        if known.source is not partition:
            self._leave_source(known)
            known.source = partition
            self.sources[partition] = known
            partition.waiters[self] = None
        if (
            read is not None
            and (known.wanted is wanted or known.wanted == wanted)
            and read.high_watermark == known.high_watermark
            and read.log_start_offset == known.log_start_offset
        ):
            self.busy.pop(key, None)

    def _leave_source(self, known: CachedPartition) -> None:
        source, known.source = known.source, None
        if source is not None:
            source.waiters.pop(self, None)
            self.sources.pop(source, None)
            self.moved.pop(source, None)

    def look_at_moved(self) -> None:
        """Makes the partitions busy that have changed."""
        moved, self.moved = self.moved, {}
        for source in moved:
            known = self.sources.get(source)
            if known is not None:
                self._leave_source(known)
                self.busy[known.key] = known

    def woken(self, now: Now) -> None:
        self.look_at_moved()
        mistakes: list[Exception] = []
        for parked in list(self.fetches):
            if not parked.is_done:
                try:
                    parked.woken(now)
                except Exception as mistake:  # of ours: nothing would wake the others once more
                    mistakes.append(mistake)
        if mistakes:
            raise mistakes[0]

    def fetch_ended(self, parked: Parked) -> None:
        self.fetches.pop(parked, None)
        if self.is_evicted:
            self.evict()

    def evict(self) -> None:
        """The session gets no more fetches. Those that wait are still woken."""
        self.is_evicted = True
        if not self.fetches:
            for known in self.partitions.values():
                self._leave_source(known)


class FetchPlan:
    """The partitions that one request reads: those that it names, or the busy ones of its session."""

    __slots__ = ("is_incremental", "session", "wanted")

    def __init__(
        self, session: FetchSession | None, wanted: list[tuple[str | bytes, Any]], is_incremental: bool
    ) -> None:
        self.session = session
        self.wanted = wanted
        self.is_incremental = is_incremental

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION

    @property
    def is_empty(self) -> bool:
        return self.session is None and not self.wanted

    def look_again(self) -> None:
        """The session was woken: other partitions may be busy now."""
        if self.session is not None and self.is_incremental:
            self.wanted = _busy(self.session)

    def has_news(self, topic: str | bytes, data: Any) -> bool:
        """Whether the answer has to contain the partition: in an incremental answer, if it differs from the
        last one.
        """
        if self.session is None or not self.is_incremental:
            return True
        known = self.session.partitions.get((topic, data.partition_index))
        return known is not None and (  # None: forgotten while the fetch was parked
            bool(data.records)
            or data.error_code != 0
            or data.high_watermark != known.high_watermark
            or data.log_start_offset != known.log_start_offset
            or data.diverging_epoch is not None
        )

    def tell(self, session: FetchSession, topic: str | bytes, data: Any) -> None:
        """Stores what the client knows about a partition after the answer."""
        key = (topic, data.partition_index)
        known = session.partitions.get(key)
        if known is None:
            return
        known.high_watermark = data.high_watermark
        known.log_start_offset = data.log_start_offset
        if data.error_code:
            known.high_watermark = -1  # an error is told again until it is over
        if data.records and key in session.busy:
            # who was served goes to the end, so that one with many records does not starve the others
            session.busy[key] = session.busy.pop(key)


def _busy(session: FetchSession) -> list[tuple[str | bytes, Any]]:
    return [(known.key[0], known.wanted) for known in session.busy.values()]


class FetchSessions:
    __slots__ = ("_by_id", "_eviction_seconds", "_partitions_max", "_remembered", "_rng", "_slots")

    def __init__(
        self,
        rng: Randomness,
        *,
        slots: int,
        eviction_ms: int = 120_000,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
    ) -> None:
        self._rng = rng
        self._slots = slots
        self._partitions_max = partitions_max
        self._remembered = 0  # partitions of all sessions
        self._eviction_seconds = eviction_ms / 1000
        self._by_id: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, session_id: int) -> FetchSession | None:
        return self._by_id.get(session_id)

    def go_on(self, now: Now, session: FetchSession) -> None:
        """The next request of a session has arrived."""
        self._by_id[session.id] = self._by_id.pop(session.id)
        session.last_used = now.mono
        session.epoch = 1 if session.epoch == 2**31 - 1 else session.epoch + 1

    def plan(
        self,
        now: Now,
        session_id: int,
        epoch: int,
        uses_ids: bool,
        wanted: list[tuple[str | bytes, Any]],
        forgotten: list[Key],
        reader: Any = None,
    ) -> FetchPlan:
        """`reader` says how the partitions are read, if that changes what there is to read."""
        if epoch == FINAL_EPOCH:
            self.forget(session_id)
            return FetchPlan(None, wanted, False)
        if epoch == INITIAL_EPOCH:
            self.forget(session_id)
            session = self._new_session(now, uses_ids, len(wanted)) if wanted else None
            if session is not None:
                session.reader = reader
                self._update(session, wanted, [])
            return FetchPlan(session, wanted, False)
        session = self._by_id.get(session_id)
        if session is None:
            raise SessionRefused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise SessionRefused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise SessionRefused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self.go_on(now, session)
        self._update(session, wanted, forgotten)
        if not session.partitions:
            self.forget(session_id)
            return FetchPlan(None, [], False)
        if self._remembered > self._partitions_max:
            self.forget(session_id)
            raise SessionRefused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)  # the client starts over without one
        session.look_at_moved()
        session.read_by(reader)
        return FetchPlan(session, _busy(session), True)

    def _update(self, session: FetchSession, wanted: list[tuple[str | bytes, Any]], gone: list[Key]) -> None:
        before = len(session.partitions)
        session.update(iter(wanted), iter(gone))
        self._remembered += len(session.partitions) - before

    def forget(self, session_id: int) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            self._remembered -= len(session.partitions)
            session.evict()

    def _new_session(self, now: Now, uses_ids: bool, size: int) -> FetchSession | None:
        while len(self._by_id) >= self._slots or self._remembered + size > self._partitions_max:
            if not self._by_id:
                return None
            oldest = next(iter(self._by_id.values()))
            if now.mono - oldest.last_used < self._eviction_seconds:
                return None
            self.forget(oldest.id)
        while (session_id := 1 + self._rng.randrange(2**31 - 1)) in self._by_id:
            pass
        session = FetchSession(session_id, uses_ids, now.mono)
        self._by_id[session_id] = session
        return session


def names_one(body: FetchRequest) -> bool:
    """Whether it names one partition, and nothing else."""
    return len(body.topics) == 1 and len(body.topics[0].partitions) == 1


def replica_id_of(body: FetchRequest) -> int:
    return body.replica_id if body.replica_state is None else body.replica_state.replica_id


# How far a session can read is decided by the isolation level, the kind of reader, and the rules.
Reader = tuple[int, int, object]


def reader_of(body: FetchRequest, access: Access) -> Reader:
    return body.isolation_level, replica_id_of(body), access.rights


def shrink(body: FetchRequest) -> None:
    """The plan holds what is needed of a fetch that waits; the rest are texts and lists of any length."""
    body.topics, body.forgotten_topics_data, body.rack_id, body.cluster_id = [], [], "", None
