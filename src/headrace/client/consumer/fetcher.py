"""Fetcher: reads ahead of the application; decides what to fetch from which broker.

There is one fetch in flight per broker, a long poll. It asks for every partition of that broker that may be
read and has few records buffered. Partitions that returned records go to the end of the list, so that a full
answer does not starve the others. All partitions together have at most `fetch.max.bytes` buffered, and a
fetch asks for no more than the free space.

A `FetchSession` (KIP-227) makes a request list only what changed since the last one:

    none --a full fetch is answered with an id--> open --the broker forgot it--> none
                                                   |---an answer is lost or refused: the next fetch is full
                                                       and ends it---> none or open again

A broker without sessions answers full fetches with id 0; other code need not distinguish that.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from headrace.base.ids import NO_TOPIC_ID
from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, Cluster, TopicPartition
from headrace.client.consumer.fetch_buffer import FetchBuffer
from headrace.client.consumer.position import Position
from headrace.client.errors import BadResponse, ClientError, KafkaError
from headrace.client.session import FETCH, Answer, RequestQueue
from headrace.client.settings.consumer import READ_COMMITTED, ConsumerSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from headrace.records.errors import BadRecords
from headrace.records.fetched import Fetched

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1

NAMES_ONLY_VERSION = 12  # the last that names topics instead of giving their ids


class Wanted(NamedTuple):
    """What is asked of a partition."""

    topic_id: bytes
    fetch_offset: int
    leader_epoch: int


class FetchSession:
    """Invariant: while `epoch` is not initial, the broker fetches exactly what `_known` says, if it answers
    the next request well.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._settings = settings
        self._known: Mapping[TopicPartition, Wanted] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request lists everything."""
        return self.epoch == INITIAL_EPOCH

    def request(self, wanted: Mapping[TopicPartition, Wanted], bytes_max: int) -> FetchRequest:
        """Asks for these, and for nothing else any more."""
        known = self._known
        if any(at in known and known[at].topic_id != each.topic_id for at, each in wanted.items()):
            self.restart()  # a topic was created again; the broker remembers the old one by the same name
        forgotten: list[ForgottenTopic] = []
        news = wanted
        if not self.is_full:
            news = {at: each for at, each in wanted.items() if known.get(at) != each}
            forgotten = _forgotten(known, wanted)
        request = self._request(bytes_max)
        request.topics = self._topics(news)
        request.forgotten_topics_data = forgotten
        self._known = wanted
        return request

    def _request(self, bytes_max: int) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self._settings.fetch_wait_max_ms,
            min_bytes=self._settings.fetch_bytes_min,
            max_bytes=bytes_max,
            isolation_level=self._settings.isolation,
            session_id=self.id,
            session_epoch=self.epoch,
        )

    def _topics(self, news: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
        topics: dict[str, FetchTopic] = {}
        for at, each in news.items():
            topic = topics.get(at.topic)
            if topic is None:
                topic = topics[at.topic] = FetchTopic(topic=at.topic, topic_id=each.topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=at.partition,
                    current_leader_epoch=each.leader_epoch,
                    fetch_offset=each.fetch_offset,
                    partition_max_bytes=self._settings.partition_bytes_max,
                )
            )
        return list(topics.values())

    def final_request(self) -> FetchRequest | None:
        """The request that ends the session; None if there is no session."""
        if self.id == NO_SESSION:
            return None
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=self.id, session_epoch=FINAL_EPOCH, max_bytes=0
        )
        self.forget()
        return request

    def answered(self, answer: FetchResponse) -> None:
        if answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.forget()
        elif answer.error_code:
            self.restart()
        elif answer.session_id == NO_SESSION:
            self.forget()  # given none, or no longer
        else:
            self.id = answer.session_id
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def restart(self) -> None:
        """We no longer know what the broker remembers: the next fetch is a full one, and ends the session."""
        self.epoch = INITIAL_EPOCH
        self._known = {}

    def forget(self) -> None:
        self.id = NO_SESSION
        self.restart()


def _forgotten(
    known: Mapping[TopicPartition, Wanted], wanted: Mapping[TopicPartition, Wanted]
) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for at, each in known.items():
        if at not in wanted:
            topic = topics.setdefault(at.topic, ForgottenTopic(topic=at.topic, topic_id=each.topic_id))
            topic.partitions.append(at.partition)
    return list(topics.values())


def version_max(wanted: Mapping[TopicPartition, Wanted]) -> int | None:
    """Of a request for these: a topic without an id can only be named."""
    has_ids = all(each.topic_id != NO_TOPIC_ID for each in wanted.values())
    return None if has_ids else NAMES_ONLY_VERSION


# A partition is asked for while less than so many answers of max.partition.fetch.bytes each wait of it: one
# that is being handed out, and the next, so that nobody waits for the network.
ANSWERS_AHEAD = 2

# Of the whole fetch: the session is not what we think it is, which the next, full fetch mends.
_OF_SESSIONS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class _Asked(NamedTuple):
    position: Position
    round: int
    fetch_offset: int

    def is_still_wanted(self) -> bool:
        return self.position.round == self.round and self.position.fetch_offset == self.fetch_offset


class _Flight(NamedTuple):
    broker: int
    asked: dict[TopicPartition, _Asked]


class Fetcher:
    """Invariant: `_flights` has one flight at most per broker, and an answer comes for each."""

    def __init__(
        self,
        settings: ConsumerSettings,
        positions: dict[TopicPartition, Position],
        buffer: FetchBuffer,
        cluster: Cluster,
        request_queue: RequestQueue,
        rng: Randomness,
        *,
        out_of_range: Callable[[Position], None],
        met_leader: Callable[[], None],
        fail: Callable[[ClientError], None],
    ) -> None:
        """`out_of_range` chooses a new position; `met_leader` is called when a partition has a new leader,
        `fail` with errors that concern more than one partition.
        """
        self.fetches = 0  # answered, so far
        self.bytes = 0  # of records that they brought
        self.is_due = True  # something has changed that may let a fetch leave
        self._settings = settings
        self._positions = positions
        self._buffer = buffer
        self._cluster = cluster
        self._request_queue = request_queue
        self._rng = rng
        self._out_of_range = out_of_range
        self._met_leader = met_leader
        self._fail = fail
        self._sessions: dict[int, FetchSession] = {}
        self._flights: dict[int, _Flight] = {}
        self._muted_until: dict[int, Instant] = {}  # as brokers want us to be (KIP-219), or after a failure
        self._failures: dict[int, int] = {}  # in a row
        self._wake_at = NEVER

    # Leaving

    def advance(self, now: Instant) -> None:
        if not self.is_due and now < self._wake_at:
            return
        self.is_due = False
        self._wake_at = NEVER
        # a bound of 0 asks for a batch at a time
        room = max(1, self._settings.fetch_bytes_max) - self._buffer.size
        if room <= 0:
            return  # whoever makes some says so
        ahead_bytes_max = ANSWERS_AHEAD * max(1, self._settings.partition_bytes_max)
        loads: dict[int, list[Position]] = {}
        for position in self._positions.values():
            if not position.can_be_fetched(ahead_bytes_max):
                continue
            leader = self._leader(now, position)
            if leader is not None:
                loads.setdefault(leader, []).append(position)
        for leader, load in loads.items():
            self._launch(leader, load, room)

    def _leader(self, now: Instant, position: Position) -> int | None:
        """Who is to be asked now."""
        # A topic that is being looked up again is read on meanwhile: most of its leaders are where they were.
        leader = self._cluster.leader_of(position.at)
        if leader is None:
            self._cluster.mark_stale(position.at.topic)
            return None
        if leader in self._flights:
            return None
        may_go_at = max(position.retry_at, self._muted_until.get(leader, position.retry_at))
        if now < may_go_at:
            self._wake_at = min(self._wake_at, may_go_at)
            return None
        return leader

    def _launch(self, leader: int, load: list[Position], room: int) -> None:
        topics = self._cluster.topics
        wanted = {
            each.at: Wanted(topics[each.at.topic].topic_id, each.fetch_offset, each.leader_epoch)
            for each in load
        }
        session = self._sessions.get(leader)
        if session is None:
            session = self._sessions[leader] = FetchSession(self._settings)
        flight = _Flight(leader, {each.at: _Asked(each, each.round, each.fetch_offset) for each in load})
        self._flights[leader] = flight
        self._request_queue.post(
            self._cluster.brokers[leader],
            session.request(wanted, room),
            partial(self._landed, flight, session),
            timeout_s=self._settings.request_timeout_s + self._settings.fetch_wait_max_ms / 1000,
            version_max=version_max(wanted),
            lane=FETCH,
        )

    def deadline(self) -> Instant:
        return Instant(0.0) if self.is_due else self._wake_at

    def end_sessions(self, then: Callable[[], None]) -> int:
        """Tells the brokers that we read no more; how many answers `then` will hear of.

        On ordinary connections: on their own they would wait behind a long poll.
        """
        ended = 0
        for broker, session in self._sessions.items():
            question = session.final_request()
            address = self._cluster.brokers.get(broker)
            if question is not None and address is not None:
                timeout_s = self._settings.request_timeout_s
                self._request_queue.post(address, question, lambda now, answer: then(), timeout_s=timeout_s)
                ended += 1
        return ended

    # Landing

    def _landed(self, flight: _Flight, session: FetchSession, now: Instant, answer: Answer) -> None:
        del self._flights[flight.broker]
        self.is_due = True
        if isinstance(answer, ClientError):
            session.restart()
            self._fell_through(now, flight, answer)
            return
        assert isinstance(answer, FetchResponse)
        self.fetches += 1
        session.answered(answer)
        if answer.error_code:
            self._fell_through(now, flight, KafkaError(answer.error_code, subject="the fetch"))
            return
        self._failures.pop(flight.broker, None)
        if answer.throttle_time_ms > 0:
            self._muted_until[flight.broker] = Instant(now + answer.throttle_time_ms / 1000)
        brokers = {each.node_id: Address(each.host, each.port) for each in answer.node_endpoints}
        for topic in answer.responses:
            name = self._cluster.name_of(topic.topic, topic.topic_id)
            for told in topic.partitions:
                asked = flight.asked.get(TopicPartition(name, told.partition_index))
                if asked is not None and asked.is_still_wanted():
                    self._read(now, asked.position, told, brokers)

    def _fell_through(self, now: Instant, flight: _Flight, error: ClientError) -> None:
        """The fetch failed: no partition got records."""
        failures = self._failures.get(flight.broker, 0)
        self._failures[flight.broker] = failures + 1
        self._muted_until[flight.broker] = Instant(now + self._settings.backoff(failures, self._rng))
        if isinstance(error, KafkaError) and error.code in _OF_SESSIONS:
            return
        if not error.is_retriable:
            self._fail(error)
        for at in flight.asked:
            self._cluster.mark_stale(at.topic)

    def _read(
        self, now: Instant, position: Position, told: PartitionData, brokers: dict[int, Address]
    ) -> None:
        if told.error_code:
            self._failed(now, position, told, brokers)
            return
        position.settled()
        position.high_watermark = told.high_watermark
        position.last_stable_offset = told.last_stable_offset
        if told.records:
            self._take(now, position, told)

    def _take(self, now: Instant, position: Position, told: PartitionData) -> None:
        at = position.at
        assert isinstance(told.records, bytes | memoryview), "the codec hands out views"
        aborted = told.aborted_transactions if self._settings.isolation == READ_COMMITTED else None
        try:
            chunk = Fetched(
                at.topic,
                at.partition,
                told.records,
                position.fetch_offset,
                check_crcs=self._settings.checks_crcs,
                aborted=[(each.first_offset, each.producer_id) for each in aborted or ()],
            )
        except BadRecords as error:
            self._give_up(
                now, position, BadResponse(f"the broker sent broken records of partition {at}: {error}")
            )
            return
        if chunk.end_offset == position.fetch_offset:  # asking again would bring the same, for ever
            said = f"the broker's records of partition {at} do not reach offset {position.fetch_offset}"
            self._give_up(now, position, BadResponse(said))
            return
        self.bytes += chunk.size
        position.fetch_offset = chunk.end_offset
        position.fetch_epoch = chunk.end_epoch
        self._buffer.add(position, chunk)
        self._positions[at] = self._positions.pop(at)  # behind all others

    def _failed(
        self, now: Instant, position: Position, told: PartitionData, brokers: dict[int, Address]
    ) -> None:
        at, code = position.at, told.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if position.chunks:
                position.is_spoilt = True  # asked again, and answered so again, when they are handed out
            else:
                self._out_of_range(position)
            return
        error = KafkaError(code, subject=f"partition {at}")
        if not error.is_retriable or code == ErrorCode.CORRUPT_MESSAGE:  # nothing would ever come, unnoticed
            self._give_up(now, position, error)
            return
        leader = told.current_leader
        if leader is not None and self._cluster.hint(at, leader.leader_id, leader.leader_epoch, brokers):
            self._met_leader()  # the next fetch goes there, once it is known to have what we read
            return
        self._cluster.mark_stale(at.topic)
        position.postpone(now, self._settings, self._rng)

    def _give_up(self, now: Instant, position: Position, error: ClientError) -> None:
        """Reports an error to the application; if it polls again, the fetch is repeated."""
        position.postpone(now, self._settings, self._rng)
        self._buffer.fail(position, error)
