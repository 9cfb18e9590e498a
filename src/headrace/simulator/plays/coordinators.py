"""Copiers in a group, each with transactions: what one topic holds is written to another, exactly once.
Beside them plain consumers read the same topic in a group of their own.

In half of the runs every record is fsynced before it is acknowledged, and machines may be lost; in the others
only processes die, since default durability does not outlive a lost machine.
"""

from dataclasses import replace

from headrace.simulator.clients.admin import Admin
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
from headrace.simulator.history import AtRest, Copied
from headrace.simulator.machine import Machine
from headrace.simulator.mischief import Mischief
from headrace.simulator.odds import Odds
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
        dice = world.dice
        self._is_flushed = world.chance(0.5)
        self._transaction_version = dice.choice((1, 2, 2))
        self._copying = dice.choice(GROUPS)
        self._reading = dice.choice(GROUPS)
        self._has_static_members = world.chance(0.5)
        self.settings = {
            "offsets.topic.num.partitions": str(dice.randint(1, 3)),
            "transaction.state.log.num.partitions": str(dice.randint(1, 3)),
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "2000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.initial.rebalance.delay.ms": dice.choice(("0", "200")),
            "log.cleaner.backoff.ms": "1000",
            "log.cleaner.min.cleanable.ratio": "0.1",
        }
        if self._is_flushed:
            self.settings["log.flush.interval.messages"] = "1"

    def live(self, machine: Machine, odds: Odds, seconds: float) -> None:
        world = machine.world
        if not self._is_flushed:
            odds = replace(odds, lose=0, loses_in_call=False)
        configs = {"retention.ms": "-1", "internal.segment.bytes": "8000"}
        if self._is_flushed:
            configs["flush.messages"] = "1"
        source = Topic("source", world.dice.randint(1, 3), configs)
        target = Topic("target", world.dice.randint(1, 3), configs)
        topics = [source, target, *self._coordinators_topics(world)]
        admin = Admin(machine, "admin", topics, [], topics)
        feeder = Producer(machine, "feeder", [source], acks=-1, is_idempotent=True)
        feeder.pauses = (0.1, 0.8)
        copiers = [
            Copier(
                machine,
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
                machine,
                f"plain{n}",
                source,
                membership,
                is_static=self._has_static_members and n > 1,
            )
            for n, membership in enumerate(self._reading, 1)
        ]
        members: list[Copier | PlainConsumer] = [*copiers, *plain]
        observer = Observer(machine, "observer", target)
        ghost = Ghost(machine, "ghost")
        if self._transaction_version >= 2:  # the first protocol cannot tell a late request from a timely one
            for copier in copiers:
                copier.tell = ghost.overhear
        hasty: list[HastyMember | Migrant] = [
            *(HastyMember(machine, f"hasty{n}") for n in (1, 2)),
            *(Migrant(machine, f"migrant{n}") for n in (1, 2)),
        ]
        bystander = Bystander(machine, "bystander")
        forger = Forger(machine, "forger", ["source", "__consumer_offsets", "__transaction_state"])
        operator = Operator(machine, "operator", self._changing(source, target), [], topics)
        mischief = Mischief(
            machine, [admin, feeder, *members, observer, *hasty, bystander, forger, operator], odds, operator
        )

        machine.start()
        admin.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: admin.has_created):
            raise stuck(machine, "topics are not created")
        for client in (feeder, *members, observer, ghost, *hasty, bystander, forger, operator):
            client.begin()
        mischief.begin()
        world.run(world.mono + seconds)

        mischief.stop()
        admin.is_quiet = True
        feeder.is_stopping = forger.is_stopping = bystander.is_stopping = True
        ghost.is_laid = True
        for one in hasty:
            one.is_stopping = True
        for member in members:
            member.is_careful = True
        machine.start()
        world.run(world.mono + CALM_S)
        if not world.run(world.mono + HEALING_S, is_done=lambda: operator.has_restored):
            raise stuck(machine, "settings are not as they were")
        if not world.run(world.mono + HEALING_S, is_done=lambda: feeder.is_idle):
            raise stuck(machine, "the feeder has no answer")
        reader = Reader(machine, "reader", [source])
        reader.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: reader.is_over):
            raise stuck(machine, "not everything can be read")
        originals = [value for records in reader.contents.values() for _, value in records]
        if not world.run(world.mono + HEALING_S, is_done=lambda: len(observer.shown) >= len(originals)):
            raise stuck(machine, f"{len(observer.shown)} of {len(originals)} values are copied")

        def everything_is_polled() -> bool:
            ends = {key: max(one.ends.get(key, 0) for one in plain) for key in source.keys}
            return all(ends[key] >= len(records) for key, records in reader.contents.items())

        if not world.run(world.mono + HEALING_S, is_done=everything_is_polled):
            raise stuck(machine, "not everything is polled by the plain consumers")
        world.run(world.mono + TRANSACTION_TIMEOUT_MS / 1000 + CALM_S)  # one too many would come now
        machine.history.add(Copied(originals, [value.split(b":", 2)[2] for value in observer.shown]))
        machine.history.add(AtRest(_ends(machine)))

    def _changing(self, source: Topic, target: Topic) -> list[Setting]:
        """Flushes too, unless machines may be lost: what was promised then is an fsync each time."""
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


def _ends(machine: Machine) -> dict[str, tuple[int, int]]:
    assert machine.node is not None
    return {
        f"{one.topic}-{one.index}": (one.visible_end(READ_COMMITTED), one.leader.high_watermark)
        for one in machine.node.broker.partitions.all()
        if one.log is not None
    }
