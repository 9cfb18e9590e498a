"""What counts and what is there: aborted and open transactions, markers at the end of a log, and offsets that
compaction left empty. Only committed records are read unless kafka.isolation.level says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import headrace
from harness.wait import eventually

UNCOMMITTED = {"kafka__isolation__level": "read_uncommitted"}


def values(frame):
    return [bytes(row.value).decode() for row in frame.orderBy("offset").collect()]


@pytest.fixture
def writer(servers, new_topic):
    """A transactional producer, and a topic for it."""
    topic = new_topic()
    with headrace.Producer(servers, transactional_id=f"writer of {topic}") as producer:
        yield producer, topic


@contextmanager
def opened(producer: headrace.Producer, topic: str, *texts: str) -> Iterator[None]:
    """A transaction in which these were written, and which is aborted afterwards."""
    producer.begin_transaction()
    for text in texts:
        producer.send(topic, text.encode())
    producer.flush()
    yield
    producer.abort_transaction()


def committed(producer: headrace.Producer, topic: str, *texts: str) -> None:
    with producer.transaction():
        for text in texts:
            producer.send(topic, text.encode())


def test_only_what_is_committed_is_read_unless_asked_otherwise(read, writer):
    producer, topic = writer
    committed(producer, topic, "committed")
    with opened(producer, topic, "aborted"):
        pass
    committed(producer, topic, "committed too")
    with opened(producer, topic, "open"):
        assert values(read(topic)) == ["committed", "committed too"]
        assert values(read(topic, **UNCOMMITTED)) == ["committed", "aborted", "committed too", "open"]
    assert values(read(topic, minPartitions=3)) == ["committed", "committed too"], "in parts, too"


def test_a_stream_stops_before_an_open_transaction(stream, run, writer):
    producer, topic = writer
    strict = stream(topic, startingOffsets="earliest")
    loose = stream(topic, startingOffsets="earliest", **UNCOMMITTED)
    committed(producer, topic, "0", "1")  # and a marker at 2
    with opened(producer, topic, "3", "4"):
        assert run(strict, "strict") == ([(0, 0), (0, 1)], [2])
        assert run(loose, "loose")[0] == [(0, 0), (0, 1), (0, 3), (0, 4)]
        assert run(strict, "strict")[1] == []
    committed(producer, topic, "6")
    assert run(strict, "strict") == ([(0, 0), (0, 1), (0, 6)], [1])


def test_where_nothing_but_markers_is_left(stream, run, read, writer, admin):
    """A batch in which there is no row at all: all that is new was aborted."""
    producer, topic = writer
    group = f"readers of {topic}"
    frame = stream(topic, startingOffsets="earliest", kafka__group__id=group)
    committed(producer, topic, "0")
    assert run(frame) == ([(0, 0)], [1])
    for number in range(3):
        with opened(producer, topic, f"aborted {number}"):
            pass
    assert run(frame) == ([(0, 0)], [])
    assert admin.group_lag(group)[0].lag == 0, "it is behind the markers"
    assert values(read(topic, maxRecordsPerPartition=1)) == ["0"], "tasks that find markers only"


def test_offsets_that_compaction_left_empty(read, stream, run, new_topic, producer):
    """Ranges begin and end in the middle of a hole."""
    eager = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    topic = new_topic(config=eager)

    def send(number: int, key: str) -> None:
        producer.send(topic, b"%d" % number, key.encode(), timestamp_ms=1_000 * number).get(30)

    for number in range(40):
        send(number, f"key-{number % 4}")
    last = 39

    def remaining() -> list[str]:
        nonlocal last
        last += 1
        # begins a segment, since the newest one is never cleaned; no other record has its key, so it stays
        send(last, f"end-{last}")
        return values(read(topic).where("cast(key as string) not like 'end%'"))

    eventually(remaining, ["36", "37", "38", "39"], timeout_s=120)
    there = values(read(topic))
    assert len(there) < last, "there are holes"
    assert values(read(topic, maxRecordsPerPartition=3)) == there
    assert values(read(topic, minPartitions=7)) == there
    rows, sizes = run(stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=10))
    assert [str(offset) for _, offset in rows] == there
    assert len(sizes) < (last + 9) // 10, "there were batches of holes only"


def test_an_empty_topic_has_no_rows(read, stream, run, new_topic, fill):
    topic = new_topic(3)
    assert read(topic).collect() == []
    frame = stream(topic, startingOffsets="earliest")
    assert run(frame) == ([], [])
    fill(topic, 1, (2,))
    assert run(frame) == ([(2, 0)], [1])
