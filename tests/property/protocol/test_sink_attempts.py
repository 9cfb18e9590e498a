"""Records of attempts written many at a time are what the general codec writes, in both forms."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interpreted import interpreted
from headrace.machines.sinks.sink import Attempt, Sink, Status
from headrace.machines.sinks.sink_records import SinkRecords, replay
from headrace.protocol import _sink_attempts
from headrace.protocol.coordinator_records import encode, encode_batch
from headrace.protocol.errors import UnencodableMessage
from headrace.records import _codec
from headrace.records.builder import build_batch

INTERPRETED = interpreted("_sink_attempts").sink_attempts
FORMS = pytest.mark.parametrize("form", [_sink_attempts, INTERPRETED], ids=["as built", "interpreted"])

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.sampled_from(["", "a", "ü", "n" * 200]) | st.text(max_size=8)
places = st.frozensets(st.tuples(names, int32), max_size=5)
attempts = st.builds(Attempt, int64, int16, int32, int64, st.sampled_from(list(Status)[:3]), places)


@st.composite
def changed(draw: st.DrawFn) -> SinkRecords:
    sink = Sink(draw(names), query_id="q", updated_ms=draw(int64), batch_id=draw(int64))
    made = draw(st.lists(attempts, max_size=150, unique_by=lambda attempt: attempt.producer_id))
    spares = draw(st.dictionaries(int64, int16, max_size=5))
    gone = draw(st.lists(int64, max_size=5))
    says_own = draw(st.booleans()) or not (made or spares)
    return SinkRecords(sink, made, list(spares.items()), gone, says_own=says_own)


@settings(max_examples=60, deadline=None)
@given(records=changed(), wall_ms=st.integers(0, 2**62))
def test_the_bytes_of_a_change(records: SinkRecords, wall_ms: int) -> None:
    assert encode_batch(records, wall_ms) == build_batch(
        [(wall_ms, *encode(record), ()) for record in records]
    )
    assert len(list(records)) == len(records)


@settings(max_examples=60, deadline=None)
@given(before=changed(), records=changed())
def test_a_change_is_replayed_as_its_records_are(before: SinkRecords, records: SinkRecords) -> None:
    """In the same order, too: spare producers are taken in the order in which they came."""
    at_once: dict[str, Sink] = {}
    one_by_one: dict[str, Sink] = {}
    for each in (before, records):
        each.replay(at_once)
        for record in each:
            replay(one_by_one, record)
    assert at_once == one_by_one
    for name, sink in one_by_one.items():
        assert list(sink.attempts.items()) == list(at_once[name].attempts.items())
        assert list(sink.spares.items()) == list(at_once[name].spares.items())


@FORMS
@settings(max_examples=60, deadline=None)
@given(made=st.lists(attempts, max_size=40), first_delta=st.integers(0, 20_000))
def test_both_forms(form: ModuleType, made: list[Any], first_delta: int) -> None:
    key, tail = b"\0\1\0\3app", bytes(9)
    topics = [bytes(len(attempt.partitions)) for attempt in made]
    rows: list[Any] = []
    for number, (attempt, places) in enumerate(zip(made, topics), first_delta):
        producer_id, epoch, task, tried, status, _ = attempt
        fields = ((0, 2), (epoch, 2), (status, 1), (task, 4), (tried, 8))
        value = b"".join(field.to_bytes(size, "big", signed=True) for field, size in fields)
        value += places + tail
        rows.append((number, 5, key + producer_id.to_bytes(8, "big", signed=True), value, ()))
    assert form.encode_attempts(key, made, topics, tail, first_delta) == _codec.encode_at(rows, 0, 5)


@FORMS
def test_what_cannot_be_written(form: ModuleType) -> None:
    attempt = Attempt(1, 2, 3, 4)
    with pytest.raises(UnencodableMessage):
        form.encode_attempts(b"k", [attempt], [], b"", 0)
    with pytest.raises(UnencodableMessage):
        form.encode_attempts(b"k", [attempt], [b""], b"", -1)
