"""A session is told all that is new in its partitions, though a fetch looks at few of them."""

import gc
from random import Random
from typing import Any

import pytest

from headrace.node.handlers import fetch as fetch_handler
from headrace.node.parked_fetches import ParkedSessionFetch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.records.builder import build_batch
from headrace.records.reader import batches
from headrace.simulator.manual_host import ManualHost

T0 = 1_700_000_000_000
VERSION = 12
Key = tuple[str, int]


def batch(value: bytes, **more: Any) -> bytes:
    return build_batch([(T0, None, value, ())], **more)


class Consumer:
    """Fetches in one session, and knows what it was told last of each partition."""

    def __init__(self, host: ManualHost, *, isolation: int = 0) -> None:
        self.host = host
        self.isolation = isolation
        self.connection = host.connect()
        self.session_id = self.epoch = 0
        self.offsets: dict[Key, int] = {}
        self.told: dict[Key, tuple[int, int, int]] = {}  # high watermark, log start, error
        self.changed: dict[Key, None] = {}  # to be named in the next request
        self.forgotten: list[Key] = []
        self.records = 0

    @property
    def is_waiting(self) -> bool:
        return bool(self.connection.pending)

    def add(self, *keys: Key) -> None:
        for key in keys:
            if key in self.forgotten:
                self.forgotten.remove(key)  # what a request names and forgets is forgotten
            self.offsets.setdefault(key, 0)
            self.changed[key] = None

    def forget(self, key: Key) -> None:
        del self.offsets[key]
        self.told.pop(key, None)
        self.changed.pop(key, None)
        self.forgotten.append(key)

    def fetch(self, *, max_bytes: int = 1 << 24, min_bytes: int = 1) -> None:
        named = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=self.offsets[topic, index],
                        partition_max_bytes=1 << 20,
                    )
                ],
            )
            for topic, index in self.changed
        ]
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=self.isolation,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=named,
            forgotten_topics_data=[ForgottenTopic(topic=t, partitions=[i]) for t, i in self.forgotten],
        )
        self.changed, self.forgotten = {}, []
        self.epoch += 1
        self.host.send(self.connection, request, VERSION)

    def receive(self) -> Any:
        """The answer, if it has come: what it tells is remembered, and records are read."""
        answer = self.host.receive(self.connection)
        if answer is None:
            return None
        assert not answer.error_code, ErrorCode(answer.error_code)
        self.session_id = answer.session_id
        for topic in answer.responses:
            for data in topic.partitions:
                key = (topic.topic, data.partition_index)
                if key not in self.offsets:
                    continue  # forgotten meanwhile
                self.told[key] = data.high_watermark, data.log_start_offset, data.error_code
                for _, header in batches(bytes(data.records or b"")):
                    self.offsets[key] = header.next_offset
                    self.changed[key] = None
                    self.records += 1
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    partition = next(one for one in self.host.partitions(key[0]) if one.index == key[1])
                    assert partition.log is not None
                    self.offsets[key] = partition.log.log_start_offset
                    self.changed[key] = None
        return answer


def write(host: ManualHost, topic: str, index: int) -> None:
    host.ask(host.produce_request(topic, batch(b"v"), partition=index), 9)


class Trouble:
    """What happens to the topics `a` and `b`; in `a` transactions begin and end."""

    def __init__(self, host: ManualHost, rng: Random, partitions: int) -> None:
        self.host = host
        self.rng = rng
        self.partitions = partitions
        self.open: list[tuple[int, int, int]] = []  # producer id, epoch, partition

    def happen(self) -> None:
        self.rng.choice(
            [
                *[self.write] * 5,
                *[self.advance] * 2,
                self.delete_records,
                self.make_again,
                self.begin,
                self.end,
                self.end,
            ]
        )()

    def write(self) -> None:
        topic = self.rng.choice(["a", "a", "b"])
        write(self.host, topic, self.rng.randrange(self.partitions if topic == "a" else 3))

    def advance(self) -> None:
        self.host.advance(self.rng.choice([0.1, 0.6]))

    def delete_records(self) -> None:
        index = self.rng.randrange(self.partitions)
        gone = DeleteRecordsTopic(
            name="a", partitions=[DeleteRecordsPartition(partition_index=index, offset=-1)]
        )
        self.host.ask(DeleteRecordsRequest(topics=[gone], timeout_ms=100), 2)

    def make_again(self) -> None:
        self.host.ask(DeleteTopicsRequest(topic_names=["b"], timeout_ms=1000), 5)
        if self.rng.random() < 0.5:
            self.host.advance(0.1)
        self.host.create_topic("b", 3)

    def begin(self) -> None:
        index = self.rng.randrange(self.partitions)
        begun = self.host.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        who = begun.producer_id, begun.producer_epoch
        records = batch(b"t", producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True)
        self.host.partitions("a")[index].append(
            memoryview(bytearray(records)), self.host.clock.now(), from_client=False
        )
        self.host.node.wake(self.host.clock.now())
        self.host.settle()
        self.open.append((*who, index))

    def end(self) -> None:
        if self.open:
            producer_id, epoch, index = self.open.pop(self.rng.randrange(len(self.open)))
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=self.rng.random() < 0.5,
                topics=[WritableTxnMarkerTopic(name="a", partition_indexes=[index])],
                coordinator_epoch=0,
            )
            self.host.ask(WriteTxnMarkersRequest(markers=[marker]), 1)


@pytest.mark.parametrize("seed", range(100))
def test_all_that_is_new_is_told(seed: int) -> None:
    rng = Random(seed)
    host = ManualHost(seed=seed)
    count = rng.choice([2, 6, 12])
    host.create_topic("a", count)
    host.create_topic("b", 3)
    trouble = Trouble(host, rng, count)
    consumer = Consumer(host, isolation=rng.randrange(2))
    consumer.add(*[("a", index) for index in range(count)], ("b", 0), ("b", 1))
    for _ in range(120):
        if not consumer.is_waiting:
            if rng.random() < 0.1 and len(consumer.offsets) > 2:
                consumer.forget(rng.choice(sorted(consumer.offsets)))
            if rng.random() < 0.1:
                consumer.add(rng.choice([("a", rng.randrange(count)), ("b", rng.randrange(3))]))
            consumer.fetch()
        else:
            trouble.happen()
        answer = consumer.receive()
        for key, offset in consumer.offsets.items():
            found = host.node.broker.partitions.of_name(key[0])
            partition = found.replicas.get(key[1]) if found is not None else None
            if consumer.is_waiting:
                assert partition is not None
                assert offset >= partition.visible_end(consumer.isolation), f"{key} has records"
                assert partition.log is None or offset >= partition.log.log_start_offset
            elif answer is not None and partition is not None and key in consumer.told:
                high_watermark, log_start, error = consumer.told[key]
                if not error:
                    assert partition.log is not None
                    assert (high_watermark, log_start) == (
                        partition.high_watermark,
                        partition.log.log_start_offset,
                    ), key
    assert consumer.records > 0


def many(count: int) -> tuple[ManualHost, Consumer]:
    host = ManualHost()
    host.create_topic("a", count)
    consumer = Consumer(host)
    consumer.add(*[("a", index) for index in range(count)])
    consumer.fetch()
    host.advance(1.0)  # it waits in vain: all are quiet afterwards
    assert consumer.receive() is not None
    return host, consumer


def test_a_fetch_looks_only_at_partitions_with_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 partitions of which three get records: the work is that of three."""
    looked: list[int] = []
    look = fetch_handler.Gathering._gather_partition

    def counted(self: Any, now: Any, topic: Any, wanted: Any, partition: Any) -> None:
        looked.append(partition.index)
        look(self, now, topic, wanted, partition)

    monkeypatch.setattr(fetch_handler.Gathering, "_gather_partition", counted)
    host, consumer = many(2_000)
    consumer.fetch()
    host.advance(1.0)
    consumer.receive()
    looked.clear()
    for index in (7, 700, 1_700):
        write(host, "a", index)
    consumer.fetch()
    answer = consumer.receive()
    assert [topic.partitions[0].partition_index for topic in answer.responses if topic.partitions[0].records]
    assert consumer.records == 3
    assert sorted(looked) == [7, 700, 1_700]
    looked.clear()
    consumer.fetch()  # names these three, and waits
    assert consumer.receive() is None
    write(host, "a", 5)
    assert consumer.receive() is not None
    assert sorted(looked) == [5, 7, 700, 1_700]


def test_who_was_served_waits_for_the_others() -> None:
    """An answer has room for one batch: each partition has its turn."""
    host, consumer = many(4)
    served: list[int] = []
    for _ in range(3):
        for index in range(4):
            write(host, "a", index)
    for _ in range(12):
        consumer.fetch(max_bytes=1)
        (topic,) = [t for t in consumer.receive().responses if t.partitions[0].records]
        served.append(topic.partitions[0].partition_index)
    assert sorted(served[:4]) == sorted(served[4:8]) == sorted(served[8:]) == [0, 1, 2, 3]


def test_a_change_of_the_isolation_level_is_heeded() -> None:
    """What is quiet for a reader of committed records is not for the other one."""
    host, consumer = many(2)
    consumer.isolation = 1
    consumer.fetch()
    host.advance(1.0)
    consumer.receive()
    Trouble(host, Random(1), 2).begin()
    consumer.fetch()
    host.advance(1.0)
    consumer.receive()
    assert consumer.records == 0
    consumer.isolation = 0
    consumer.fetch()
    assert consumer.receive() is not None
    assert consumer.records == 1


def waiters(host: ManualHost) -> int:
    return sum(len(partition.waiters) for partition in host.partitions("a"))


def test_a_session_without_a_reader_costs_an_append_once() -> None:
    host, consumer = many(3)
    host.node.disconnected(host.clock.now(), consumer.connection)
    assert waiters(host) == 3
    for index in range(3):
        write(host, "a", index)
    assert waiters(host) == 0


def test_a_session_that_ends_leaves_its_partitions() -> None:
    host, consumer = many(3)
    consumer.epoch = -1
    consumer.fetch()
    host.advance(1.0)
    assert waiters(host) == 0


def test_a_session_that_is_evicted_while_its_fetch_waits() -> None:
    host, consumer = many(3)
    consumer.fetch()
    sessions = host.node.broker.fetch_sessions
    sessions.forget(consumer.session_id)
    write(host, "a", 1)
    assert host.receive(consumer.connection) is not None
    assert waiters(host) == 0


def test_a_mistake_in_one_fetch_of_a_session_does_not_keep_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, consumer = many(2)
    first = consumer.connection
    consumer.fetch()
    consumer.connection = host.connect()
    consumer.fetch()
    assert first.pending
    assert consumer.is_waiting
    reply = ParkedSessionFetch.reply

    def mistaken(parked: ParkedSessionFetch, *arguments: Any, **options: Any) -> Any:
        if parked.request.connection is first:
            raise RuntimeError("a mistake")
        return reply(parked, *arguments, **options)

    monkeypatch.setattr(ParkedSessionFetch, "reply", mistaken)
    with pytest.raises(RuntimeError, match="a mistake"):
        write(host, "a", 0)
    host.settle()
    assert first.id in host.closed
    assert consumer.receive() is not None
    assert consumer.records == 1


def test_a_fetch_that_waits_does_not_keep_what_it_found() -> None:
    """Each of a hundred consumers may wait for ten thousand partitions."""
    _, consumer = many(20)
    consumer.isolation = 1  # it looks at all of them again
    gc.collect()
    before = sum(type(each) is PartitionData for each in gc.get_objects())
    consumer.fetch()
    assert consumer.is_waiting
    assert sum(type(each) is PartitionData for each in gc.get_objects()) <= before
