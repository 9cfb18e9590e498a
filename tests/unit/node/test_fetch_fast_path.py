"""The fast path answers what the ordinary way would have answered, byte for byte, or does not answer."""

import gc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from harness.authorizers import Nobody
from headrace.node.connection import Connection
from headrace.node.fetch_fast_path import FetchFastPath
from headrace.node.fetch_sessions import CachedPartition
from headrace.node.handlers import fetch as fetch_handler
from headrace.protocol.api import response_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.records.builder import build_batch
from headrace.records.reader import batches
from headrace.simulator.frames import request_bytes
from headrace.simulator.manual_host import ManualHost

T0 = 1_700_000_000_000
FETCH = 1


class Reader:
    """A consumer of one host, with or without a session."""

    def __init__(self, host: ManualHost, version: int, *, uses_session: bool, forgets: bool) -> None:
        self.host = host
        self.version = version
        self.connection = host.connect()
        self.uses_session = uses_session
        self.forgets = forgets  # so that every request takes the ordinary way
        self.session_id, self.epoch = 0, 0 if uses_session else -1

    @property
    def path(self) -> FetchFastPath | None:
        return self.connection.path_of(FetchFastPath)

    def fetch(self, offset: int, *, partition: int = 0, topic: str = "t", **more: Any) -> None:
        if self.forgets:
            self.connection.fast_path = None
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=more.pop("limit", 1 << 20),
            current_leader_epoch=more.pop("leader_epoch", -1),
        )
        named: dict[str, Any] = (
            {"topic_id": self.host.partitions(topic)[0].topic_id} if self.version >= 13 else {"topic": topic}
        )
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(partitions=[wanted], **named)],
            **{"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 24, **more},
        )
        if self.uses_session:
            self.epoch += 1
        self.host.send(self.connection, request, self.version)

    def answers(self) -> list[bytes]:
        """All that have come since the last call."""
        taken = list(self.host.answers[self.connection.id])
        self.host.answers[self.connection.id].clear()
        self.host.asked[self.connection.id].clear()
        for answer in taken:
            codec = response_codec(FETCH, self.version)
            body = codec.decode(memoryview(answer)[8 + codec.header_version :])
            if body.session_id and self.uses_session:
                self.session_id = body.session_id
            elif body.error_code:
                self.session_id, self.epoch = 0, 0
        return taken


def batch(*values: bytes, **more: Any) -> bytes:
    return build_batch([(T0 + i, None, value, ()) for i, value in enumerate(values)], **more)


def write(host: ManualHost, *values: bytes, partition: int = 0) -> None:
    host.ask(host.produce_request("t", batch(*values), partition=partition), 9)


def pair(version: int, *, uses_session: bool, **configs: str) -> tuple[Reader, Reader]:
    """Two nodes of one seed; the reader of the second one takes the ordinary way each time."""
    readers = []
    for forgets in (False, True):
        host = ManualHost(seed=5)
        host.create_topic("t", 2, **configs)
        host.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x0"]), 4)
        readers.append(Reader(host, version, uses_session=uses_session, forgets=forgets))
    return readers[0], readers[1]


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("uses_session", [False, True])
def test_the_same_answers_as_without_it(version: int, uses_session: bool) -> None:
    if uses_session and version < 7:
        return
    quick, slow = pair(version, uses_session=uses_session)
    for i in range(12):
        answers = []
        for reader in (quick, slow):
            if i % 3:
                write(reader.host, b"x" * (i * 40))
            reader.fetch(i)
            if not i % 3:  # it waits
                write(reader.host, b"y" * (i * 900))
            answers.append(reader.answers())
        assert answers[0] == answers[1]
        assert len(answers[0]) == 1
    assert (quick.path is not None) == (version >= 7)


def actions(rng: Random, host: ManualHost) -> list[Callable[[], None]]:
    """What happens to a topic meanwhile: the same for both hosts, which have the same generator."""

    def delete_records() -> None:
        partition = host.partitions("t")[0]
        end = partition.high_watermark
        offset = rng.randrange(end + 1)
        deleted = DeleteRecordsTopic(
            name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
        )
        host.ask(DeleteRecordsRequest(topics=[deleted], timeout_ms=100), 2)

    def transaction() -> None:
        connection = host.connect()
        name = f"x{rng.randrange(3)}"
        begun = host.ask(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000), 4, connection
        )
        if begun.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        assert begun.error_code == 0
        who: dict[str, Any] = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        host.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=begun.producer_id,
                v3_and_below_producer_epoch=begun.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            ),
            3,
            connection,
        )
        records = batch(b"t", **who, base_sequence=0, transactional=True)
        request = host.produce_request("t", records)
        request.transactional_id = name
        host.ask(request, 9, connection)
        if rng.random() < 0.8:
            committed = rng.random() < 0.5
            host.ask(EndTxnRequest(transactional_id=name, **who, committed=committed), 3, connection)

    return [
        *[lambda: write(host, b"v" * rng.choice([1, 50, 3_000]))] * 6,
        lambda: write(host, b"w", partition=1),
        lambda: host.advance(rng.choice([0.1, 0.6, 3.0])),
        delete_records,
        transaction,
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_same_answers_whatever_happens_meanwhile(seed: int) -> None:
    script = Random(seed)
    version = script.choice([7, 11, 12, 13, 16, 18])
    uses_session = script.random() < 0.6
    readers = pair(version, uses_session=uses_session, segment_ms=str(script.choice([300, 1 << 30])))
    isolation = script.randrange(2)
    rngs = [Random(seed), Random(seed)]
    offset, is_waiting = 0, False
    for _ in range(60):
        step = script.random()
        if step < 0.5 and not is_waiting:
            more: dict[str, Any] = {
                "min_bytes": script.choice([1, 1, 1, 400, 0]),
                "max_bytes": script.choice([1 << 24, 1 << 24, 200, 0]),
                "limit": script.choice([1 << 20, 1 << 20, 100]),
                "max_wait_ms": script.choice([500, 500, 0]),
                "isolation_level": isolation,
                "leader_epoch": script.choice([-1, -1, 0, 0, 7]),
                "partition": script.choice([0] * 8 + [1]),
            }
            for reader in readers:
                reader.fetch(offset, **more)
        elif step < 0.9:
            number = script.randrange(10)
            for reader, rng in zip(readers, rngs, strict=True):
                actions(rng, reader.host)[number]()
        else:
            offset = script.randrange(offset + 3)
        answers = [reader.answers() for reader in readers]
        assert answers[0] == answers[1]
        is_waiting = bool(readers[0].connection.pending)
        assert is_waiting == bool(readers[1].connection.pending)
        if answers[0]:
            offset += 1
    parked = [reader.host.node.waiting.parked for reader in readers]
    assert parked[0] == parked[1]


def counted_gatherings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each fetch, or look at one, that takes the ordinary way."""
    calls: list[int] = []
    gather = fetch_handler.Gathering.gather

    def counted(self: fetch_handler.Gathering, now: Any) -> None:
        calls.append(1)
        gather(self, now)

    monkeypatch.setattr(fetch_handler.Gathering, "gather", counted)
    return calls


@pytest.mark.parametrize("uses_session", [False, True])
def test_a_consumer_that_reads_on_takes_it(monkeypatch: pytest.MonkeyPatch, uses_session: bool) -> None:
    reader, _ = pair(16, uses_session=uses_session)
    host = reader.host
    for offset in range(3):  # the first one begins the session, the second one is remembered
        write(host, b"a")
        reader.fetch(offset)
        assert reader.answers()
    ordinary = counted_gatherings(monkeypatch)
    for offset in range(3, 20):
        reader.fetch(offset)
        assert not reader.answers()
        write(host, b"b")
        assert len(reader.answers()) == 1
    assert not ordinary


@pytest.mark.parametrize("uses_session", [False, True])
@pytest.mark.parametrize("more", [{"min_bytes": 0}, {"max_bytes": 0}])
def test_a_fetch_that_wants_no_bytes_does_not_wait(uses_session: bool, more: dict[str, Any]) -> None:
    """fetch.min.bytes=0: the consumer wants to know at once that there is nothing."""
    reader, _ = pair(12, uses_session=uses_session)
    for _ in range(4):
        reader.fetch(0, **more)
        assert len(reader.answers()) == 1


def learned(**configs: str) -> Reader:
    """It has read offset 0, and its fetches take the fast path."""
    reader, _ = pair(12, uses_session=True, **configs)
    for offset in range(3):
        write(reader.host, b"a")
        reader.fetch(offset)
        assert reader.answers()
    assert reader.path is not None
    return reader


def only_code(reader: Reader) -> int:
    (answer,) = reader.host.answers[reader.connection.id]
    codec = response_codec(FETCH, reader.version)
    (topic,) = codec.decode(memoryview(answer)[8 + codec.header_version :]).responses
    return int(topic.partitions[0].error_code)


def test_a_topic_that_is_deleted_while_a_fetch_waits() -> None:
    reader = learned()
    reader.fetch(3)
    reader.host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert only_code(reader) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_was_deleted_and_made_again() -> None:
    reader = learned()
    reader.host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    reader.host.create_topic("t")
    write(reader.host, b"new")
    reader.fetch(0)
    assert only_code(reader) == 0
    assert b"new" in reader.answers()[0]


def test_without_the_right_nothing_is_read() -> None:
    reader = learned()
    reader.host.node.access.authorizer = Nobody()
    reader.fetch(0)
    assert only_code(reader) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_epoch_of_a_session_counts_each_fetch() -> None:
    reader = learned()
    reader.fetch(0)
    assert reader.answers()
    reader.epoch -= 1  # a fetch that comes twice
    reader.fetch(0)
    codec = response_codec(FETCH, reader.version)
    (answer,) = reader.answers()
    refused = codec.decode(memoryview(answer)[8 + codec.header_version :])
    assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_partition_that_the_session_forgot_while_a_fetch_waits() -> None:
    """Another request of the session, on another connection, takes the partition out of it."""
    reader = learned()
    reader.fetch(3)
    other = FetchRequest(
        session_id=reader.session_id,
        session_epoch=reader.epoch,
        max_wait_ms=0,
        topics=[],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[0])],
    )
    reader.host.ask(other, 12)
    write(reader.host, b"late")
    (answer,) = reader.answers()
    assert b"late" not in answer


def go_on(reader: Reader, wanted: int | None = None, **more: Any) -> bool:
    """The next fetch of the session, on another connection; it names the partition only with an offset. Says
    whether it is answered at once.
    """
    named = []
    if wanted is not None:
        partition = FetchPartition(partition=0, fetch_offset=wanted, partition_max_bytes=1)
        named.append(FetchTopic(topic="t", partitions=[partition]))
    request = FetchRequest(
        session_id=reader.session_id,
        session_epoch=reader.epoch,
        topics=named,
        **{"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 24, **more},
    )
    reader.epoch += 1
    connection = reader.host.connect()
    reader.host.send(connection, request, reader.version)
    return reader.host.receive(connection) is not None


def test_a_session_that_goes_back_while_a_fetch_waits() -> None:
    """What the waiting fetch has read to its end is not read to its end from where the session is now."""
    reader = learned()
    reader.fetch(3)
    assert go_on(reader, 1)
    reader.host.advance(1.0)
    assert len(reader.answers()) == 1
    assert go_on(reader), "there are records from offset 1 on"


def test_what_is_quiet_for_a_reader_of_committed_records_only() -> None:
    reader, _ = pair(12, uses_session=True)
    write(reader.host, b"a")
    for _ in range(3):
        reader.fetch(1, isolation_level=1, max_wait_ms=500)
        reader.host.advance(1.0)
        assert reader.answers()
    assert go_on(reader, 0)  # this one reads all
    begun = reader.host.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
    open_records = batch(
        b"t",
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    partition = reader.host.partitions("t")[0]
    partition.append(memoryview(bytearray(open_records)), reader.host.clock.now(), from_client=False)
    reader.fetch(1, isolation_level=1)
    reader.host.advance(1.0)
    assert reader.answers()
    assert go_on(reader), "there is a record whose transaction is open"


def test_a_session_that_ends_while_a_fetch_waits_leaves_its_partitions() -> None:
    reader = learned()
    reader.fetch(3)
    ending = FetchRequest(session_id=reader.session_id, session_epoch=-1, max_wait_ms=0, topics=[])
    reader.host.ask(ending, reader.version)
    reader.host.advance(1.0)
    assert len(reader.answers()) == 1
    assert not reader.host.partitions("t")[0].waiters


def test_a_client_that_hangs_up_leaves_nothing_behind() -> None:
    reader = learned()
    reader.fetch(3)
    assert reader.host.node.waiting.parked == 1
    reader.host.node.disconnected(reader.host.clock.now(), reader.connection)
    assert reader.host.node.waiting.parked == 0
    write(reader.host, b"late")
    assert not reader.host.answers[reader.connection.id]
    assert not reader.host.partitions("t")[0].waiters


def test_a_connection_that_is_gone_needs_no_garbage_collector() -> None:
    """A full collection may come once a day, and clients come and go."""
    reader = learned()
    host = reader.host
    gc.disable()
    try:
        before = count_of(Connection)
        gone = Reader(host, 12, uses_session=True, forgets=False)
        for _ in range(3):
            gone.fetch(0)
            assert gone.answers()
        host.ask(host.produce_request("t", batch(b"p"), acks=1), 9, gone.connection)
        gone.fetch(4)
        host.node.disconnected(host.clock.now(), gone.connection)
        del gone
        host.advance(1.0)  # the deadline of the fetch that waited
        assert count_of(Connection) == before
    finally:
        gc.enable()


def test_a_session_that_has_ended_is_not_kept_by_the_connection() -> None:
    """It may have hundreds of thousands of partitions, which no limit would count any more."""
    gc.collect()  # garbage of other tests, which might go in between
    reader = learned()
    before = count_of(CachedPartition)
    more = [FetchPartition(partition=index) for index in range(2, 1_000)]
    added = FetchRequest(
        session_id=reader.session_id,
        session_epoch=reader.epoch,
        max_wait_ms=0,
        topics=[FetchTopic(topic="t", partitions=more)],
    )
    reader.host.ask(added, reader.version)
    assert count_of(CachedPartition) > before + 900
    ending = FetchRequest(session_id=reader.session_id, session_epoch=-1, max_wait_ms=0, topics=[])
    reader.host.ask(ending, reader.version)
    gc.collect()
    assert count_of(CachedPartition) <= before


def test_a_partition_that_left_the_session_and_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = learned()
    for named, gone in ((1, 0), (0, 1)):
        wanted = FetchPartition(partition=named, fetch_offset=0, partition_max_bytes=1 << 20)
        other = FetchRequest(
            session_id=reader.session_id,
            session_epoch=reader.epoch,
            max_wait_ms=0,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
            forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[gone])],
        )
        reader.host.ask(other, reader.version)
        reader.epoch += 1
    reader.fetch(0)
    assert reader.answers()
    ordinary = counted_gatherings(monkeypatch)
    reader.fetch(1)
    assert reader.answers()
    assert not ordinary


def count_of(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())


def test_one_connection_keeps_a_fast_path_of_each_kind() -> None:
    reader = learned()
    connection: Connection = reader.connection
    for _ in range(3):
        reader.host.ask(reader.host.produce_request("t", batch(b"p"), acks=1), 9, connection)
    kinds = set()
    path = connection.fast_path
    while path is not None:
        assert type(path) not in kinds
        kinds.add(type(path))
        path = path.next
    assert {kind.__name__ for kind in kinds} == {"FetchFastPath", "ProduceFastPath"}


def test_bytes_that_mean_the_same_are_not_remembered() -> None:
    """A frame with bytes left over at its end."""
    reader, _ = pair(11, uses_session=False)
    write(reader.host, b"a")
    named = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    request = FetchRequest(session_id=0, session_epoch=-1, max_wait_ms=0, topics=[named])
    frame = request_bytes(FETCH, 11, 1, "test", request)
    reader.host.send_frame(reader.connection, frame + b"\0\0\0")
    assert reader.path is None


def test_a_fetch_that_names_a_topic_without_partitions_first() -> None:
    """It wants one partition, and is answered like any other; but it is not remembered."""
    reader = learned()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        session_id=0,
        session_epoch=-1,
        max_wait_ms=0,
        topics=[FetchTopic(topic="u", partitions=[]), FetchTopic(topic="t", partitions=[wanted])],
    )
    for _ in range(2):
        answer = reader.host.ask(request, reader.version, reader.host.connect())
        assert answer.responses[0].partitions[0].records


def test_a_fetch_that_names_a_partition_twice() -> None:
    """The last one counts, as in Kafka, however often it is sent."""
    host = learned().host
    connection = host.connect()
    for first in range(3):
        named = [
            FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1) for offset in (first, 2)
        ]
        request = FetchRequest(
            session_id=0,
            session_epoch=-1,
            max_wait_ms=0,
            topics=[FetchTopic(topic="t", partitions=named)],
        )
        answer = host.ask(request, 12, connection)
        ((_, header),) = batches(bytes(answer.responses[0].partitions[0].records))
        assert header.base_offset == 2
