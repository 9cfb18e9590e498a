"""Producers, consumers by assignment and an administrator, on topics of every kind."""

from headrace.simulator.clients.admin import Admin
from headrace.simulator.clients.consumer import Consumer
from headrace.simulator.clients.producer import Producer
from headrace.simulator.clients.reader import Reader
from headrace.simulator.clients.topics import Topic
from headrace.simulator.machine import Machine
from headrace.simulator.mischief import Mischief, Odds
from headrace.simulator.plays import CALM_S, HEALING_S, stuck
from headrace.simulator.world import World


class Logs:
    def __init__(self, world: World) -> None:
        self.settings: dict[str, str] = {}

    def live(self, machine: Machine, odds: Odds, seconds: float) -> None:
        world = machine.world
        topics, later = _topics(world)
        everything = [*topics, *later]
        admin = Admin(machine, "admin", topics, later, everything)
        producers = [
            Producer(machine, "p1", everything, acks=-1, is_idempotent=True),
            Producer(machine, "p2", everything, acks=world.dice.choice((1, -1)), is_idempotent=True),
            Producer(machine, "p3", everything, acks=world.dice.choice((0, 1, -1)), is_idempotent=False),
        ]
        consumers = [Consumer(machine, "c1", everything), Consumer(machine, "c2", topics[:1])]
        mischief = Mischief(machine, [admin, *producers, *consumers], odds)

        machine.start()
        admin.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: admin.has_created):
            raise stuck(machine, "topics are not created")
        for client in (*producers, *consumers):
            client.begin()
        mischief.begin()
        world.run(world.mono + seconds)

        mischief.stop()
        admin.is_quiet = True
        for producer in producers:
            producer.is_stopping = True
        machine.start()
        world.run(world.mono + CALM_S)
        if not world.run(world.mono + HEALING_S, is_done=lambda: all(one.is_idle for one in producers)):
            raise stuck(machine, "producers have no answer")
        reader = Reader(machine, "reader", everything)
        reader.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: reader.is_over):
            raise stuck(machine, "not everything can be read")


def _topics(world: World) -> tuple[list[Topic], list[Topic]]:
    """One that promises an fsync, one that does not, one whose batches are opened, one with retention; and
    two that come and go.
    """
    small = {"internal.segment.bytes": str(world.dice.choice((2_000, 8_000)))}
    small["index.interval.bytes"] = str(world.dice.choice((0, 500)))
    keep = {"retention.ms": "-1"}
    topics = [
        Topic("flushed", 2, small | keep | {"flush.messages": "1"}),
        Topic("plain", 2, small | keep),
        Topic("opened", 1, small | keep | {"headrace.validate.records": "true", "flush.messages": "1"}),
        Topic("short", 1, small | {"retention.bytes": "6000", "file.delete.delay.ms": "300"}),
    ]
    later = [
        Topic(f"later{n}", 1, small | {"flush.messages": "1"} if n else small, has_namesakes=True)
        for n in range(2)
    ]
    return topics, later
