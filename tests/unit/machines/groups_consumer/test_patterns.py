"""Topics by pattern: found at once, looked for again when topics or rights change, and never at any price."""

from typing import Any

import pytest

from harness.consumer_groups import APP, GROUP, Consumer, Coordinator
from harness.group_shard import FakeTopics
from headrace.machines.coordination import Decision
from headrace.machines.groups.consumer.heartbeat import Heartbeat
from headrace.protocol.errors import ErrorCode


def test_the_whole_name_has_to_match() -> None:
    topics = FakeTopics(orders=1, orders_eu=1, my_orders=1)
    alone = Consumer(Coordinator(topics), "a", regex="orders(_.*)?")
    alone.beat()
    assert alone.owned == topics.places("orders", "orders_eu")


def test_a_new_topic_is_found_after_a_while() -> None:
    topics = FakeTopics(orders=1)
    coordinator = Coordinator(topics)
    alone = Consumer(coordinator, "a", regex="orders.*").settle()
    epoch = alone.epoch
    topics.create("orders_eu", 2)
    coordinator.pass_time(9)
    alone.settle()
    assert alone.owned == topics.places("orders")  # so that many new topics are one change
    coordinator.pass_time(2)
    alone.settle()
    assert alone.owned == topics.places("orders", "orders_eu")
    assert alone.epoch == epoch + 1

    topics.delete("orders")
    coordinator.pass_time(11)
    alone.settle()
    assert alone.owned == topics.places("orders_eu")
    assert coordinator.group.regexes["orders.*"].topics == {"orders_eu"}


def test_a_topic_that_does_not_match_writes_nothing() -> None:
    topics = FakeTopics(orders=1)
    coordinator = Coordinator(topics)
    alone = Consumer(coordinator, "a", regex="orders.*").settle()
    topics.create("bills", 1)
    coordinator.pass_time(11)
    assert coordinator.decide(member_id="a", member_epoch=alone.epoch).records == []


def test_a_pattern_goes_with_the_last_that_has_it() -> None:
    coordinator = Coordinator(FakeTopics(orders=2, bills=1))
    first = Consumer(coordinator, "a", regex="orders").settle()
    second = Consumer(coordinator, "b", regex="orders").settle()
    first.regex = "bills"
    first.subscribe()
    first.settle()
    assert set(coordinator.group.regexes) == {"orders", "bills"}
    second.leave()
    assert set(coordinator.group.regexes) == {"bills"}


def test_a_pattern_finds_only_what_its_member_may_see() -> None:
    topics = FakeTopics(orders=1, secret=1)
    coordinator = Coordinator(topics)
    rights = {"orders"}

    def beat(**fields: Any) -> Decision:
        request = Heartbeat(GROUP, "a", **{"member_epoch": 0} | fields)
        now = coordinator.clock.now()
        decision = coordinator.groups.consumer_heartbeat(now, request, APP, rights.__contains__)
        coordinator.settle(decision)
        return decision

    reply = beat(rebalance_timeout_ms=1_000, regex=".*", owned={}).reply
    assert coordinator.group.regexes[".*"].topics == {"orders"}

    beat(member_epoch=reply.member_epoch)
    rights.add("secret")
    for _ in range(14):
        coordinator.pass_time(40)
        assert beat(member_epoch=reply.member_epoch).records == []
    coordinator.pass_time(41)  # ten minutes and a second
    beat(member_epoch=reply.member_epoch)
    assert coordinator.group.regexes[".*"].topics == {"orders", "secret"}


@pytest.mark.parametrize("regex", ["(", "a**", r"(a)\1", "a(?=b)", "(((a{1000}){1000}){1000})"])
def test_what_is_no_pattern_is_refused(regex: str) -> None:
    coordinator = Coordinator(FakeTopics(orders=1))
    alone = Consumer(coordinator, "a", regex=regex)
    response = alone.beat()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "RE2" in (response.error_message or "")
    assert coordinator.log == []


def test_a_pattern_that_others_would_never_finish_is_matched() -> None:
    """With backtracking this takes longer than the universe exists."""
    name = "a" * 200 + "b"
    topics = FakeTopics(**{name: 1, "a" * 200: 1})
    alone = Consumer(Coordinator(topics), "a", regex="(a+)+")
    alone.beat()
    assert alone.owned == topics.places("a" * 200)


def test_the_longest_patterns_that_are_accepted_still_match() -> None:
    """A pattern that compiles and has no memory left for matching would find nothing, without a word."""
    longest = 0
    for repeats in range(20, 200, 20):
        regex = "|".join(f"[a-z]{{{500 + number}}}(x|y)*" for number in range(repeats)) + "|orders"
        topics = FakeTopics(orders=1)
        alone = Consumer(Coordinator(topics), "a", regex=regex)
        alone.beat()
        if alone.error:
            break
        longest = repeats
        assert alone.owned == topics.places("orders")
    assert longest >= 20
    assert alone.error is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_refused_pattern_does_not_put_off_the_others() -> None:
    topics = FakeTopics(orders=1)
    coordinator = Coordinator(topics)
    alone = Consumer(coordinator, "a", regex="orders.*").settle()
    topics.create("orders_eu", 1)
    coordinator.pass_time(11)
    broken = Consumer(coordinator, "b", regex="(")
    broken.beat()
    assert broken.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    alone.settle()
    assert alone.owned == topics.places("orders", "orders_eu")
