"""A small application under test: orders come in on one topic, those within a limit go out on another."""

from __future__ import annotations

import json

from confluent_kafka import Consumer, Producer


def place_order(producer: Producer, customer: str, amount: int, timeout_s: float = 10) -> None:
    order = {"customer": customer, "amount": amount}
    producer.produce("orders", json.dumps(order), key=customer)
    if producer.flush(timeout_s):
        producer.purge()
        raise TimeoutError("the order was not taken")


def approve_orders(bootstrap_servers: str, limit: int, count: int) -> None:
    """Work on so many orders: those up to the limit are approved. Each is worked on at least once."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "approval",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.subscribe(["orders"])
    try:
        for message in consumer.consume(count, timeout=30):
            order = json.loads(message.value())
            if order["amount"] <= limit:
                producer.produce("approved", json.dumps(order), key=message.key())
        producer.flush(10)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
