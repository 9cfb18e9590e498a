"""A short storm over a group: members join, leave and are killed; `python -m chaos.storm` is the long one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from chaos.crew import Crew, HandProcess, wait_until_ended
from chaos.hand import Hand
from chaos.storm import BREEZE, PROTOCOLS, Storm, make_topic
from chaos.storm_journal import Journal
from harness.broker import Broker
from harness.wait import eventually


@pytest.mark.timeout(1200)  # the storm has ends of its own, and a dump to show when one comes
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_survives_a_storm(new_broker: Callable[..., Broker], protocol: str, tmp_path: Path) -> None:
    broker = new_broker(BREEZE.settings()).start()
    make_topic(broker.bootstrap, BREEZE.partitions)
    Storm(broker.bootstrap, protocol, BREEZE, print, tmp_path).play()
    broker.stop()


def test_a_member_that_fails_and_a_crew_that_dies_are_told(tmp_path: Path) -> None:
    """In silence both look like a group that does not settle."""
    journal = Journal(partitions=1)
    crew = Crew("crew", {}, "storm", journal, tmp_path)
    crew.join()
    eventually(lambda: len(journal.failures), 1)
    assert "group.id must be set" in journal.failures[0]
    crew.hands[0].process.kill()
    eventually(lambda: len(journal.failures), 2)
    assert "ended with -9" in journal.failures[1]
    crew.kill()


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[HandProcess]:
    """A member whose process froze when it was ordered to leave."""
    settings: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "storm", "log_level": 0}
    module = "chaos.freezing_hand"
    journal = Journal(partitions=1)
    hand = HandProcess("crew", 0, settings, "storm", journal, tmp_path, module=module, frozen_after_s=1)
    try:
        hand.leave()
        eventually(hand.is_frozen, True)
        yield hand
    finally:
        hand.kill()
        hand.close()
    assert not journal.failures


def test_a_client_that_freezes_after_it_left_is_killed(frozen: HandProcess) -> None:
    """confluent-kafka can wait for ever in `close`, with the GIL held. A storm once failed by it."""
    assert wait_until_ended([frozen], lambda: set()) == ([frozen], [])
    assert not frozen.is_running()
    assert "in close" in frozen.stacks_told()


def test_a_member_that_freezes_is_not_counted_as_left(frozen: HandProcess) -> None:
    assert wait_until_ended([frozen], lambda: {frozen.client_id}, wait_s=0.2) == ([], [frozen])
    frozen.journal.closing.clear()  # it froze before it began to leave, and its session has ended
    assert wait_until_ended([frozen], lambda: set(), wait_s=0.2) == ([], [frozen])
    assert frozen.is_running()


def test_a_member_that_closes_tells_what_it_gives_up(capsys: pytest.CaptureFixture[str]) -> None:
    """librdkafka may not say any more which generation that was. A storm once waited for ever for it."""

    class Closing:
        def consumer_group_metadata(self) -> bytes:
            raise RuntimeError("Consumer group metadata not available")

    hand = Hand.__new__(Hand)
    hand.number, hand.owned, hand.generation = 3, {0, 1}, 7
    hand.moved(Closing(), "gave up", [TopicPartition("storm", 1)])  # type: ignore[arg-type]
    told = json.loads(capsys.readouterr().out)
    assert (told["how"], told["places"], hand.owned) == ("gave up", [1], {0})


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
