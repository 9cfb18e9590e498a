"""Where queries begin and end: by offsets and by times, everywhere alike or partition by partition."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException


def offsets(frame):
    """(partition, offset) of every row, in order."""
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


@pytest.fixture
def topic(new_topic, fill):
    """Five records in each of two partitions, the first of second 1, the last of second 5."""
    name = new_topic(2)
    fill(name, 5, (0, 1))
    return name


@pytest.fixture
def by_partition(topic):
    """What an option says about the two partitions."""
    return lambda first, second: json.dumps({topic: {"0": first, "1": second}})


# --- batches ---------------------------------------------------------------------------------------------


def test_offsets_say_where_to_begin_and_to_end(read, topic, by_partition):
    everything = [(partition, offset) for partition in (0, 1) for offset in range(5)]
    assert offsets(read(topic)) == everything
    assert offsets(read(topic, startingOffsets="earliest", endingOffsets="latest")) == everything
    found = offsets(read(topic, startingOffsets=by_partition(3, -2), endingOffsets=by_partition(-1, 2)))
    assert found == [(0, 3), (0, 4), (1, 0), (1, 1)]
    assert offsets(read(topic, startingOffsets=by_partition(5, 2), endingOffsets=by_partition(5, 2))) == []


def test_times_say_where_to_begin_and_to_end(read, topic, by_partition):
    found = offsets(read(topic, startingTimestamp=3_000, endingTimestamp=5_000))
    assert found == [(0, 2), (0, 3), (1, 2), (1, 3)]
    starts, ends = by_partition(4_500, 1_000), by_partition(99_000, 1_001)
    found = offsets(read(topic, startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends))
    assert found == [(0, 4), (1, 0)], "an end later than all records is the end"


def test_a_beginning_later_than_all_records(read, topic, by_partition):
    with pytest.raises(PySparkException, match="no record with a timestamp of 99000 ms"):
        read(topic, startingTimestamp=99_000).collect()
    each = by_partition(5_000, 99_000)
    with pytest.raises(
        PySparkException, match=f"partition {topic}-1 has no record with a timestamp of 99000 ms"
    ):
        read(topic, startingOffsetsByTimestamp=each, startingOffsetsByTimestampStrategy="error").collect()
    forgiving = {"startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(read(topic, startingOffsetsByTimestamp=each, **forgiving)) == [(0, 4)]
    assert read(topic, startingTimestamp=99_000, **forgiving).count() == 0


def test_a_time_wins_over_an_offset(read, topic, by_partition):
    """As with Spark's connector: startingTimestamp, then times by partition, then offsets."""
    found = read(
        topic,
        startingOffsets="earliest",
        startingOffsetsByTimestamp=by_partition(4_000, 4_000),
        startingTimestamp=5_000,
        endingOffsets=by_partition(1, 1),
        endingOffsetsByTimestamp=by_partition(99_000, 99_000),
    )
    assert offsets(found) == [(0, 4), (1, 4)]


def test_all_partitions_have_to_be_named(read, topic, new_topic):
    other = new_topic()
    with pytest.raises(PySparkException, match=f"partition {topic}-1 has no offset"):
        read(topic, startingOffsets=json.dumps({topic: {"0": 1}})).collect()
    extra = {topic: {"0": 1, "1": 1}, other: {"0": 0}}
    with pytest.raises(
        PySparkException, match=f"an offset is given for partition {other}-0, which the query does not read"
    ):
        read(topic, endingOffsets=json.dumps(extra)).collect()
    assert offsets(read(f"{topic},{other}", startingOffsets=json.dumps(extra)))[0] == (0, 1)


def test_assigned_partitions_have_offsets_of_their_own(read, topic):
    assigned, starts = json.dumps({topic: [1]}), json.dumps({topic: {"1": 3}})
    assert offsets(read(assign=assigned, startingOffsets=starts)) == [(1, 3), (1, 4)]


# --- streams ---------------------------------------------------------------------------------------------


def test_a_stream_begins_with_what_comes(stream, run, topic, fill):
    frames = {"unsaid": stream(topic), "said": stream(topic, startingOffsets="latest")}
    assert [run(frame, name) for name, frame in frames.items()] == [([], []), ([], [])]
    fill(topic, 3, first=5)
    assert [run(frame, name)[0] for name, frame in frames.items()] == [[(0, 5), (0, 6), (0, 7)]] * 2


def test_a_stream_begins_at_offsets(stream, run, topic, by_partition, fill):
    frame = stream(topic, startingOffsets=by_partition(3, -1))
    assert run(frame)[0] == [(0, 3), (0, 4)]
    fill(topic, 1, (1,), first=5)
    assert run(frame)[0] == [(0, 3), (0, 4), (1, 5)]


def test_a_stream_begins_at_times(stream, run, topic, by_partition):
    assert run(stream(topic, startingTimestamp=5_000), "alike")[0] == [(0, 4), (1, 4)]
    each = by_partition(4_000, 99_000)
    with pytest.raises(
        PySparkException, match=f"partition {topic}-1 has no record with a timestamp of 99000 ms"
    ):
        run(stream(topic, startingOffsetsByTimestamp=each), "strict")
    late = stream(topic, startingOffsetsByTimestamp=each, startingOffsetsByTimestampStrategy="latest")
    assert run(late, "forgiving")[0] == [(0, 3), (0, 4)]


def test_an_assigned_stream_reads_nothing_else(stream, run, topic, fill):
    frame = stream(assign=json.dumps({topic: [1]}), startingOffsets="earliest")
    fill(topic, 1, (0, 1), first=5)
    assert run(frame)[0] == [(1, offset) for offset in range(6)]


def test_what_was_pasted_from_a_checkpoint_is_understood(stream, run, topic, admin):
    topic_id = admin.describe_topic(topic).topic_id
    starts = json.dumps({topic: {"0": 3, "1": 5, "id": topic_id}})
    assert run(stream(topic, startingOffsets=starts))[0] == [(0, 3), (0, 4)]
