"""Messages, compiled and interpreted: plain values, whose headers are read when somebody asks."""

from __future__ import annotations

import copy
import gc
import weakref
from types import ModuleType
from typing import Any

import pytest

from harness.interpreted import interpreted
from headrace.records import _codec, _messages
from headrace.records.compiled import COMPILED
from headrace.records.errors import CorruptRecords

HEADERS = (("trace", b"7"), ("empty", b""), ("null", None), ("trace", b"8"))
RECORDS = [
    (1000, b"k0", b"v0", ()),
    (1001, None, b"v1", HEADERS),
    (1002, b"", None, ()),
    (1003, b"k3", b"", (("\udcff", b"not UTF-8"),)),
]


@pytest.fixture(params=["as built", "interpreted"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "as built":
        return _messages
    messages: ModuleType = interpreted("_codec", "_messages").messages
    return messages


def unread(module: ModuleType, start_offset: int = 0, append_time: int = -1, wound: int = 0) -> Any:
    """The batch of RECORDS at offset 40; `wound` cuts bytes off its end."""
    records = _codec.encode(RECORDS, 1000)
    records = records[: len(records) - wound]
    return module.Unread(records, len(RECORDS), 40, 1000, append_time, "t", 3, 9, start_offset)


def taken(source: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    source.take(messages, count)
    return messages


def test_all_that_a_record_has_is_there(module: ModuleType) -> None:
    messages = taken(unread(module), 100)
    assert [(m.timestamp_ms, m.key, m.value, m.headers) for m in messages] == RECORDS
    assert [(m.topic, m.partition, m.offset, m.leader_epoch) for m in messages] == [
        ("t", 3, offset, 9) for offset in range(40, 44)
    ]
    assert {m.timestamp_type for m in messages} == {module.TimestampType.CREATE_TIME}


def test_the_brokers_timestamp_goes_for_all(module: ModuleType) -> None:
    messages = taken(unread(module, append_time=5), 100)
    assert {(m.timestamp_ms, m.timestamp_type) for m in messages} == {
        (5, module.TimestampType.LOG_APPEND_TIME)
    }


def test_it_goes_on_where_it_was(module: ModuleType) -> None:
    source = unread(module)
    assert [m.offset for m in taken(source, 1)] == [40]
    assert source.left == 3
    assert [m.offset for m in taken(source, 2)] == [41, 42]
    assert [m.offset for m in taken(source, 2)] == [43]
    assert source.left == 0
    assert taken(source, 2) == []


def test_what_nobody_asked_for_is_left_out_and_does_not_count(module: ModuleType) -> None:
    assert [m.offset for m in taken(unread(module, start_offset=42), 2)] == [42, 43]


def test_what_precedes_a_damaged_record_is_there(module: ModuleType) -> None:
    source = unread(module, wound=1)
    messages: list[_messages.Message] = []
    with pytest.raises(CorruptRecords):
        source.take(messages, 100)
    assert [m.offset for m in messages] == [40, 41, 42]
    assert source.left == 1


def test_a_batch_that_cannot_be_is_refused(module: ModuleType) -> None:
    with pytest.raises(CorruptRecords):
        module.Unread(b"", 1, 0, 0, -1, "t", 0, 0, 0)
    with pytest.raises(CorruptRecords):
        module.Unread(b"", 0, -1, 0, -1, "t", 0, 0, 0)
    with pytest.raises(CorruptRecords):
        taken(module.Unread(b"rest", 0, 0, 0, -1, "t", 0, 0, 0), 1)


def test_messages_are_values(module: ModuleType) -> None:
    one, other = (taken(unread(module), 100)[1] for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    made = module.Message("t", 3, 41, 1001, 0, None, b"v1", HEADERS, 9)
    assert one == made
    for changed in (
        module.Message("u", 3, 41, 1001, 0, None, b"v1", HEADERS, 9),
        module.Message("t", 3, 41, 1001, 0, None, b"v2", HEADERS, 9),
        module.Message("t", 3, 41, 1001, 0, None, b"v1", HEADERS[:1], 9),
        module.Message("t", 3, 41, 1001, 1, None, b"v1", HEADERS, 9),
    ):
        assert one != changed
    assert one != "something else"


def test_only_key_and_value_can_be_replaced_and_nothing_added() -> None:
    """As built: a deserializer puts its objects there."""
    (message,) = taken(unread(_messages), 1)
    message.key, message.value = "key", {"v": 0}
    assert (message.key, message.value) == ("key", {"v": 0})
    with pytest.raises(AttributeError):
        message.other = 1


def test_what_a_message_says_of_itself(module: ModuleType) -> None:
    first, second = taken(unread(module), 2)
    assert repr(first) == (
        "Message(topic='t', partition=3, offset=40, timestamp_ms=1000, key=b'k0', value=b'v0')"
    )
    assert "headers=(('trace', b'7')" in repr(second)


def test_messages_can_be_copied(module: ModuleType) -> None:
    """As pickle does it, which sends them to other processes."""
    for message in taken(unread(module), 100):
        make, fields = message.__reduce__()
        assert make(*fields) == message
        assert copy.deepcopy(message) == message


def test_a_message_matches_by_position(module: ModuleType) -> None:
    match taken(unread(module), 1)[0]:
        case module.Message("t", 3, offset, _, _, key, value):
            assert (offset, key, value) == (40, b"k0", b"v0")
        case other:
            pytest.fail(repr(other))


class Held:
    """Something that a deserializer makes."""

    message: Any = None


@pytest.mark.parametrize("name", ["key", "value"])
def test_a_message_and_what_it_holds_can_be_a_cycle(module: ModuleType, name: str) -> None:
    (message,) = taken(unread(module), 1)
    held = Held()
    setattr(message, name, held)
    held.message = message
    gone = weakref.ref(held)
    del message, held
    gc.collect()
    assert gone() is None


def test_a_value_that_becomes_part_of_a_cycle_later(module: ModuleType) -> None:
    (message,) = taken(unread(module), 1)
    held = Held()
    message.value = {"plain": 1}  # the collector does not visit such a dict until it holds something else
    message.value |= {"message": message, "held": held}
    gone = weakref.ref(held)
    del message, held
    gc.collect()
    assert gone() is None


def test_the_collector_does_not_visit_messages_of_bytes() -> None:
    """Millions of them are read, and none can be in a cycle."""
    if not COMPILED:
        pytest.skip("plain Python cannot hide objects from the collector")
    first, second = taken(unread(_messages), 2)
    assert not gc.is_tracked(first)
    second.value = "text"
    assert not gc.is_tracked(second)
    second.value = []
    assert gc.is_tracked(second)
