"""A FastStream service under test: with real topics and groups, where its own test broker has neither."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from approval_service import approval_service

from headrace.testing import Broker

ANN = {"customer": "ann", "amount": 30}
BOB = {"customer": "bob", "amount": 3000}
CY = {"customer": "cy", "amount": 7}


def served(broker: Broker, until: Callable[[], None]) -> None:
    """Runs the service until the call, which may wait for what the service does, returns."""

    async def run() -> None:
        async with approval_service(broker.bootstrap_servers, limit=100) as service:
            await service.start()
            await asyncio.to_thread(until)

    asyncio.run(run())


@pytest.mark.headrace(topics=["orders", "approved"])
def test_orders_up_to_the_limit_are_approved(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", [("ann", ANN), ("bob", BOB)])
    served(headrace_broker, lambda: headrace_broker.assert_consumed("approved", [("ann", ANN)]))
    headrace_broker.assert_consumed("orders", [ANN, BOB], group="approval")


@pytest.mark.headrace(topics=["orders", "approved"])
def test_what_is_no_order_holds_nobody_up(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", ["what is this?", ("ann", ANN)])
    served(headrace_broker, lambda: headrace_broker.assert_consumed("approved", [("ann", ANN)]))


@pytest.mark.headrace(topics=["orders", "approved"])
def test_a_service_that_is_started_again_goes_on_where_it_was(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", [("ann", ANN)])
    served(headrace_broker, lambda: headrace_broker.assert_consumed("approved", [ANN]))
    headrace_broker.produce_all("orders", [("cy", CY)])
    served(headrace_broker, lambda: headrace_broker.assert_consumed("approved", [ANN, CY]))
