"""The shop's tests, with pytest: `headrace_broker` comes with Headrace."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from shop import approve_orders, place_order

from headrace.testing import Broker

ANN = {"customer": "ann", "amount": 30}
BOB = {"customer": "bob", "amount": 3000}


@pytest.fixture
def producer(headrace_broker: Broker) -> Producer:
    return Producer(
        {"bootstrap.servers": headrace_broker.bootstrap_servers, "retry.backoff.ms": 1, "log_level": 0}
    )


@pytest.mark.headrace(topics=["orders"])
def test_an_order_is_written_under_its_customer(headrace_broker: Broker, producer: Producer) -> None:
    place_order(producer, "ann", 30)
    headrace_broker.assert_consumed("orders", [("ann", ANN)])


@pytest.mark.headrace(topics=["orders", "approved"])
def test_orders_up_to_the_limit_are_approved(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", [("ann", ANN), ("bob", BOB)])
    approve_orders(headrace_broker.bootstrap_servers, limit=100, count=2)
    headrace_broker.assert_consumed("approved", [("ann", ANN)])
    headrace_broker.assert_consumed("orders", [ANN, BOB], group="approval")


@pytest.mark.headrace(topics=["orders"])
def test_an_order_is_written_once_even_if_the_answer_is_lost(headrace_broker: Broker) -> None:
    exactly_once = Producer(
        {
            "bootstrap.servers": headrace_broker.bootstrap_servers,
            "enable.idempotence": True,
            "retry.backoff.ms": 1,
            "log_level": 0,
        }
    )
    headrace_broker.faults.drop_after_write(2)
    place_order(exactly_once, "ann", 30)
    headrace_broker.assert_consumed("orders", [ANN])


@pytest.mark.headrace(topics=["orders"])
def test_a_customer_is_told_when_the_broker_is_away(headrace_broker: Broker, producer: Producer) -> None:
    with headrace_broker.faults.refuse_connections(), pytest.raises(TimeoutError):
        place_order(producer, "ann", 30, timeout_s=0.2)
    headrace_broker.assert_consumed("orders", [])


@pytest.mark.headrace(topics=["orders", "approved"])
def test_orders_older_than_a_week_are_forgotten(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", [("ann", ANN)])
    headrace_broker.clock.advance(days=8)
    headrace_broker.assert_consumed("orders", [])
