"""A heartbeat without news writes nothing; each piece of news alone is heard."""

from __future__ import annotations

from typing import Any

import pytest

from harness.consumer_groups import APP, Consumer, Coordinator
from harness.group_shard import FakeTopics
from headrace.machines.coordination import Caller
from headrace.protocol.errors import ErrorCode


def stable() -> tuple[Coordinator, Consumer]:
    coordinator = Coordinator(FakeTopics(orders=2, bills=1))
    consumer = Consumer(coordinator, "a", "orders").settle()
    return coordinator, consumer


def test_a_heartbeat_without_news_writes_nothing() -> None:
    coordinator, consumer = stable()
    decision = coordinator.decide(member_id="a", member_epoch=consumer.epoch)
    assert decision.records == []
    assert (decision.reply.error, decision.reply.member_epoch) == (ErrorCode.NONE, consumer.epoch)
    assert decision.reply.assignment is None
    assert decision.reply.heartbeat_interval_ms == 5_000


@pytest.mark.parametrize(
    "news",
    [
        {"rebalance_timeout_ms": 40_000},
        {"rack_id": "r"},
        {"server_assignor": "range"},
        {"subscribed_topic_names": ["bills"]},
        {"subscribed_topic_regex": "bil.*"},
        {"caller": Caller("other", APP.client_host)},
        {"caller": Caller(APP.client_id, "/10.0.0.9")},
    ],
    ids=str,
)
def test_each_piece_of_news_is_written(news: dict[str, Any]) -> None:
    coordinator, consumer = stable()
    decision = coordinator.decide(member_id="a", member_epoch=consumer.epoch, **news)
    assert decision.records, "the member has changed"
    coordinator.settle(decision)
    member = coordinator.group.members["a"]
    quiet = {"member_id": "a", "member_epoch": member.epoch, "caller": news.get("caller", APP)}
    assert coordinator.decide(**quiet).records == [], "only once"


def test_topics_that_grow_are_news() -> None:
    coordinator, consumer = stable()
    coordinator.topics.grow("orders", 3)
    reply = coordinator.heartbeat(member_id="a", member_epoch=consumer.epoch)
    assert reply.member_epoch == consumer.epoch + 1
    assert reply.assignment is not None
