"""What a fetch brought, handed out in any portions, is what decode_rows says: messages and columns alike."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interpreted import interpreted
from harness.mutated_batches import batch_of, mutated
from headrace.client.consumer.arrow import table_of
from headrace.records import _columns, _messages, fetched
from headrace.records.batch import HEADER_BYTES, read_header
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_keys, read_rows

FORMS = pytest.mark.parametrize(
    "form",
    [
        SimpleNamespace(fetched=fetched, columns=_columns, messages=_messages),
        interpreted("_codec", "_messages", "_columns", "fetched"),
    ],
    ids=["as built", "interpreted"],
)

payloads = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3).map(tuple)
records = st.lists(
    st.tuples(st.integers(-1, 1 << 45), payloads, payloads, st.just(()) | headers), min_size=1, max_size=12
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches one behind the other, with gaps, of all codecs, some stamped by the broker."""
    offset = draw(st.integers(0, 1 << 40))
    log = b""
    for rows in draw(st.lists(records, min_size=1, max_size=4)):
        offset += draw(st.integers(0, 3))
        log += build_batch(
            rows,
            base_offset=offset,
            leader_epoch=draw(st.integers(0, 3)),
            codec=draw(st.sampled_from(Codec)),
            append_time=draw(st.sampled_from((-1, 1 << 40))),
        )
        offset += len(rows)
    return log


def rows_of(log: bytes, start: int) -> list[tuple[object, ...]]:
    return [row for at, header in batches(log) for row in read_rows(log, at, header) if row[0] >= start]


def plain(messages: list[Any]) -> list[tuple[object, ...]]:
    return [(m.offset, m.timestamp_ms, m.key, m.value, m.headers) for m in messages]


def plain_table(columns: Any) -> list[tuple[object, ...]]:
    return [
        (
            row["offset"],
            -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table_of(columns).to_pylist()
    ]


@FORMS
@settings(max_examples=30, deadline=None)
@given(log=logs(), skipped=st.integers(0, 5), portions=st.lists(st.integers(1, 7), min_size=60, max_size=60))
def test_messages_in_any_portions(form: Any, log: bytes, skipped: int, portions: list[int]) -> None:
    start = read_header(log).base_offset + skipped
    expected = rows_of(log, start)
    source = form.fetched.Fetched("t", 1, log, start)
    found: list[Any] = []
    for portion in portions:
        if source.is_spent:
            break
        messages = source.take_messages(portion)
        found += messages
        if len(messages) < portion:
            assert source.is_spent
        elif not source.is_spent:
            assert source.next_offset >= messages[-1].offset + 1
            following = expected[len(found)][0] if len(found) < len(expected) else source.end_offset
            assert source.next_offset <= following
    assert plain(found) == expected
    assert source.take_messages(1) == []
    assert (
        source.next_offset
        == source.end_offset
        == max(start, *(header.next_offset for _, header in batches(log)))
    )


@FORMS
@settings(max_examples=30, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from("tu"), st.integers(0, 2), logs(), st.integers(0, 3)), max_size=3
    ),
    first=st.integers(0, 4),
    expected_rows=st.sampled_from((0, 3, 200)),
)
def test_columns_of_several_partitions(
    form: Any, parts: list[tuple[str, int, bytes, int]], first: int, expected_rows: int
) -> None:
    columns = form.columns.Columns(expected_rows, 10 * expected_rows)
    expected: list[tuple[object, ...]] = []
    places: list[tuple[str, int]] = []
    for topic, partition, log, skipped in parts:
        start = read_header(log).base_offset + skipped
        source = form.fetched.Fetched(topic, partition, log, start)
        before = len(source.take_messages(first))  # a user may mix both ways
        assert source.take_columns(columns)
        assert source.is_spent
        rows = rows_of(log, start)[before:]
        expected += rows
        places += [(topic, partition)] * len(rows)
    assert columns.row_count == len(expected)
    table = table_of(columns)
    table.validate(full=True)
    assert plain_table(columns) == expected
    assert list(zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)) == places


@FORMS
def test_rubbish_is_handed_out_up_to_the_damage_and_then_refused(form: Any) -> None:
    """Messages, columns and decode_rows say the same of every batch, sound or not, and in the same words."""
    rng = random.Random(11)
    sound = build_batch([(1, b"k", b"v", (("h", b"x"),))] * 3)
    refusals = 0
    for _ in range(400):
        log = sound + mutated(batch_of(rng), rng)
        try:
            list(batches(log, check=False))
        except BadRecords:
            continue  # for another test
        rows, wrong = read(log)
        source = form.fetched.Fetched("t", 0, log, 0)
        found, refusal = drained(source)
        assert (type(refusal), str(refusal)) == (type(wrong), str(wrong))
        assert plain(found)[: len(rows)] == rows
        assert refusal is not None or len(found) == len(rows)
        columns = form.columns.Columns()
        source = form.fetched.Fetched("t", 0, log, 0)
        assert source.take_columns(columns)
        assert columns.row_count == len(rows)
        assert list(columns.offsets)[: len(rows)] == [row[0] for row in rows]
        if wrong is not None:
            refusals += 1
            with pytest.raises(type(wrong)):
                source.take_columns(columns)
            columns.add(sound[HEADER_BYTES:], 3, 50, 1, -1, "t", 0, 51)  # no trace of what was refused
            assert plain_table(columns) == [*rows, *[(at, 1, b"k", b"v", (("h", b"x"),)) for at in (51, 52)]]
    assert refusals > 50


def read(log: bytes) -> tuple[list[tuple[object, ...]], BadRecords | None]:
    """The rows of the batches before the first damaged one, and what is wrong with that: batch by batch."""
    rows: list[tuple[object, ...]] = []
    position = 0
    try:
        for at, header in batches(log):
            if header.is_control:
                read_keys(log, at, header)
            elif header.next_offset > position:
                rows += [row for row in read_rows(log, at, header) if row[0] >= position]
            position = max(position, header.next_offset)
    except BadRecords as error:
        return rows, error
    return rows, None


def drained(source: Any) -> tuple[list[Any], BadRecords | None]:
    found: list[Any] = []
    try:
        while messages := source.take_messages(2):
            found += messages
    except BadRecords as error:
        return found, error
    return found, None
