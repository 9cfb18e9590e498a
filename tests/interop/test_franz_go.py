"""franz-go, a Go module: every codec, consuming by partition and in groups, transactions, kadm (go/*.go)."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.broker import Broker
from interop.side_by_side import assert_same
from interop.told_by_programs import told_by


def told(broker: Broker, franz: Path, story: str, topic: str) -> list[dict[str, object]]:
    """What the story of that name printed, step by step."""
    return told_by(broker, lambda topic: [str(franz), story, broker.bootstrap, topic], topic)[0]


def test_produces_consumes_and_administers(brokers: tuple[Broker, Broker], franz: Path, topic: str) -> None:
    steps = assert_same(brokers, lambda broker: told(broker, franz, "records", topic))
    (consumed,) = [step["told"] for step in steps if step["step"] == "consume"]
    assert len(consumed) == 1800  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["groups", "next-gen", "transactions"])
def test_consumes_in_groups(brokers: tuple[Broker, Broker], franz: Path, topic: str, name: str) -> None:
    assert_same(brokers, lambda broker: told(broker, franz, name, topic))
