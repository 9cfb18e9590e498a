"""Feeds: what this broker's partitions have for the followers on other brokers.

A follower and its leader share a fetch session. The feed stores the follower's offset in each partition of
the session, and a list of partitions that have something new. An append puts its partition on the lists of
its followers, and a waiting fetch is answered at the end of the same call: the cost depends on the number of
partitions that have changed, not on the number that are followed. Records that were sent and are not
confirmed yet are not sent again: the follower names the partition in a request when it has appended them.

A request that arrives while an earlier one waits ends that wait: the follower has something to report. Only
registered brokers are followers, in the broker epoch of their present run.
"""

from collections.abc import Callable
from typing import Any

from headrace.base.ids import BrokerId
from headrace.base.limits import FETCH_WAIT_MS_MAX
from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.machines.replication.leader import LogDamaged, ReplicaFetched
from headrace.machines.replication.lineage import find_replica_divergence
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Ports
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.storage.disk import Span
from headrace.storage.errors import OffsetOutOfRange
from headrace.storage.log import PartitionLog

# A follower that asks so often for records that it got already has refused them.
REPEATS_SUSPECT = 2

INITIAL_EPOCH = 0
NO_SESSION = 0

Key = tuple[bytes, int]  # topic id and partition


class FeedEntry:
    """One partition in the session of one follower."""

    __slots__ = (
        "_feed",
        "fetch_offset",
        "index",
        "is_ahead",
        "is_left_out",
        "last_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "repeats",
        "topic_id",
    )

    def __init__(self, feed: "ReplicaFeed", topic_id: bytes, index: int) -> None:
        self._feed = feed
        self.topic_id = topic_id
        self.index = index
        self.partition: Partition | None = None  # None: it is not led here, or in another epoch
        self.leader_epoch = -1  # as the follower knows it
        self.fetch_offset = 0
        self.last_epoch = -1
        self.log_start_offset = -1
        self.max_bytes = 0
        self.is_ahead = False  # records were sent which the follower has not confirmed
        self.is_left_out = False  # its next batch did not fit into the last answer
        self.repeats = 0  # how often it has asked for the same records again

    @property
    def replica(self) -> BrokerId:
        return self._feed.replica

    def name(self, wanted: FetchPartition) -> None:
        """The follower names the partition in a request, with its offset."""
        is_repeated = self.is_ahead and wanted.fetch_offset == self.fetch_offset
        self.repeats = self.repeats + 1 if is_repeated else 0
        self.leader_epoch = wanted.current_leader_epoch
        self.fetch_offset = wanted.fetch_offset
        self.last_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes
        self.is_ahead = False

    def join(self, partition: Partition) -> None:
        if self.partition is not partition:
            self.leave()
            self.partition = partition
            partition.feeds.append(self)

    def leave(self) -> None:
        partition, self.partition = self.partition, None
        if partition is not None and self in partition.feeds:
            partition.feeds.remove(self)

    # --- what the partition tells ------------------------------------------------------------------------

    def records_appended(self) -> None:
        if not self.is_ahead:
            self._feed.has_news(self)

    def high_watermark_raised(self) -> None:
        self._feed.has_update(self)

    def log_start_moved(self) -> None:
        self._feed.has_news(self)

    def leader_changed(self, now: Now) -> None:
        self.partition = None
        self._feed.has_news(self)


class ReplicaFeed:
    """The session of one follower."""

    __slots__ = ("_entries", "_news", "_updates", "_waiting", "epoch", "parked", "replica", "session_id")

    def __init__(self, replica: BrokerId, session_id: int, waiting: Waiting) -> None:
        self.replica = replica
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH + 1  # of the next request
        self._waiting = waiting
        self._entries: dict[Key, FeedEntry] = {}
        self._news: dict[FeedEntry, None] = {}  # to be told at once
        self._updates: dict[FeedEntry, None] = {}  # to be told with the next answer
        self.parked: ParkedFeed | None = None

    @property
    def is_worth_an_answer(self) -> bool:
        return bool(self._news)

    def has_news(self, entry: FeedEntry) -> None:
        self._news[entry] = None
        if self.parked is not None:
            self._waiting.wake_one(self.parked)

    def has_update(self, entry: FeedEntry) -> None:
        self._updates[entry] = None

    def entry(self, key: Key) -> FeedEntry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = FeedEntry(self, *key)
        return entry

    def forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.leave()
            self._news.pop(entry, None)
            self._updates.pop(entry, None)

    def close(self) -> None:
        for entry in self._entries.values():
            entry.leave()
        self._entries.clear()
        self._news.clear()
        self._updates.clear()

    # --- answers -----------------------------------------------------------------------------------------

    def response(self, now: Now, bytes_max: int) -> FetchResponse:
        """Everything that is new since the last response, as far as it fits; the rest stays on the list."""
        topics: dict[bytes, FetchableTopicResponse] = {}
        left = bytes_max
        is_first = True
        waiting, self._news = self._news, {}
        for entry in waiting:
            if left <= 0 and not is_first:
                self._news[entry] = None
                continue
            data = answer_for(now, entry, left, at_least_one=is_first)
            size = data.records.size if isinstance(data.records, Span) else 0
            left -= size
            is_first = is_first and not size
            if entry.is_left_out:
                self._news[entry] = None  # nobody else would speak of it before the next append
            self._updates.pop(entry, None)
            add(topics, entry, data)
        for entry in self._updates:
            if entry not in self._news:
                add(topics, entry, answer_for(now, entry, 0, at_least_one=False))
        self._updates.clear()
        return FetchResponse(session_id=self.session_id, responses=list(topics.values()))


def add(topics: dict[bytes, FetchableTopicResponse], entry: FeedEntry, data: PartitionData) -> None:
    topic = topics.get(entry.topic_id)
    if topic is None:
        topic = topics[entry.topic_id] = FetchableTopicResponse(topic_id=entry.topic_id, partitions=[])
    topic.partitions.append(data)


def answer_for(now: Now, entry: FeedEntry, bytes_max: int, *, at_least_one: bool) -> PartitionData:
    entry.is_left_out = False
    partition = entry.partition
    data = PartitionData(
        partition_index=entry.index, high_watermark=-1, aborted_transactions=None, records=b""
    )
    leader = partition.leader if partition is not None else None
    if partition is None or leader is None:
        data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return data
    fault = partition.leadership_fault(entry.leader_epoch)
    if fault is not None:
        data.error_code = fault
        return data
    try:
        log = partition.log or partition.opened(now)
        data.high_watermark = leader.high_watermark
        data.log_start_offset = start = log.kept_start()
        if entry.last_epoch >= 0:
            divergence = find_replica_divergence(log, start, entry.last_epoch, entry.fetch_offset)
            if divergence is not None:
                data.diverging_epoch = EpochEndOffset(
                    epoch=divergence.epoch, end_offset=divergence.end_offset
                )
                return data
        if entry.is_ahead or (bytes_max <= 0 and not at_least_one):
            return data
        span = log.read(
            entry.fetch_offset,
            max_bytes=min(entry.max_bytes, bytes_max),
            limit_offset=log.log_end_offset,
            at_least_one=at_least_one,
        )
        if span is not None:
            data.records = span
            entry.is_ahead = True
        else:
            entry.is_left_out = not at_least_one and entry.fetch_offset < log.log_end_offset
    except OffsetOutOfRange as fault_of_offset:
        data.error_code = code_of(fault_of_offset)
        data.log_start_offset = fault_of_offset.start  # where the follower begins again
    except FAULTS as fault_of_disk:
        data.error_code = code_of(fault_of_disk)
    return data


class ReplicaFeeds:
    def __init__(
        self,
        broker_id: int,
        partitions: Partitions,
        metadata: MetadataLog,
        access: Access,
        rng: Randomness,
        ports: Ports,
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._metadata = metadata
        self._access = access
        self._rng = rng
        self._waiting = ports.waiting
        self._reports = ports.reports
        self._feeds: dict[BrokerId, ReplicaFeed] = {}

    def is_follower(self, request: Request) -> bool:
        """Whether the request comes from a broker's present run, as far as anybody can tell: a client that
        calls itself a replica would read what is not committed (CVE-2018-1288).
        """
        state = request.body.replica_state
        if state is None or state.replica_id == self._broker_id:
            return False
        known = self._metadata.image.brokers.get(state.replica_id)
        if known is None or state.replica_epoch < known.epoch:
            return False
        return self._may_follow(request)

    def _may_follow(self, request: Request) -> bool:
        return self._access.shows(request, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)

    def handle(self, request: Request) -> FetchResponse | Parked:
        """A fetch of a follower."""
        body: FetchRequest = request.body
        now = request.now
        assert body.replica_state is not None
        replica = BrokerId(body.replica_state.replica_id)
        feed = self._feed_of(now, replica, body)
        if isinstance(feed, ErrorCode):
            return FetchResponse(error_code=feed, session_id=NO_SESSION)
        for gone in body.forgotten_topics_data:
            for index in gone.partitions:
                feed.forget((bytes(gone.topic_id), index))
        for topic in body.topics:
            for wanted in topic.partitions:
                self._take(now, feed, body.replica_state.replica_epoch, bytes(topic.topic_id), wanted)
        is_first = body.session_epoch == INITIAL_EPOCH
        if is_first or body.max_wait_ms <= 0 or feed.is_worth_an_answer or not self._waiting.has_room:
            return feed.response(now, body.max_bytes)
        rights = self._access.rights

        def is_follower_still() -> bool:
            return self._access.rights is rights or self._may_follow(request)

        feed.parked = ParkedFeed(self._waiting, request, feed, is_follower_still)
        return feed.parked

    def _feed_of(self, now: Now, replica: BrokerId, body: FetchRequest) -> ReplicaFeed | ErrorCode:
        feed = self._feeds.get(replica)
        if feed is not None and feed.parked is not None:
            feed.parked.end(now)
        if body.session_epoch == INITIAL_EPOCH:
            if feed is not None:
                feed.close()
            session_id = 1 + self._rng.randrange(2**31 - 1)
            feed = self._feeds[replica] = ReplicaFeed(replica, session_id, self._waiting)
            return feed
        if feed is None or feed.session_id != body.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if body.session_epoch != feed.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        feed.epoch += 1
        return feed

    def _take(
        self, now: Now, feed: ReplicaFeed, broker_epoch: int, topic_id: bytes, wanted: FetchPartition
    ) -> None:
        """The follower tells how far it has come in one partition."""
        entry = feed.entry((topic_id, wanted.partition))
        entry.name(wanted)
        topic = self._partitions.of_id(topic_id)
        partition = topic.replicas.get(wanted.partition) if topic is not None else None
        if (
            partition is None
            or partition.leader is None
            or partition.leadership_fault(wanted.current_leader_epoch) is not None
            or feed.replica not in partition.replicas
        ):
            entry.leave()
            feed.has_news(entry)
            return
        entry.join(partition)
        try:
            log = partition.log or partition.opened(now)
            diverges = wanted.last_fetched_epoch >= 0 and (
                find_replica_divergence(log, log.kept_start(), wanted.last_fetched_epoch, wanted.fetch_offset)
                is not None
            )
        except FAULTS:
            feed.has_news(entry)
            return
        if diverges or not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            feed.has_news(entry)
            return
        fetched = ReplicaFetched(
            feed.replica,
            broker_epoch,
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            log_start=wanted.log_start_offset,
        )
        partition.carry_out(now, partition.leader.step(now.mono, fetched))
        partition.replica_told(feed.replica, wanted.log_start_offset)
        if wanted.fetch_offset < log.log_end_offset:
            feed.has_news(entry)
            if entry.repeats >= REPEATS_SUSPECT:
                self._look_for_damage(now, partition, log, wanted.fetch_offset)
        else:
            feed.has_update(entry)  # it may not know the high watermark

    def _look_for_damage(self, now: Now, partition: Partition, log: PartitionLog, offset: int) -> None:
        """A follower does not take what it gets: if it cannot be read here, others should lead."""
        try:
            damage = log.check_batch_at(offset)
        except FAULTS:
            return
        if damage is not None and partition.leader is not None:
            self._reports.damage(f"{partition.directory}/{partition.topic}-{partition.index}", damage)
            partition.carry_out(now, partition.leader.step(now.mono, LogDamaged()))


class ParkedFeed(Parked):
    """A follower's fetch that waits until one of its partitions has something new."""

    __slots__ = ("_at", "_bytes_max", "_feed", "_is_follower_still")

    def __init__(
        self, waiting: Waiting, request: Request, feed: ReplicaFeed, is_follower_still: Callable[[], bool]
    ) -> None:
        """`is_follower_still`: whether the client has the right to be one, which it had when it came."""
        super().__init__(waiting, request)
        body: FetchRequest = request.body
        self._feed = feed
        self._is_follower_still = is_follower_still
        self._at = request.now.after_ms(min(body.max_wait_ms, FETCH_WAIT_MS_MAX))
        self._bytes_max = body.max_bytes
        request.body = None

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        feed = self._feed
        if not is_expired and not feed.is_worth_an_answer:
            return None
        feed.parked = None
        if not self._is_follower_still():
            # it starts over, and is refused then
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session_id=NO_SESSION)
        return feed.response(now, self._bytes_max)

    def end(self, now: Now) -> None:
        """The follower has sent another request."""
        self.waiting.answer(now, self, self.reply(now, is_expired=True))

    def forget(self) -> None:
        super().forget()
        if self._feed.parked is self:  # its connection is closed
            self._feed.parked = None
