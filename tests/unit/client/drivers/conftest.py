"""Clients over both drivers, closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from harness.carriers import Carrier, LoopCarrier, ThreadCarrier, UvloopCarrier
from headrace.client.cluster import Address
from headrace.client.errors import Closed
from headrace.client.settings.network import NetworkSettings

Connect = Callable[..., Carrier]


@pytest.fixture(params=[ThreadCarrier, LoopCarrier, UvloopCarrier], ids=["threads", "asyncio", "uvloop"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Starts a client of these bootstrap addresses, with other settings of the network as named."""
    started: list[Carrier] = []

    def start(
        *bootstrap: Address, after_turn: Callable[[], object] | None = None, **settings: Any
    ) -> Carrier:
        quick = NetworkSettings(bootstrap, reconnect_first_s=0.001, reconnect_last_s=0.01)
        carrier: Carrier = request.param()
        carrier.start(replace(quick, **settings), after_turn)
        started.append(carrier)
        return carrier

    yield start
    for carrier in started:
        if not isinstance(carrier.driver.error, Closed):
            carrier.close()
