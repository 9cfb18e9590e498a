"""The same with unittest: one broker for the class, reset before each test."""

from __future__ import annotations

import unittest

from confluent_kafka import Producer
from shop import approve_orders, place_order

from headrace.testing import Broker


class ShopTest(unittest.TestCase):
    broker: Broker

    @classmethod
    def setUpClass(cls) -> None:
        cls.broker = Broker(topics=["orders", "approved"]).start()
        cls.addClassCleanup(cls.broker.stop)

    def setUp(self) -> None:
        self.broker.reset()

    def test_an_order_is_approved(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 2})
        place_order(producer, "ann", 30)
        approve_orders(self.broker.bootstrap_servers, limit=100, count=1)
        self.broker.assert_consumed("approved", [{"customer": "ann", "amount": 30}])

    def test_nothing_is_left_of_other_tests(self) -> None:
        self.broker.assert_consumed("approved", [])


if __name__ == "__main__":
    unittest.main()
