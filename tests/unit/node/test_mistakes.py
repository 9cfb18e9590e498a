"""A mistake of ours costs the request that met it, never those of others."""

import pytest

from harness.desk import Desk
from headrace.node.connection import Connection
from headrace.node.handlers.fetch import ParkedFetch
from headrace.node.ports import Deadlines, Every
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.records.builder import build_batch

BATCH = build_batch([(0, None, b"v", ())])


def poll(desk: Desk) -> Connection:
    connection = desk.connect()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    desk.send(connection, FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), 11)
    return connection


def fail_for(monkeypatch: pytest.MonkeyPatch, unlucky: Connection) -> None:
    reply = ParkedFetch.reply

    def failing(self: ParkedFetch, *given: object, **more: object) -> object:
        if self.request.connection is unlucky:
            raise RuntimeError("a mistake of ours")
        return reply(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ParkedFetch, "reply", failing)


def test_those_who_are_woken_after_it_are_still_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were marked as awake already and were never asked again."""
    desk = Desk()
    desk.create_topic("t")
    unlucky, lucky = poll(desk), poll(desk)
    fail_for(monkeypatch, unlucky)
    with pytest.raises(RuntimeError):
        desk.ask(desk.produce_request("t", BATCH), 9)
    desk.node.wake(desk.clock.now())
    desk.settle()
    assert desk.receive(lucky) is not None
    assert desk.closed == {unlucky.id: "internal error"}


def test_those_whose_time_is_over_are_still_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.create_topic("t")
    unlucky, lucky = poll(desk), poll(desk)
    fail_for(monkeypatch, unlucky)
    with pytest.raises(RuntimeError):
        desk.advance(1)
    desk.advance(1)
    assert desk.receive(lucky) is not None
    assert desk.closed == {unlucky.id: "internal error"}


def test_what_is_done_again_and_again_goes_on_after_it() -> None:
    deadlines, times = Deadlines(), []

    def act(now: object) -> None:
        times.append(now)
        if len(times) == 1:
            raise RuntimeError("a mistake of ours")

    desk = Desk()
    Every(deadlines, 100, act).start(desk.clock.now())
    desk.clock.advance(0.2)
    with pytest.raises(RuntimeError):
        deadlines.fire(desk.clock.now())
    desk.clock.advance(0.2)
    deadlines.fire(desk.clock.now())
    assert len(times) == 2
