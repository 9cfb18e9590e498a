"""A short storm over a group: members join, leave and are killed; `python -m chaos.storm` is the long one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.storm import PROTOCOLS, Storm, Weather, make_topic
from chaos.storm_journal import Journal
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


def test_the_judge_sees_a_partition_owned_twice() -> None:
    def told(*events: tuple[str, int, str, int, float]) -> list[str]:
        journal = Journal(partitions=1)
        for crew, member, how, generation, at in events:
            journal.add(
                crew, {"member": member, "how": how, "places": [0], "generation": generation, "at": at}
            )
        return journal.owned_twice()

    assert told(("a", 0, "gained", 1, 1.0), ("a", 0, "gave up", 2, 2.0), ("b", 0, "gained", 2, 3.0)) == []
    assert told(("a", 0, "gained", 1, 1.0), ("b", 0, "gained", 2, 3.0), ("a", 0, "lost", 1, 4.0)) == []
    assert told(("a", 0, "gained", 1, 1.0), ("a", 0, "lost", 1, 2.0), ("b", 0, "gained", 1, 3.0)) == [
        "partition 0 was gained in generation 1 by ['a/0', 'b/0']"
    ]
    assert told(("a", 0, "gained", 1, 1.0), ("b", 0, "gained", 2, 2.0), ("a", 0, "gave up", 2, 3.0)) == [
        "partition 0 went to b/0 while a/0 had it"
    ]
