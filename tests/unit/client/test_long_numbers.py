"""Numbers that a user or a file gives are checked before Python turns them into numbers or texts, which it
refuses to do with thousands of digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Resource
from headrace.client.admin.configs import describe_config
from headrace.client.cluster import parse_bootstrap
from headrace.client.errors import InvalidInput
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.consumer import parse_reset
from headrace.client.settings.keys import producer_keys

MANY = "9" * 5000


def configured(value: object) -> Configuration:
    return Configuration(producer_keys(), {"bootstrap.servers": "x", "linger.ms": value})


@pytest.mark.parametrize(
    "call",
    [
        lambda: parse_bootstrap(f"host:{MANY}"),
        lambda: parse_bootstrap("host:²"),
        lambda: parse_reset(f"by_duration:P{MANY}D"),
        lambda: parse_reset(f"by_duration:PT{'9' * 400}.5S"),
        lambda: configured(MANY),
        lambda: configured(10**5000),
        lambda: configured("²"),
        lambda: next(describe_config(Resource.broker(MANY))),  # type: ignore[arg-type]
    ],
)
def test_they_are_invalid_input(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput) as raised:
        call()
    assert len(str(raised.value)) < 6000
