"""How deep JSON is nested."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.machines.http.json_depth import is_deeper


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


TREES = st.recursive(
    st.none() | st.text(max_size=5) | st.sampled_from(["[", "{", '"', "\\", '\\"[']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(TREES, st.integers(0, 6))
def test_it_is_that_of_the_parsed_value(value: Any, levels: int) -> None:
    assert is_deeper(json.dumps(value).encode(), levels) == (depth(value) > levels)


@pytest.mark.parametrize(
    ("text", "is_too_deep"),
    [
        (b"[" * 500_000, True),
        (b'{"a":' * 100_000, True),
        (b'"' + b"[" * 500_000, False),  # a text without its end
        (b'"' + b'\\"' * 250_000 + b'"' + b"[]" * 20, False),
        (b"[" + b"[]," * 150_000 + b"[]]", False),
        (b"]" * 20 + b"[" * 20, False),  # not JSON: that is the parser's to say
        (b"", False),
    ],
)
def test_what_a_hostile_client_sends(text: bytes, is_too_deep: bool) -> None:
    assert is_deeper(text, 16) == is_too_deep
