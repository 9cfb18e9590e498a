"""Play `coordinators`: a group of copiers writes one topic to another in transactions, exactly once.

Ordinary consumers read the same topic in a group of their own. In half of the runs every record is fsynced
before it is acknowledged, and the host may crash; in the others only processes are killed, because
without an fsync a crash of the host loses acknowledged records.
"""

from dataclasses import replace

from headrace.simulator.clients.admin import Admin
from headrace.simulator.clients.bookmarker import Bookmarker
from headrace.simulator.clients.bystander import Bystander
from headrace.simulator.clients.copier import TRANSACTION_TIMEOUT_MS, Copier
from headrace.simulator.clients.forger import Forger
from headrace.simulator.clients.ghost import Ghost
from headrace.simulator.clients.hasty import HastyMember
from headrace.simulator.clients.member import Membership
from headrace.simulator.clients.migrant import Migrant
from headrace.simulator.clients.new_member import NewMembership
from headrace.simulator.clients.observer import Observer
from headrace.simulator.clients.plain import PlainConsumer
from headrace.simulator.clients.polling import READ_COMMITTED
from headrace.simulator.clients.producer import Producer
from headrace.simulator.clients.reader import Reader
from headrace.simulator.clients.topics import Topic
from headrace.simulator.fault_injection import FaultInjector
from headrace.simulator.fault_profiles import FaultProfile
from headrace.simulator.history import AtRest, Copied
from headrace.simulator.host import Host
from headrace.simulator.operator import NEVER, Operator, Setting, settings_of
from headrace.simulator.plays import CALM_S, HEALING_S, stuck
from headrace.simulator.world import World

# Which protocol each of a group's members speaks: the mixed ones change back and forth, live, as those of one
# kind die and come back.
GROUPS = (
    (Membership, Membership, Membership),
    (NewMembership, NewMembership, NewMembership),
    (Membership, Membership, NewMembership),
    (Membership, NewMembership, NewMembership),
)


class Coordinators:
    def __init__(self, world: World) -> None:
        rng = world.rng
        self._is_flushed = world.chance(0.5)
        self._transaction_version = rng.choice((1, 2, 2))
        self._copying = rng.choice(GROUPS)
        self._reading = rng.choice(GROUPS)
        self._has_static_members = world.chance(0.5)
        self.settings = {
            "offsets.topic.num.partitions": str(rng.randint(1, 3)),
            "transaction.state.log.num.partitions": str(rng.randint(1, 3)),
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "2000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.initial.rebalance.delay.ms": rng.choice(("0", "200")),
            "log.cleaner.backoff.ms": "1000",
            "log.cleaner.min.cleanable.ratio": "0.1",
        }
        if self._is_flushed:
            self.settings["log.flush.interval.messages"] = "1"

    def live(self, host: Host, profile: FaultProfile, seconds: float) -> None:
        world = host.world
        if not self._is_flushed:
            profile = replace(profile, lose=0, loses_in_call=False)
        configs = {"retention.ms": "-1", "internal.segment.bytes": "8000"}
        if self._is_flushed:
            configs["flush.messages"] = "1"
        source = Topic("source", world.rng.randint(1, 3), configs)
        target = Topic("target", world.rng.randint(1, 3), configs)
        topics = [source, target, *self._coordinators_topics(world)]
        admin = Admin(host, "admin", topics, [], topics)
        feeder = Producer(host, "feeder", [source], acks=-1, is_idempotent=True)
        feeder.pauses = (0.1, 0.8)
        copiers = [
            Copier(
                host,
                f"copier{n}",
                source,
                target,
                membership,
                transaction_version=self._transaction_version,
            )
            for n, membership in enumerate(self._copying, 1)
        ]
        plain = [
            PlainConsumer(
                host,
                f"plain{n}",
                source,
                membership,
                is_static=self._has_static_members and n > 1,
            )
            for n, membership in enumerate(self._reading, 1)
        ]
        members: list[Copier | PlainConsumer] = [*copiers, *plain]
        observer = Observer(host, "observer", target)
        ghost = Ghost(host, "ghost")
        if self._transaction_version >= 2:  # the first protocol cannot tell a late request from a timely one
            for copier in copiers:
                copier.tell = ghost.overhear
        hasty: list[HastyMember | Migrant] = [
            *(HastyMember(host, f"hasty{n}") for n in (1, 2)),
            *(Migrant(host, f"migrant{n}") for n in (1, 2)),
        ]
        bystander = Bystander(host, "bystander")
        bookmarker = Bookmarker(host, "bookmarker")
        forger = Forger(host, "forger", ["source", "__consumer_offsets", "__transaction_state"])
        operator = Operator(host, "operator", self._changing(source, target), [], topics)
        faults = FaultInjector(
            host,
            [admin, feeder, *members, observer, *hasty, bystander, bookmarker, forger, operator],
            profile,
            operator,
        )

        host.start()
        admin.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: admin.has_created):
            raise stuck(host, "topics are not created")
        for client in (feeder, *members, observer, ghost, *hasty, bystander, bookmarker, forger, operator):
            client.begin()
        faults.begin()
        world.run(world.mono + seconds)

        faults.stop()
        admin.is_quiet = True
        feeder.is_stopping = forger.is_stopping = bystander.is_stopping = bookmarker.is_stopping = True
        ghost.is_laid = True
        for one in hasty:
            one.is_stopping = True
        for member in members:
            member.is_careful = True
        host.start()
        world.run(world.mono + CALM_S)
        if not world.run(world.mono + HEALING_S, is_done=lambda: operator.has_restored):
            raise stuck(host, "settings are not as they were")
        if not world.run(world.mono + HEALING_S, is_done=lambda: feeder.is_idle):
            raise stuck(host, "the feeder has no answer")
        reader = Reader(host, "reader", [source])
        reader.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: reader.is_over):
            raise stuck(host, "not everything can be read")
        originals = [value for records in reader.contents.values() for _, value in records]
        if not world.run(world.mono + HEALING_S, is_done=lambda: len(observer.shown) >= len(originals)):
            raise stuck(host, f"{len(observer.shown)} of {len(originals)} values are copied")

        def everything_is_polled() -> bool:
            ends = {key: max(one.ends.get(key, 0) for one in plain) for key in source.keys}
            return all(ends[key] >= len(records) for key, records in reader.contents.items())

        if not world.run(world.mono + HEALING_S, is_done=everything_is_polled):
            raise stuck(host, "not everything is polled by the plain consumers")
        world.run(world.mono + TRANSACTION_TIMEOUT_MS / 1000 + CALM_S)  # one too many would come now
        host.history.add(Copied(originals, [value.split(b":", 2)[2] for value in observer.shown]))
        host.history.add(AtRest(_ends(host)))

    def _changing(self, source: Topic, target: Topic) -> list[Setting]:
        """Flushes too, unless hosts may be lost: what was promised then is an fsync each time."""
        more: dict[str, tuple[str, ...]] = {}
        if not self._is_flushed:
            more["flush_messages"] = (NEVER, "1", "2")
        own = {
            "compression_type": ("producer", "zstd"),
            "delete_retention_ms": ("86400000", "0"),
            "cleanup_policy": ("compact", "delete"),
        } | more
        names = ("__consumer_offsets", "__transaction_state")
        return [
            *settings_of(source, **more),
            *settings_of(target, **more),
            *(one for name in names for one in settings_of(name, **own) if one.key != "min.insync.replicas"),
        ]

    def _coordinators_topics(self, world: World) -> list[Topic]:
        """Made beforehand, with segments so small that they are cleaned; else the node makes them. In some
        runs they are not compacted: the node does not open batches for such topics.
        """
        if world.chance(0.3):
            return []
        policy = "delete" if world.chance(0.15) else "compact"
        small = {"cleanup.policy": policy, "internal.segment.bytes": "2000", "retention.ms": "-1"}
        return [
            Topic(name, int(self.settings[f"{owner}.num.partitions"]), small)
            for name, owner in (
                ("__consumer_offsets", "offsets.topic"),
                ("__transaction_state", "transaction.state.log"),
            )
        ]


def _ends(host: Host) -> dict[str, tuple[int, int]]:
    assert host.node is not None
    return {
        f"{one.topic}-{one.index}": (one.visible_end(READ_COMMITTED), one.high_watermark)
        for one in host.node.broker.partitions.all()
        if one.log is not None
    }
