"""Play `logs`: producers, consumers with assigned partitions and an admin, on topics with many configs."""

from dataclasses import replace

from headrace.simulator.clients.admin import Admin
from headrace.simulator.clients.consumer import Consumer
from headrace.simulator.clients.forger import Forger
from headrace.simulator.clients.producer import Producer
from headrace.simulator.clients.reader import Reader
from headrace.simulator.clients.topics import Topic
from headrace.simulator.fault_injection import FaultInjector
from headrace.simulator.fault_profiles import FaultProfile
from headrace.simulator.host import Host
from headrace.simulator.operator import NEVER, Operator, Setting, broker_settings, settings_of
from headrace.simulator.plays import CALM_S, HEALING_S, stuck
from headrace.simulator.world import World


class Logs:
    def __init__(self, world: World) -> None:
        self.settings: dict[str, str] = {"log.cleaner.backoff.ms": "1000"}

    def live(self, host: Host, profile: FaultProfile, seconds: float) -> None:
        world = host.world
        profile = replace(profile, strand=0)  # nobody writes in transactions
        topics, later = _topics(world)
        passing = _passing(world)
        everything = [*topics, *later, *passing]
        operator = Operator(host, "operator", _settings(topics, passing), passing, everything)
        admin = Admin(host, "admin", topics, later, everything, deletions=profile.deletions)
        producers = [
            Producer(host, "p1", everything, acks=-1, is_idempotent=True),
            Producer(host, "p2", everything, acks=world.rng.choice((1, -1)), is_idempotent=True),
            Producer(host, "p3", everything, acks=world.rng.choice((0, 1, -1)), is_idempotent=False),
        ]
        consumers = [Consumer(host, "c1", everything), Consumer(host, "c2", topics[:1])]
        forger = Forger(host, "forger", ["plain"])
        faults = FaultInjector(host, [admin, operator, forger, *producers, *consumers], profile, operator)

        host.start()
        admin.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: admin.has_created):
            raise stuck(host, "topics are not created")
        for client in (operator, forger, *producers, *consumers):
            client.begin()
        faults.begin()
        world.run(world.mono + seconds)

        faults.stop()
        admin.is_quiet = forger.is_stopping = True
        for producer in producers:
            producer.is_stopping = True
        host.start()
        world.run(world.mono + CALM_S)
        if not world.run(world.mono + HEALING_S, is_done=lambda: operator.has_restored):
            raise stuck(host, "settings are not as they were")
        if not world.run(world.mono + HEALING_S, is_done=lambda: all(one.is_idle for one in producers)):
            raise stuck(host, "producers have no answer")
        reader = Reader(host, "reader", everything)
        reader.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: reader.is_over):
            raise stuck(host, "not everything can be read")


def _topics(world: World) -> tuple[list[Topic], list[Topic]]:
    """One that promises an fsync, one that does not, one whose batches are opened, one with retention, one
    that is compacted; and two that come and go.
    """
    small = {"internal.segment.bytes": str(world.rng.choice((2_000, 8_000)))}
    small["index.interval.bytes"] = str(world.rng.choice((0, 500)))
    keep = {"retention.ms": "-1"}
    topics = [
        Topic("flushed", 2, small | keep | {"flush.messages": "1"}),
        Topic("plain", 2, small | keep),
        Topic("opened", 1, small | keep | {"headrace.validate.records": "true", "flush.messages": "1"}),
        Topic("short", 1, small | {"retention.bytes": "6000", "file.delete.delay.ms": "300"}),
        Topic(
            "keyed",
            1,
            small | keep | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
            has_keys=True,
        ),
    ]
    later = [
        Topic(f"later{n}", 1, small | {"flush.messages": "1"} if n else small, has_namesakes=True)
        for n in range(2)
    ]
    return topics, later


def _passing(world: World) -> list[Topic]:
    """For the operator, who replaces them whatever is done to them: flushed, compacted, recompressed."""
    small = {"internal.segment.bytes": "2000", "retention.ms": "-1", "file.delete.delay.ms": "0"}
    kinds = (
        {"flush.messages": "1"},
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        {"headrace.sealed.compression.type": "zstd"},
    )
    return [
        Topic(f"passing{n}", 1, small | world.rng.choice(kinds), has_namesakes=True, has_keys=True)
        for n in range(2)
    ]


def _settings(topics: list[Topic], passing: list[Topic]) -> list[Setting]:
    flushing = ("1", NEVER, "3")
    special: dict[str, dict[str, tuple[str, ...]]] = {
        "flushed": {"flush_messages": flushing},
        "plain": {"flush_messages": (NEVER, "1", "5")},
        "short": {"retention_bytes": ("6000", "2000", "-1"), "retention_ms": ("604800000", "1000", "-1")},
        "keyed": {"cleanup_policy": ("compact", "delete"), "delete_retention_ms": ("86400000", "0")},
    }
    changing = [
        setting
        for topic in (*topics, *passing)
        for setting in settings_of(topic, **special.get(topic.name, {}))
    ]
    # flushes are what most depends on: as often as everything else
    lifted = [Setting(name, "flush.messages", flushing) for name in ("flushed", "opened")] * 30
    return [*changing, *lifted, *broker_settings()]
