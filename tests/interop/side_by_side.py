"""The same story told by both brokers: runs it on each, strips what may differ, and compares the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from harness.broker import Broker

T = TypeVar("T")

TOPIC_ID = re.compile(r"\b(TopicId: |topic id |id=)[A-Za-z0-9_-]{22}\b")


def plain(text: str, broker: Broker) -> str:
    """`text` without addresses, directories and topic ids, which no two brokers share."""
    for number, port in zip(broker.node_ids, broker.node_ports, strict=True):  # any node may coordinate
        text = re.sub(rf"127\.0\.0\.1:{port}\s*\({number}\)", "COORDINATOR", text)
    text = text.replace(broker.bootstrap, "BOOTSTRAP").replace(str(broker.data), "DATA")
    return TOPIC_ID.sub(r"\1ID", text)


def assert_same(brokers: tuple[Broker, Broker], story: Callable[[Broker], T]) -> T:
    """Tells the story on both; the oracle's answer comes back for further checks."""
    oracle, tested = brokers
    expected = story(oracle)
    actual = story(tested)
    if isinstance(expected, list) and isinstance(actual, list):
        for ours, theirs in zip(actual, expected, strict=False):
            # step by step: the first difference is the one to read
            assert ours == theirs, f"\n{oracle.name}: {theirs}\n{tested.name}: {ours}"
    assert actual == expected, f"\n{oracle.name}: {expected}\n{tested.name}: {actual}"
    return expected
