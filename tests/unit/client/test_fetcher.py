"""The consumer's machine: positions, leaders, errors; and chunks, from bytes to records."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headrace.base.time import NEVER, Instant
from headrace.client.chunks import records_of
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import BadResponse, ConnectionLost, KafkaError
from headrace.client.fetcher import READ_COMMITTED, READ_UNCOMMITTED, Chunk, Fetcher, Flight
from headrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.messages.metadata import MetadataResponse
from headrace.records.builder import build_batch, end_marker

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
PATIENCE_S = 20.0


@pytest.fixture
def fetcher(dice: random.Random) -> Fetcher:
    return Fetcher(
        dice,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        partition_bytes=100,
        isolation=READ_UNCOMMITTED,
        patience_s=PATIENCE_S,
    )


def batch(base_offset: int, *values: bytes, codec: int = 0, producer_id: int = -1) -> bytes:
    records = [(1000 + i, b"k", value, (("h", b"v"),)) for i, value in enumerate(values)]
    is_transactional = producer_id >= 0
    return build_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        transactional=is_transactional,
    )


def answer(
    at: TopicPartition,
    records: bytes = b"",
    *,
    error_code: int = 0,
    aborted: list[AbortedTransaction] | None = None,
) -> FetchResponse:
    data = PartitionData(
        partition_index=at.partition,
        error_code=error_code,
        high_watermark=99,
        records=memoryview(records),
        aborted_transactions=aborted,
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic=at.topic, partitions=[data])])


def departed(fetcher: Fetcher, cluster: Cluster, now: float = 0.0) -> Flight:
    (flight,) = fetcher.departures(Instant(now), cluster)
    return flight


class TestFetcher:
    def test_one_fetch_per_leader_with_all_it_leads(
        self, fetcher: Fetcher, cluster: Cluster, told: Callable[..., MetadataResponse]
    ) -> None:
        cluster.update(told(1, 2, 1))
        for partition, offset in enumerate((5, 6, 7)):
            fetcher.assign(TopicPartition("orders", partition), offset)
        flights = fetcher.departures(Instant(0.0), cluster)
        assert {flight.broker: flight.offsets for flight in flights} == {
            1: {FIRST: 5, TopicPartition("orders", 2): 7},
            2: {SECOND: 6},
        }
        asked = flights[0].request
        assert (asked.max_wait_ms, asked.min_bytes, asked.max_bytes, asked.session_epoch) == (
            500,
            1,
            1000,
            -1,
        )
        assert asked.topics[0].partitions[0].current_leader_epoch == 3
        assert fetcher.departures(Instant(0.0), cluster) == [], "each leader owes an answer"

    def test_an_answer_moves_the_position_behind_its_last_batch(
        self, fetcher: Fetcher, cluster: Cluster
    ) -> None:
        fetcher.assign(FIRST, 11)
        flight = departed(fetcher, cluster)
        records = batch(10, b"a", b"b") + batch(12, b"c")
        (chunk,) = fetcher.answered(Instant(0.0), flight, answer(FIRST, records), cluster)
        assert (chunk.start, chunk.next_offset, chunk.high_watermark) == (11, 13, 99)
        assert fetcher.position(FIRST) == 13
        assert departed(fetcher, cluster).offsets == {FIRST: 13}

    def test_an_empty_answer_changes_nothing(self, fetcher: Fetcher, cluster: Cluster) -> None:
        fetcher.assign(FIRST, 11)
        flight = departed(fetcher, cluster)
        assert fetcher.answered(Instant(0.0), flight, answer(FIRST), cluster) == []
        assert fetcher.position(FIRST) == 11

    def test_an_old_answer_does_not_move_a_new_position(self, fetcher: Fetcher, cluster: Cluster) -> None:
        fetcher.assign(FIRST, 10)
        flight = departed(fetcher, cluster)
        fetcher.assign(FIRST, 500)
        assert fetcher.answered(Instant(0.0), flight, answer(FIRST, batch(10, b"a")), cluster) == []
        assert fetcher.position(FIRST) == 500

    def test_an_answer_for_a_partition_that_was_dropped(self, fetcher: Fetcher, cluster: Cluster) -> None:
        fetcher.assign(FIRST, 10)
        flight = departed(fetcher, cluster)
        fetcher.unassign(FIRST)
        assert fetcher.answered(Instant(0.0), flight, answer(FIRST, batch(10, b"a")), cluster) == []
        assert fetcher.assignment == []

    def test_a_moved_leader_is_asked_after_a_pause(
        self, fetcher: Fetcher, cluster: Cluster, told: Callable[..., MetadataResponse]
    ) -> None:
        fetcher.assign(FIRST, 10)
        flight = departed(fetcher, cluster)
        fetcher.answered(Instant(1.0), flight, answer(FIRST, error_code=6), cluster)
        assert cluster.stale == {"orders"}
        cluster.update(told(2, 2))
        assert fetcher.departures(Instant(1.0), cluster) == []
        wake_at = fetcher.deadline(Instant(1.0))
        assert wake_at < NEVER
        assert departed(fetcher, cluster, wake_at).broker == 2

    def test_an_offset_out_of_range_is_told_with_the_offset(self, fetcher: Fetcher, cluster: Cluster) -> None:
        fetcher.assign(FIRST, 123)
        flight = departed(fetcher, cluster)
        with pytest.raises(KafkaError, match="offset 123 of partition orders-0") as raised:
            fetcher.answered(Instant(0.0), flight, answer(FIRST, error_code=1), cluster)
        assert raised.value.name == "OFFSET_OUT_OF_RANGE"

    def test_a_lost_broker_is_waited_for_with_patience(self, fetcher: Fetcher, cluster: Cluster) -> None:
        fetcher.assign(FIRST, 10)
        now = 0.0
        while now < PATIENCE_S:
            fetcher.failed(Instant(now), departed(fetcher, cluster, now), ConnectionLost("gone"), cluster)
            cluster.stale.clear()
            now = fetcher.deadline(Instant(now))
        flight = departed(fetcher, cluster, now)
        with pytest.raises(ConnectionLost):
            fetcher.failed(Instant(now), flight, ConnectionLost("gone"), cluster)

    def test_success_restores_patience(self, fetcher: Fetcher, cluster: Cluster) -> None:
        fetcher.assign(FIRST, 10)
        fetcher.failed(Instant(0.0), departed(fetcher, cluster), ConnectionLost("gone"), cluster)
        cluster.stale.clear()
        flight = departed(fetcher, cluster, 5.0)
        fetcher.answered(Instant(5.0), flight, answer(FIRST), cluster)
        flight = departed(fetcher, cluster, PATIENCE_S + 1)
        fetcher.failed(Instant(PATIENCE_S + 1), flight, ConnectionLost("gone"), cluster)
        assert fetcher.assignment == [FIRST]

    def test_partitions_take_turns_at_the_head_of_a_fetch(
        self, fetcher: Fetcher, cluster: Cluster, told: Callable[..., MetadataResponse]
    ) -> None:
        cluster.update(told(1, 1, 1))
        for partition in range(3):
            fetcher.assign(TopicPartition("orders", partition), 0)
        heads = []
        for _ in range(3):
            flight = departed(fetcher, cluster)
            heads.append(next(iter(flight.offsets)).partition)
            fetcher.answered(Instant(0.0), flight, answer(FIRST), cluster)
        assert heads == [0, 1, 2]

    @pytest.mark.parametrize("records", [batch(3, b"old"), batch(10, b"cut off")[:-1]])
    def test_records_that_lead_nowhere_do_not_make_a_tight_loop(
        self, fetcher: Fetcher, cluster: Cluster, records: bytes
    ) -> None:
        fetcher.assign(FIRST, 10)
        flight = departed(fetcher, cluster)
        with pytest.raises(BadResponse, match="do not reach offset 10"):
            fetcher.answered(Instant(0.0), flight, answer(FIRST, records), cluster)

    def test_a_negative_batch_length_is_the_brokers_fault(self, fetcher: Fetcher, cluster: Cluster) -> None:
        fetcher.assign(FIRST, 10)
        flight = departed(fetcher, cluster)
        broken = bytearray(batch(10, b"a"))
        broken[8:12] = b"\xff\xff\xff\xff"
        with pytest.raises(BadResponse, match="orders-0"):
            fetcher.answered(Instant(0.0), flight, answer(FIRST, bytes(broken)), cluster)


def chunk(records: bytes, start: int, aborted: list[AbortedTransaction] | None = None) -> Chunk:
    return Chunk(FIRST, memoryview(records), start, 10_000, 10_000, 10_000, 0, aborted or [])


def values(chunk: Chunk, isolation: int = READ_UNCOMMITTED) -> list[bytes | None]:
    return [record.value for found in records_of(chunk, isolation) for record in found]


class TestChunks:
    @pytest.mark.parametrize("codec", range(5))
    def test_records_come_out_with_everything_they_have(self, codec: int) -> None:
        ((record,),) = records_of(chunk(batch(7, b"v", codec=codec), 0), READ_UNCOMMITTED)
        assert record == ("orders", 0, 7, 1000, b"k", b"v", (("h", b"v"),))

    def test_what_lies_before_the_asked_offset_is_left_out(self) -> None:
        data = batch(0, b"a", b"b") + batch(2, b"c", b"d") + batch(4, b"e")
        assert values(chunk(data, 3)) == [b"d", b"e"]

    def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch(self) -> None:
        assert values(chunk(batch(0, b"a") + batch(1, b"b")[:-1], 0)) == [b"a"]

    def test_a_flipped_bit_is_told(self) -> None:
        broken = bytearray(batch(0, b"aaaa"))
        broken[-3] ^= 1
        with pytest.raises(BadResponse, match="checksum"):
            values(chunk(bytes(broken), 0))

    def test_ends_of_transactions_are_no_records(self) -> None:
        marker = end_marker(
            committed=True, coordinator_epoch=0, producer_id=5, producer_epoch=0, timestamp=1, base_offset=1
        )
        data = batch(0, b"a", producer_id=5) + marker + batch(2, b"b")
        assert values(chunk(data, 0)) == [b"a", b"b"]

    def test_aborted_transactions_are_left_out_only_if_asked_for(self) -> None:
        """Producer 5 aborts offsets 0–2, commits 4; producer 6 goes on between them."""
        abort = end_marker(
            committed=False, coordinator_epoch=0, producer_id=5, producer_epoch=0, timestamp=1, base_offset=3
        )
        data = (
            batch(0, b"lost", producer_id=5)
            + batch(1, b"kept", producer_id=6)
            + batch(2, b"lost too", producer_id=5)
            + abort
            + batch(4, b"later", producer_id=5)
        )
        aborted = [AbortedTransaction(producer_id=5, first_offset=0)]
        assert values(chunk(data, 0, aborted), READ_COMMITTED) == [b"kept", b"later"]
        assert len(values(chunk(data, 0, aborted), READ_UNCOMMITTED)) == 4
