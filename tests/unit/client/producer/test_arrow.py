"""Tables of pyarrow as records: slices share buffers, columns have nulls, and nothing is lost on the way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest

from harness.producer_simulation import TOPIC, NobodyWaits, ProducerSimulation
from headrace.client.errors import InvalidInput, RecordLost
from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer.arrow import slices
from headrace.client.producer.deliveries import PartitionRows, TableDelivery, TableMetadata
from headrace.records.batch import check_crc
from headrace.records.reader import read_rows

ROWS = 300


def accumulator() -> Accumulator:
    made = Accumulator(NobodyWaits(), lambda topic_queues: topic_queues.candidates[0], batch_bytes=2000)
    made.learn(TOPIC, [True])
    return made


def taken(table: pyarrow.Table, **columns: Any) -> list[tuple[Any, ...]]:
    """(timestamp, key, value) of all records that the table becomes."""
    made = accumulator()
    for piece in slices(table, **columns):
        count, _ = made.append_columns(
            0.0, TOPIC, 0, piece.row_count, piece.keys, piece.values, piece.timestamps, 77, 0
        )
        assert count == piece.row_count
    found: list[tuple[Any, ...]] = []
    for queue in made.busy:
        for batch in queue.waiting:
            view = bytes(batch.seal(0, None, False))
            found += [row[1:4] for row in read_rows(view, 0, check_crc(view))]
    return found


KEYS = [None if number % 3 == 0 else f"k{number}" for number in range(ROWS)]
VALUES = [None if number % 5 == 0 else b"v" * (number % 40) for number in range(ROWS)]


def expected(first: int, last: int) -> list[tuple[Any, ...]]:
    return [(77, key and key.encode(), value) for key, value in zip(KEYS, VALUES, strict=True)][first:last]


@pytest.mark.parametrize("text", [pyarrow.string(), pyarrow.large_string()])
@pytest.mark.parametrize("binary", [pyarrow.binary(), pyarrow.large_binary()])
def test_text_and_bytes_go_as_they_are(text: Any, binary: Any) -> None:
    table = pyarrow.table({"k": pyarrow.array(KEYS, text), "v": pyarrow.array(VALUES, binary)})
    assert taken(table, key="k", value="v") == expected(0, ROWS)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2), (5, 13), (8, ROWS), (ROWS - 1, ROWS)])
def test_a_part_of_a_table_is_that_part(first: int, last: int) -> None:
    table = pyarrow.table({"k": KEYS, "v": pyarrow.array(VALUES, pyarrow.binary())})
    assert taken(table.slice(first, last - first), key="k", value="v") == expected(first, last)


def test_a_table_of_many_chunks_keeps_its_order() -> None:
    table = pyarrow.table({"k": KEYS, "v": pyarrow.array(VALUES, pyarrow.binary())})
    chunked = pyarrow.concat_tables([table.slice(start, 7) for start in range(0, ROWS, 7)])
    assert taken(chunked, key="k", value="v") == expected(0, ROWS)


def test_timestamps_come_from_a_column() -> None:
    moments = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC)]
    for kind in (pyarrow.timestamp("us", "UTC"), pyarrow.timestamp("ns", "UTC"), pyarrow.timestamp("ms")):
        column = pyarrow.array(moments, pyarrow.timestamp("us", "UTC")).cast(kind, safe=False)
        table = pyarrow.table({"value": ["a", "b"], "at": column})
        times = [row[0] for row in taken(table, timestamp="at")]
        assert times == [1_767_225_600_000, 1_767_225_601_999]
    table = pyarrow.table({"value": ["a", "b", "c"], "at": [1, 2, 3]}).slice(1)
    assert [row[0] for row in taken(table, timestamp="at")] == [2, 3]


def test_what_cannot_be_written_is_told() -> None:
    table = pyarrow.table({"value": ["a"], "number": [5], "maybe": pyarrow.array([None], pyarrow.int64())})
    with pytest.raises(InvalidInput, match="no column 'x'"):
        taken(table, value="x")
    with pytest.raises(InvalidInput, match="int64; cast it"):
        taken(table, value="number")
    with pytest.raises(InvalidInput, match="must be timestamp"):
        taken(table, timestamp="value")
    with pytest.raises(InvalidInput, match="nulls"):
        taken(table, timestamp="maybe")


def test_a_table_arrives_and_each_batch_tells_when() -> None:
    simulation = ProducerSimulation(linger_s=0.0, batch_bytes=500)
    simulation.learn_topic()
    table = pyarrow.table({"value": [f"row {number}" for number in range(ROWS)]})
    heard: list[int] = []
    for piece in slices(table):
        count, batches = simulation.accumulator.append_columns(
            simulation.now, TOPIC, 0, piece.row_count, piece.keys, piece.values, None, 77, 1
        )
        assert count == ROWS
        assert sum(batch.count for batch in batches) == ROWS
        heard += [batch.count for batch in batches]
    simulation.settle()
    assert simulation.values(1) == [b"row %d" % number for number in range(ROWS)]
    assert len(heard) > 1


HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    [("a", b"1"), ("b", None)]
    if number % 4 == 0
    else []
    if number % 4 == 1
    else None
    if number % 4 == 2
    else [("c", b"")]
    for number in range(ROWS)
]
PAIRS = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])


def taken_headers(table: pyarrow.Table) -> list[Any]:
    made = accumulator()
    for piece in slices(table, headers="headers"):
        made.append_columns(
            0.0, TOPIC, 0, piece.row_count, None, piece.values, None, 77, 0, piece.tails, piece.partitions
        )
    return [
        row[4]
        for queue in made.busy
        for batch in queue.waiting
        for view in [bytes(batch.seal(0, None, False))]
        for row in read_rows(view, 0, check_crc(view))
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.map_(pyarrow.string(), pyarrow.binary()),
        pyarrow.list_(PAIRS),
        pyarrow.large_list(PAIRS),
    ],
    ids=str,
)
@pytest.mark.parametrize(("first", "last"), [(0, ROWS), (1, 1), (3, 40), (ROWS - 1, ROWS)])
def test_headers_are_a_map_or_a_list_of_pairs(kind: Any, first: int, last: int) -> None:
    rows: list[Any] = list(HEADERS)
    if not pyarrow.types.is_map(kind):
        rows = [
            None if row is None else [{"key": key, "value": value} for key, value in row] for row in HEADERS
        ]
    table = pyarrow.table({"value": ["v"] * ROWS, "headers": pyarrow.array(rows, kind)})
    expected = [tuple(row or ()) for row in HEADERS[first:last]]
    assert taken_headers(table.slice(first, last - first)) == expected


def test_headers_without_nulls_share_their_buffers() -> None:
    """No list is written again: the offsets of a part of a table begin where they begin."""
    rows = [[("n", b"%d" % number)] * (number % 3) for number in range(ROWS)]
    column = pyarrow.array(rows, pyarrow.map_(pyarrow.string(), pyarrow.binary()))
    table = pyarrow.table({"value": ["v"] * ROWS, "headers": column})
    assert taken_headers(table.slice(100, 50)) == [tuple(row) for row in rows[100:150]]


def test_partitions_come_from_a_column_and_null_leaves_the_choice() -> None:
    table = pyarrow.table({"value": ["v"] * 4, "at": pyarrow.array([0, None, 7, 1], pyarrow.int16())})
    (piece,) = slices(table, partition="at")
    assert piece.partitions is not None
    assert list(piece.partitions) == [0, -1, 7, 1]
    for wrong in (["a"], [-1], [0.5]):
        with pytest.raises(InvalidInput, match="column 'at'"):
            list(slices(pyarrow.table({"value": ["v"], "at": wrong}), partition="at"))


@pytest.mark.parametrize("wrong", [["text"], [[1]], [{"a": 1}], [5]], ids=str)
def test_headers_of_another_shape_are_told(wrong: list[Any]) -> None:
    with pytest.raises(InvalidInput, match="column 'headers'"):
        taken_headers(pyarrow.table({"value": ["v"], "headers": wrong}))


def test_a_dictionary_of_texts_goes_as_its_texts() -> None:
    column = pyarrow.array(["x", "y", None, "x"]).dictionary_encode()
    assert [row[2] for row in taken(pyarrow.table({"value": column}))] == [b"x", b"y", None, b"x"]


class TestDelivery:
    def send(self, simulation: ProducerSimulation, rows: int) -> TableDelivery:
        table = pyarrow.table({"value": [f"row {number}" for number in range(rows)]})
        delivery = TableDelivery(TOPIC, NobodyWaits())
        for piece in slices(table):
            delivery.add(
                *simulation.accumulator.append_columns(
                    simulation.now, TOPIC, 0, piece.row_count, None, piece.values, None, 77, 0
                )
            )
        return delivery

    def test_it_tells_where_its_rows_lie_among_others(self) -> None:
        simulation = ProducerSimulation(linger_s=0.0, batch_bytes=500)
        simulation.learn_topic()
        simulation.send(0, b"before")
        delivery = self.send(simulation, ROWS)
        simulation.send(0, b"after")
        heard: list[Any] = []
        delivery.add_callback(heard.append)
        delivery.add_errback(lambda error: heard.append("failed"))
        assert not delivery.is_done
        simulation.settle()
        for batch in simulation.sender.take_settled():
            assert batch.call_listeners() == []
        expected = TableMetadata(TOPIC, ROWS, {0: PartitionRows(ROWS, 1, ROWS)})
        assert delivery.result() == expected
        assert heard == [expected]

    def test_it_follows_batches_that_are_split(self) -> None:
        simulation = ProducerSimulation(
            linger_s=0.0, batch_bytes=8000, topic_configs={"max.message.bytes": "1000"}
        )
        simulation.learn_topic()
        simulation.send(0, b"before")
        delivery = self.send(simulation, ROWS)
        heard: list[Any] = []
        delivery.add_callback(heard.append)
        simulation.settle()
        for batch in simulation.sender.take_settled():
            assert batch.call_listeners() == []
        assert delivery.result().partitions == {0: PartitionRows(ROWS, 1, ROWS)}
        assert heard == [delivery.result()]
        assert simulation.values(0)[1:] == [b"row %d" % number for number in range(ROWS)]

    def test_one_row_that_fails_fails_it(self) -> None:
        simulation = ProducerSimulation(linger_s=0.0, batch_bytes=500, delivery_s=5.0)
        simulation.learn_topic()
        delivery = self.send(simulation, ROWS)
        heard: list[Any] = []
        delivery.add_errback(heard.append)
        simulation.network.exchange()
        simulation.sender.give_up(RecordLost("closed"))
        for batch in simulation.sender.take_settled():
            assert batch.call_listeners() == []
        assert delivery.is_done
        with pytest.raises(RecordLost, match="closed"):
            delivery.result()
        assert len(heard) == 1

    def test_a_table_without_rows_is_delivered(self) -> None:
        simulation = ProducerSimulation()
        simulation.learn_topic()
        assert self.send(simulation, 0).result() == TableMetadata(TOPIC, 0, {})
