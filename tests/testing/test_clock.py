"""Time that passes when a test says so: what the broker does with it, and what its clients notice."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from headrace.testing import Broker


def consumer_of(broker: Broker, group: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
            **options,
        }
    )


def texts(broker: Broker, topic: str) -> list[str]:
    return [record.text for record in broker.consume_all(topic)]


@pytest.mark.parametrize("keep_sessions", [False, True])
def test_retention_runs_by_the_new_date(headrace_broker: Broker, keep_sessions: bool) -> None:
    headrace_broker.create_topic("short", retention_ms=int(timedelta(days=1).total_seconds() * 1000))
    headrace_broker.create_topic("week")
    for topic in ("short", "week"):
        headrace_broker.produce_all(topic, ["old"])
    headrace_broker.clock.advance(days=2, keep_sessions=keep_sessions)
    assert texts(headrace_broker, "short") == []
    assert texts(headrace_broker, "week") == ["old"]
    headrace_broker.clock.advance(days=6, keep_sessions=keep_sessions)
    assert texts(headrace_broker, "week") == []


def test_many_partitions_are_all_looked_after(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("wide", 40)
    headrace_broker.produce_all("wide", [(str(number), "x") for number in range(200)])
    headrace_broker.clock.advance(days=8)
    assert texts(headrace_broker, "wide") == []


@pytest.mark.parametrize("keep_sessions", [False, True])
def test_compaction_keeps_the_newest_of_each_key(headrace_broker: Broker, keep_sessions: bool) -> None:
    headrace_broker.create_topic("users", cleanup_policy="compact", segment_ms=60_000)
    headrace_broker.produce_all("users", [("a", "1"), ("b", "1"), ("a", "2")])
    headrace_broker.clock.advance(hours=1, keep_sessions=keep_sessions)
    headrace_broker.assert_consumed("users", [("b", "1"), ("a", "2")])


def test_a_member_that_time_has_passed_for_is_expired_and_comes_back(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", ["a"])
    consumer = consumer_of(headrace_broker, "readers", **{"session.timeout.ms": 45_000})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    headrace_broker.clock.advance(minutes=1)
    with pytest.raises(KafkaException, match=r"UNKNOWN_MEMBER_ID|Unknown member"):
        consumer.commit(message=message, asynchronous=False)
    again = consumer.poll(30)  # it has joined again and starts from the last commit: there was none
    assert again is not None
    assert again.offset() == message.offset()
    consumer.close()


def test_a_member_whose_session_is_kept_notices_nothing(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", ["a"])
    consumer = consumer_of(headrace_broker, "readers")
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    headrace_broker.clock.advance(days=6, keep_sessions=True)
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


def test_an_open_transaction_times_out(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    producer = Producer(
        {
            "bootstrap.servers": headrace_broker.bootstrap_servers,
            "transactional.id": "t",
            "transaction.timeout.ms": 60_000,
            "log_level": 2,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"never finished")
    assert producer.flush(30) == 0
    headrace_broker.produce_all("orders", ["behind it"])
    assert texts(headrace_broker, "orders") == []  # read_committed waits for the transaction's end
    headrace_broker.clock.advance(minutes=2)
    assert texts(headrace_broker, "orders") == ["behind it"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_committed_offsets_of_an_empty_group_expire(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders", retention_ms=-1)
    headrace_broker.produce_all("orders", ["a"])
    headrace_broker.consume_all("orders", group="readers")
    assert headrace_broker.consume_all("orders", group="readers") == []
    headrace_broker.clock.advance(days=8)
    assert len(headrace_broker.consume_all("orders", group="readers")) == 1


def test_the_date_is_the_brokers(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    before = headrace_broker.clock.now()
    assert abs(before.timestamp() - time.time()) < 60
    headrace_broker.clock.advance(timedelta(days=1), hours=1)
    headrace_broker.produce_all("stamped", ["x"])
    (found,) = headrace_broker.consume_all("stamped")
    assert found.timestamp_ms is not None
    passed = timedelta(milliseconds=found.timestamp_ms) - timedelta(seconds=before.timestamp())
    assert timedelta(hours=25) <= passed < timedelta(hours=25, minutes=1)


@pytest.mark.parametrize("time_given", [{}, {"days": -1}])
def test_time_does_not_run_backwards(headrace_broker: Broker, time_given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be more than 0"):
        headrace_broker.clock.advance(**time_given)
