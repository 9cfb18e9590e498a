"""Reader of the assigned partitions: positions, fetching ahead, and returning records.

Several machines, each with one purpose, work on the same positions; the reader drives them for the
application. Other code decides which partitions are assigned, and calls `_add`, `_remove` and `_stop`.

`ConsumerTopics` are its topics in the metadata cache. The application hears once of a topic that it may not
read, and of every failure that no retry would mend.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, Partition, TopicPartition
from headrace.client.consumer.fetch_buffer import FetchBuffer
from headrace.client.consumer.fetcher import Fetcher
from headrace.client.consumer.offset_reset import FetchCommitted, OffsetReset, PositionValidation
from headrace.client.consumer.offsets import Committed, ListOffsets, check_offset
from headrace.client.consumer.position import NO_EPOCH, NO_OFFSET, ConsumerEvent, Position
from headrace.client.errors import ClientError, InvalidInput, KafkaError, TimedOut
from headrace.client.metadata import Metadata, Refusals, Update
from headrace.client.network.reachability import Reachability
from headrace.client.session import RequestQueue
from headrace.client.settings.consumer import (
    READ_COMMITTED,
    TO_EARLIEST,
    TO_LATEST,
    ConsumerSettings,
    Reset,
)
from headrace.client.steps import Pending
from headrace.records._columns import Columns
from headrace.records._messages import Message

UNKNOWN_TIMES_MAX = 2  # the first request may have made the broker create the topic


class _Listing:
    __slots__ = ("deadline", "error", "pending", "topic", "unknown_times")

    def __init__(self, topic: str, deadline: Instant) -> None:
        self.topic = topic
        self.deadline = deadline
        self.pending: Pending[list[Partition]] = Pending(f"listing the partitions of topic {topic!r}")
        self.unknown_times = 0
        self.error: ClientError | None = None


class ConsumerTopics:
    def __init__(
        self,
        metadata: Metadata,
        *,
        wanted: Callable[[], Collection[TopicPartition]],
        updated: Callable[[], None],
        fail: Callable[[ClientError], None],
        cannot_ask: Callable[[Instant, ClientError], None],
    ) -> None:
        """`wanted` gives the partitions whose leaders are needed. `updated` is called after every answer,
        `fail` with an error that no retry would mend, and `cannot_ask` if such an error came instead of an
        answer.
        """
        self._metadata = metadata
        self._wanted = wanted
        self._updated = updated
        self._fail = fail
        self._cannot_ask = cannot_ask
        self._listings: list[_Listing] = []
        self._refusals = Refusals()
        metadata.subscribe(self)

    @property
    def _cluster(self) -> Cluster:
        return self._metadata.cluster

    def list_partitions(self, now: Instant, topic: str, timeout_s: float) -> Pending[list[Partition]]:
        listing = _Listing(topic, Instant(now + timeout_s))
        known = self._cluster.topics.get(topic)
        if known is not None and topic not in self._cluster.stale:
            listing.pending.finish(list(known.partitions))
        else:
            self._listings.append(listing)
            self._metadata.want(topic)
        return listing.pending

    def want(self, topic: str) -> None:
        """A partition of the topic is going to be read."""
        self._metadata.want(topic)

    def advance(self, now: Instant) -> None:
        for listing in list(self._listings):
            if now >= listing.deadline:
                self._listings.remove(listing)
                late = TimedOut(f"timed out while {listing.pending.what}")
                listing.pending.finish(error=listing.error or late)
        self._metadata.advance(now)

    def deadline(self) -> Instant:
        earliest = min((listing.deadline for listing in self._listings), default=NEVER)
        return min(earliest, self._metadata.deadline())

    # --- what the cache calls ------------------------------------------------------------------------------

    def wanted_topics(self) -> Collection[str]:
        return {at.topic for at in self._wanted()} | {listing.topic for listing in self._listings}

    def metadata_updated(self, now: Instant, update: Update) -> Iterable[str]:
        for error in self._refusals.new(update, {at.topic for at in self._wanted()}).values():
            self._fail(error)
        for listing in list(self._listings):
            self._answer(listing, update.errors.get(listing.topic))
        self._updated()
        missing = {at.topic for at in self._wanted() if self._cluster.leader_of(at) is None}
        return missing | {listing.topic for listing in self._listings}

    def _answer(self, listing: _Listing, error: KafkaError | None) -> None:
        known = self._cluster.topics.get(listing.topic)
        if error is not None:
            listing.error = error
            listing.unknown_times += error.is_unknown_topic
            if error.is_retriable and listing.unknown_times < UNKNOWN_TIMES_MAX:
                return
        elif known is None:
            return  # the answer was about other topics
        self._listings.remove(listing)
        listing.pending.finish(None if known is None else list(known.partitions), error)

    def metadata_failed(self, now: Instant, error: ClientError) -> None:
        for listing in self._listings:
            listing.error = error
        if not error.is_retriable:
            listings, self._listings = self._listings, []
            for listing in listings:
                listing.pending.finish(error=error)
            self._cannot_ask(now, error)
            self._fail(error)


ERRORS_MAX = 10  # that wait to be raised


class ConsumerMetrics(NamedTuple):
    records: int  # handed out
    bytes: int  # of the batches that fetches brought, as they were on the wire
    fetches: int  # answered
    buffered_bytes: int  # fetched and not handed out
    lag: Mapping[TopicPartition, int]  # where it is known


class PartitionReader:
    """Invariant: all buffered records are of partitions in `_positions`, and after these positions."""

    def __init__(
        self,
        settings: ConsumerSettings,
        request_queue: RequestQueue,
        metadata: Metadata,
        rng: Randomness,
        *,
        wall_ms: Callable[[], int],
        look_up: FetchCommitted | None,
    ) -> None:
        """`wall_ms` is asked for the time when a reset by duration needs it, `look_up` asks the group for
        committed offsets; None without one.
        """
        self.settings = settings
        self.cluster = metadata.cluster
        self.reachability = Reachability(settings.unreachable_s)
        self._records = 0  # handed out, so far
        self._positions: dict[TopicPartition, Position] = {}
        self._events: list[ConsumerEvent] = []
        self._errors: deque[ClientError] = deque()  # that concern no single partition
        self._needs_turn = True
        self._buffer = FetchBuffer()
        self._list_offsets = ListOffsets(settings, self.cluster, request_queue, rng)
        self._topics = ConsumerTopics(
            metadata,
            wanted=lambda: self._positions.keys() | self._list_offsets.partitions(),
            updated=self._cluster_changed,
            fail=self._fail,
            cannot_ask=self._list_offsets.cannot_ask,
        )
        # Each of these three is called in every turn, and returns at once unless something has changed
        # (`is_due`) or its time has come: the question is the same, what is then done has nothing in common.
        self._offset_reset = OffsetReset(
            settings,
            self._positions,
            self._buffer,
            self._list_offsets,
            rng,
            wall_ms=wall_ms,
            look_up=look_up,
            found=self._hurry,
            tell=self._events.append,
        )
        self._fetcher = Fetcher(
            settings,
            self._positions,
            self._buffer,
            self.cluster,
            request_queue,
            rng,
            out_of_range=self._offset_reset.out_of_range,
            met_leader=self._hurry,
            fail=self._fail,
        )
        self._position_validation = PositionValidation(
            settings,
            self._positions,
            self._buffer,
            self.cluster,
            request_queue,
            rng,
            passed=self._hurry,
            truncated=self._offset_reset.truncated,
        )

    # --- time and what comes with it -----------------------------------------------------------------------

    def _advance(self, now: Instant) -> None:
        """Asks for what is missing and reads ahead."""
        self._offset_reset.advance(now)
        self._position_validation.advance(now)
        self._fetcher.advance(now)

    def _reads_again_at(self) -> Instant:
        """When `_advance` has something to do at the latest, unless an answer comes first."""
        return min(
            self._offset_reset.deadline(), self._position_validation.deadline(), self._fetcher.deadline()
        )

    def _fail(self, error: ClientError) -> None:
        """Stores an error for the next poll, once: retries in between do not repeat it."""
        if len(self._errors) < ERRORS_MAX:
            self._errors.append(error)

    def _hurry(self) -> None:
        """Positions or leaders are others than before."""
        self._offset_reset.is_due = self._position_validation.is_due = self._fetcher.is_due = True
        self._needs_turn = True

    def _cluster_changed(self) -> None:
        """Brokers have described topics; perhaps as before."""
        for position in self._positions.values():
            topic = self.cluster.topics.get(position.at.topic)
            if topic is None or topic.topic_id == position.topic_id:
                continue
            if position.has_topic_id and topic.has_id:
                self._offset_reset.recreated(position)
            position.topic_id = topic.topic_id
        self._list_offsets.hurry()
        self._hurry()

    # --- which partitions ----------------------------------------------------------------------------------

    def _add(self, partitions: Iterable[TopicPartition]) -> None:
        for at in sorted(partitions):
            assert at not in self._positions
            position = self._positions[at] = Position(at)
            topic = self.cluster.topics.get(at.topic)
            if topic is not None:
                position.topic_id = topic.topic_id
            self._topics.want(at.topic)
        self._hurry()

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            position = self._positions.pop(at, None)
            if position is not None:
                self._buffer.remove(position)
        self._hurry()

    def _stop(self, partitions: Iterable[TopicPartition]) -> None:
        """The application is giving these up: it gets no more of them."""
        for at in partitions:
            self._buffer.stop(self._positions[at])

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read, including what is about to be given up."""
        return frozenset(self._positions)

    # --- records -------------------------------------------------------------------------------------------

    def take_records(self, now: Instant, max_records: int) -> list[Message]:
        """The next records, of as many partitions as it takes; positions move behind them.

        Raises errors for the application, each once. Returns nothing while there are events that were not
        taken: the application must know its assignment before it gets records.
        """
        if self._events:
            return []
        self._raise_error()
        try:
            messages = self._buffer.take_records(max_records)
        except ClientError:
            self._hurry()  # it is fetched again
            raise
        self._records += len(messages)
        self._fill_up()
        return messages

    def take_columns(self, now: Instant, columns: Columns) -> bool:
        """Pours everything that was fetched into the columns, as far as they have room; whether there was
        anything. Otherwise like `take_records`.
        """
        if self._events:
            return False
        self._raise_error()
        before = columns.row_count
        try:
            has_moved = self._buffer.take_columns(columns)
        except ClientError:
            self._hurry()
            raise
        self._records += columns.row_count - before
        self._fill_up()
        return has_moved

    def buffered(self) -> tuple[int, int]:
        """How many records and bytes are there to be taken, at most: columns that have the room need not
        grow.
        """
        return self._buffer.count_records(), self._buffer.size

    def _fill_up(self) -> None:
        if self._buffer.has_made_room:
            self._buffer.has_made_room = False
            self._fetcher.is_due = True

    def _raise_error(self) -> None:
        error = self.take_error()
        if error is not None:
            self._hurry()
            raise error

    @property
    def has_error(self) -> bool:
        return bool(self._errors) or self._buffer.has_error

    def take_error(self) -> ClientError | None:
        """What `take_records` would raise."""
        return self._errors.popleft() if self._errors else self._buffer.take_error()

    # --- positions -----------------------------------------------------------------------------------------

    def seek(self, now: Instant, at: TopicPartition, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """The next record is the one at `offset`, or the first behind it."""
        check_offset(offset)
        position = self._position(at)
        self._buffer.drop(position)
        self._buffer.touched.add(position)
        position.move(offset, leader_epoch)
        self._hurry()

    def seek_to_beginning(self, now: Instant, partitions: Iterable[TopicPartition]) -> None:
        self._seek(partitions, TO_EARLIEST)

    def seek_to_end(self, now: Instant, partitions: Iterable[TopicPartition]) -> None:
        """Reading committed records, before the first open transaction."""
        self._seek(partitions, TO_LATEST)

    def _seek(self, partitions: Iterable[TopicPartition], reset: Reset) -> None:
        for position in self._chosen(partitions):
            self._offset_reset.seek_end(position, reset)
        self._hurry()

    def position(self, at: TopicPartition) -> int | None:
        """The offset behind all that was handed out; None while it is not known. Raises why it cannot be."""
        position = self._position(at)
        if position.is_known:
            return position.offset
        error, position.error = position.error, None
        if error is not None:
            self._hurry()
            raise error
        return None

    def positions(self) -> Committed:
        """The positions that `commit` commits by default."""
        read = {at: position.committable() for at, position in self._positions.items()}
        return {at: each for at, each in read.items() if each is not None}

    def _position(self, at: TopicPartition) -> Position:
        position = self._positions.get(at)
        if position is None:
            raise InvalidInput(f"partition {at} is not assigned to this consumer")
        return position

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[Position]:
        return [self._position(at) for at in partitions]

    def fetch_until(self, at: TopicPartition, end_offset: int) -> None:
        """Nothing from that offset on is wanted: no fetch begins there, though the last may reach beyond."""
        self._position(at).fetch_end = end_offset
        self._hurry()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing is given of these until they are resumed; what was fetched of them is kept."""
        for position in self._chosen(partitions):
            self._buffer.hold(position)
        self._hurry()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for position in self._chosen(partitions):
            self._buffer.release(position)
        self._hurry()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(at for at, position in self._positions.items() if position.is_paused)

    def lag(self, at: TopicPartition) -> int | None:
        """How many offsets there are still to read, as of the last answer; None before the first."""
        position = self._position(at)
        reads_committed = self.settings.isolation == READ_COMMITTED
        end = position.last_stable_offset if reads_committed else position.high_watermark
        if end == NO_OFFSET or position.offset is None:
            return None
        return max(0, end - position.offset)

    def metrics(self) -> ConsumerMetrics:
        lags = {at: self.lag(at) for at in self._positions}
        return ConsumerMetrics(
            records=self._records,
            bytes=self._fetcher.bytes,
            fetches=self._fetcher.fetches,
            buffered_bytes=sum(position.size for position in self._positions.values()),
            lag={at: lag for at, lag in lags.items() if lag is not None},
        )

    def check(self) -> None:
        """The invariants."""
        self._buffer.check()
        for position in self._positions.values():
            position.check()
        counted = sum(position.size for position in self._positions.values() if not position.is_paused)
        assert counted == self._buffer.size
