"""Expressions over records."""

from __future__ import annotations

import pytest

from headrace.jobs.expressions import NotAnExpression, parse_condition, parse_expression
from headrace.records._messages import Message

VALUE = b'{"amount": 120, "user": {"name": "ada", "tags": ["a", "b"]}, "none": null, "text": "%9d"}'
RECORD = Message(
    "orders", 3, 42, 1000, 0, b"user-7", VALUE, (("source", b"web"), ("bad", b"\xff"), ("n", None))
)
EMPTY = Message("orders", 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "json.amount >= 100",
        "json.amount > 100 and json.amount < 121",
        'json["user"]["name"] == "ada"',
        'json.user.tags[1] == "b"',
        'json.user.tags[-2] == "a"',
        '"a" in json.user.tags',
        'json.user.name in ("eve", "ada")',
        'key.startswith("user-") and not key.endswith("8")',
        'headers.source == "web" and headers["n"] is None',
        "value is not None and len(value) > 10",
        "partition == 3 and offset == 42 and timestamp_ms == 1000",
        'topic == "orders" or json.missing.deeply.so',
        "json.none is None and json.nothing is None and json.user.tags[9] is None",
        "int(headers.source) is None",
        'str(json.amount) + "!" == "120!"',
        "json.amount % 50 == 20 and json.amount - 20 == 100 and -json.amount < 0",
        'json.user.name.upper() == "ADA"',
        "headers.bad == '\N{REPLACEMENT CHARACTER}'",
        "not (json.missing < 3) and not (json.missing > 3)",
        "json.missing != 3",
        "json.text % 3 is None",
    ],
)
def test_true(text: str) -> None:
    assert parse_condition(text)(RECORD) is True


@pytest.mark.parametrize(
    "text",
    [
        "json",
        "key",
        "json.a.b == 1",
        'key.startswith("a")',
        "value < 3",
        "len(value) > 0",
        '"a" in json',
        'headers["x"]',
        "json[0]",
        "int(value) > 1",
        "key < value",
    ],
)
def test_nothing_is_not_an_error(text: str) -> None:
    assert parse_condition(text)(EMPTY) is False


@pytest.mark.parametrize("value", [b"garbage", b"[1]", b"3", b"\xff\xfe", b"[" * 100_000, b""])
def test_values_that_are_not_what_was_expected(value: bytes) -> None:
    record = Message("orders", 0, 0, value=value)
    assert parse_condition("json.amount > 3")(record) is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "invalid syntax"),
        ("json.amount >", "invalid syntax"),
        ("amount > 3", "unknown name amount; known are key, value, json"),
        ("open('x')", "is not allowed"),
        ("().__class__", "is not allowed|unknown"),
        ("key.__class__.__mro__()", "is not allowed"),
        ("key.format(1)", "is not allowed"),
        ("__import__('os')", "is not allowed"),
        ("[x for x in json]", "is not allowed"),
        ("(lambda: 1)()", "is not allowed"),
        ("1 < json.a < 3", "write `a < b and b < c`"),
        ("json.a * 9", "is not allowed"),
        ("b'x' == key", "is not allowed"),
        ("'x' * 9 == key", "is not allowed"),
        ("key" + " or key" * 5000, "is longer than"),
    ],
)
def test_what_is_not_an_expression(text: str, says: str) -> None:
    if text == "().__class__":
        assert parse_expression(text)(RECORD) is None  # a field that an empty tuple does not have
        return
    with pytest.raises(NotAnExpression, match=says):
        parse_condition(text)
