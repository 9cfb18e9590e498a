"""What `assert_consumed` takes for the same, and how it tells a difference."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import pytest

from headrace.testing import Broker, Record
from headrace.testing.expectations import Expectation, Found, meets


def found(*values: str, partition: int = 0) -> list[Record]:
    return [Record(value.encode(), partition=partition, offset=offset) for offset, value in enumerate(values)]


def complaint(expected: list[Any], records: list[Record], *, in_order: bool = True) -> str:
    with pytest.raises(AssertionError) as caught:
        Expectation("topic 't'", expected, in_order=in_order).await_from(lambda: Found(1, records), 0)
    return str(caught.value)


A_RECORD = Record(b'{"b":2,"a":1}', b"k", (("h", b"1"),), 3, 1000, "t", 7)


@pytest.mark.parametrize(
    ("expected", "is_met"),
    [
        ('{"b":2,"a":1}', True),
        (b'{"b":2,"a":1}', True),
        ({"a": 1, "b": 2}, True),
        ({"a": 1}, False),
        (None, False),
        (("k", {"a": 1, "b": 2}), True),
        (("j", {"a": 1, "b": 2}), False),
        ((None, {"a": 1, "b": 2}), False),
        (Record(b'{"b":2,"a":1}', b"k"), True),
        (Record(b'{"b":2,"a":1}'), False),
        (Record(b'{"b":2,"a":1}', b"k", headers=(("h", b"1"),), partition=3, timestamp_ms=1000), True),
        (Record(b'{"b":2,"a":1}', b"k", headers=(("h", b"2"),)), False),
        (Record(b'{"b":2,"a":1}', b"k", partition=2), False),
        (Record(b'{"b":2,"a":1}', b"k", timestamp_ms=1001), False),
    ],
)
def test_what_is_compared_is_what_was_said(expected: Any, is_met: bool) -> None:
    assert meets(A_RECORD, expected) is is_met


def test_tombstones_and_what_is_no_json() -> None:
    assert meets(Record(None, b"k"), ("k", None))
    assert not meets(Record(None, b"k"), {"a": 1})
    assert not meets(Record(b"no json"), {"a": 1})


def test_a_record_that_is_missing_is_told_where_it_belongs() -> None:
    assert complaint(["a", "b", "c"], found("a", "c")) == "\n".join(
        [
            "topic 't': expected 3 records, found 2 after 0 s",
            "           0:0 value='a'",
            "  -   expected value='b'",
            "           0:1 value='c'",
            "(- expected and not there, + there and not expected)",
        ]
    )


def test_a_record_too_many_is_told_and_not_waited_for() -> None:
    looks = itertools.count()

    def look() -> Found:
        next(looks)
        return Found(1, found("a", "x", "b"))

    with pytest.raises(AssertionError, match=r"expected 2 records, found 3\n") as caught:
        Expectation("topic 't'", ["a", "b"], in_order=True).await_from(look, 1000)
    assert next(looks) == 1
    assert "  +        0:1 value='x'" in str(caught.value)


def test_a_wrong_order_is_a_difference_only_where_order_counts() -> None:
    assert "  -   expected value='b'" in complaint(["b", "a"], found("a", "b"))
    records = found("a", "b")
    assert Expectation("t", ["b", "a"], in_order=False).await_from(lambda: Found(1, records), 0) == records


def test_in_any_order_each_record_counts_once() -> None:
    told = complaint(["a", "b"], found("a", "a"), in_order=False)
    assert "expected 2 records in any order" in told
    assert "  +        0:1 value='a'" in told
    assert "  -   expected value='b'" in told


def test_a_long_likeness_is_left_out() -> None:
    values = [str(number) for number in range(100)]
    told = complaint([*values, "last"], found(*values)).splitlines()
    assert told[1] == "    … 98 more"
    assert len(told) == 6


def test_a_long_difference_is_cut() -> None:
    told = complaint([], found(*["x"] * 500)).splitlines()
    assert len(told) < 50
    assert told[-2] == "    … 460 more"


def test_what_is_no_text_is_told_as_bytes() -> None:
    told = complaint([b"\xff\x00", ("k", None)], [])
    assert r"value=b'\xff\x00'" in told
    assert "key='k' value=None" in told


def test_it_waits_until_they_are_there() -> None:
    growing = iter([Found(0, []), Found(1, found("a")), Found(1, found("a", "b"))])
    assert len(Expectation("t", ["a", "b"], in_order=True).await_from(lambda: next(growing), 1000)) == 2


def test_a_tombstone_is_expected_like_any_other_record() -> None:
    records = [Record(None, b"k", partition=0, offset=0)]
    assert Expectation("t", [None], in_order=True).await_from(lambda: Found(1, records), 0) == records
    assert "  +        0:0 key='k' value=None" in complaint([], records)


def test_a_topic_that_is_not_there_is_empty() -> None:
    assert Expectation("topic 't'", [], in_order=None).await_from(lambda: Found(0, []), 0) == []
    with pytest.raises(AssertionError, match="expected 1 record, found no such topic after 0 s"):
        Expectation("topic 't'", ["a"], in_order=None).await_from(lambda: Found(0, []), 0)


def test_a_topic_of_several_partitions_has_no_order(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("wide", 4)
    headrace_broker.produce_all("wide", [(str(number), number) for number in range(8)])
    headrace_broker.assert_consumed("wide", list(range(8)))
    with pytest.raises(AssertionError, match="topic 'wide': expected 8 records, found 8"):
        headrace_broker.assert_consumed("wide", list(range(8)), in_order=True, timeout=0)


def test_what_a_group_has_read_is_what_it_has_committed(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", ["a"])
    headrace_broker.consume_all("orders", group="readers")
    headrace_broker.produce_all("orders", ["b"])
    headrace_broker.assert_consumed("orders", ["a"], group="readers")
    with pytest.raises(AssertionError, match="what group 'readers' has read of 'orders'"):
        headrace_broker.assert_consumed("orders", ["a", "b"], group="readers", timeout=0)
    headrace_broker.assert_consumed("orders", ["a", "b"])


def test_a_list_is_a_value_and_a_tuple_is_a_pair() -> None:
    assert meets(Record(b"[1,2]"), [1, 2])
    assert not meets(Record(b"2", b"1"), [1, 2])
    with pytest.raises(ValueError, match=r"\(key, value\) pair"):
        meets(Record(b"1"), (1, 2, 3))


def test_what_compares_as_it_likes_may_do_so() -> None:
    assert meets(Record(b"\xff", b"k"), ("k", mock.ANY))
    assert meets(Record(b'{"id":1,"at":"now"}'), {"id": 1, "at": mock.ANY})
    assert "key='k' value=<ANY>" in complaint([("k", mock.ANY)], [])
