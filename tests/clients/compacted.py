"""A compacted topic that is cleaned soon, and versions of its keys."""

from __future__ import annotations

from confluent_kafka import Producer

from harness.wait import WAIT_S

KEYS = 20
# every append after a moment begins a segment, and all but the last may be cleaned at once
EAGER = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.001",
    "delete_retention_ms": "100",
}


def write(sender: Producer, topic: str, version: int, keys: range) -> None:
    for number in keys:
        sender.produce(topic, b"v%d" % version if version else None, b"k%d" % number)
    assert sender.flush(WAIT_S) == 0
