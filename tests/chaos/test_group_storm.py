"""A short storm over a group: members join, leave and are killed; `python -m chaos.storm` is the long one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.storm import PROTOCOLS, Storm, Weather, make_topic
from harness.broker import Broker

BREEZE = Weather(
    seconds=3, crews=4, hands=3, partitions=24, session_timeout_ms=2000, heartbeat_ms=100, records_per_s=500
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_survives_a_storm(new_broker: Callable[..., Broker], protocol: str) -> None:
    broker = new_broker(BREEZE.settings()).start()
    make_topic(broker.bootstrap, BREEZE.partitions)
    Storm(broker.bootstrap, protocol, BREEZE, print).play()
    broker.stop()
