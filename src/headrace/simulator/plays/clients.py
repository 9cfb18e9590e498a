"""Play `clients`: programs that use our own client against the node.

There are producers, readers with assigned partitions, members of a group, and copiers that read, transform
and write in transactions. All of them crash and restart, and the network loses, delays and repeats their
frames. A run has two of three scenes: records that are written and read by assignment, a group, and copiers.
As in the play `coordinators`, the host crashes only if every record is fsynced before it is acknowledged.
"""

from dataclasses import replace

from headrace.client.assignors import ASSIGNORS
from headrace.simulator.clients.admin import Admin
from headrace.simulator.clients.observer import Observer
from headrace.simulator.clients.reader import Reader
from headrace.simulator.clients.topics import Topic
from headrace.simulator.fault_injection import FaultInjector
from headrace.simulator.fault_profiles import FaultProfile
from headrace.simulator.history import ContentsKnown, Copied, PartitionKey
from headrace.simulator.host import Host
from headrace.simulator.operator import NEVER, Operator, settings_of
from headrace.simulator.plays import CALM_S, HEALING_S, stuck
from headrace.simulator.programs.copier import TRANSACTION_TIMEOUT_MS, Copier
from headrace.simulator.programs.explorer import Explorer
from headrace.simulator.programs.member import Member
from headrace.simulator.programs.program import Program
from headrace.simulator.programs.reading import GroupKind
from headrace.simulator.programs.sender import Sender
from headrace.simulator.programs.shell import STALL_S_MAX
from headrace.simulator.world import World

NOTES, WORK, COPIES = "notes", "work", "copies"  # the scenes
WORKERS = "workers"
TROUBLE_SHARE = 0.5  # of the seconds of other plays: programs do more in each than scripts do


class Clients:
    def __init__(self, world: World) -> None:
        rng = world.rng
        self._is_flushed = world.chance(0.5)
        self._scenes = rng.sample((NOTES, WORK, COPIES), 2)
        self.settings = {
            "offsets.topic.num.partitions": str(rng.randint(1, 2)),
            "transaction.state.log.num.partitions": str(rng.randint(1, 2)),
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "2000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.assignment.interval.ms": "0",
            "group.initial.rebalance.delay.ms": rng.choice(("0", "200")),
        }
        if self._is_flushed:
            self.settings["log.flush.interval.messages"] = "1"
        self._senders: list[Sender] = []
        self._explorers: list[Explorer] = []
        self._programs: list[Program] = []
        self._handled: set[tuple[PartitionKey, int]] = set()  # by the workers

    def live(self, host: Host, profile: FaultProfile, seconds: float) -> None:
        world = host.world
        # The network is what is on trial; of the rest as much as keeps everybody awake.
        profile = replace(profile, reset=24, late_follower=2, clock_jump=1)
        if not self._is_flushed:
            profile = replace(profile, lose=0, loses_in_call=False)
        self._cast(host)
        observer = Observer(host, "observer", self._target)
        changing = [one for topic in self._topics for one in settings_of(topic, **self._flushing)]
        operator = Operator(host, "operator", changing, [], [])
        faults = FaultInjector(host, [self._admin, operator, *self._programs], profile, operator)

        host.start()
        self._admin.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: self._admin.has_created):
            raise stuck(host, "topics are not created")
        operator.begin()
        for program in self._programs:
            program.begin()
        if COPIES in self._scenes:
            observer.begin()
        faults.begin()
        world.run(world.mono + seconds * TROUBLE_SHARE)

        faults.stop()
        self._admin.is_quiet = True
        for program in self._programs:
            program.is_careful = True
        for sender in self._senders:
            sender.is_stopping = True
        for explorer in self._explorers:
            explorer.rest()
        host.start()
        world.run(world.mono + STALL_S_MAX + CALM_S)  # what is under way from earlier has arrived by then
        if not world.run(world.mono + HEALING_S, is_done=lambda: operator.has_restored):
            raise stuck(host, "settings are not as they were")
        self._demand_progress(host, observer)

    def _cast(self, host: Host) -> None:
        world, rng = host.world, host.world.rng
        configs = {"retention.ms": "-1", "internal.segment.bytes": "8000", "max.message.bytes": "1000"}
        if self._is_flushed:
            configs["flush.messages"] = "1"
        self._source = source = Topic("source", rng.randint(1, 3), configs)
        self._target = target = Topic("target", rng.randint(1, 2), configs)
        self._notes = notes = Topic("notes", rng.randint(1, 2), configs)
        self._topics = topics = [source, target, notes]
        self._flushing = {} if self._is_flushed else {"flush_messages": (NEVER, "1", "2")}
        self._admin = Admin(host, "admin", topics, [], topics)
        self._senders.append(Sender(host, "feeder", source, acks=-1, is_idempotent=True))
        if NOTES in self._scenes:
            acks = rng.choice((0, 1, -1))
            self._senders += [
                Sender(host, "writer", notes, acks=-1, is_idempotent=True),
                Sender(host, "plain", notes, acks=acks, is_idempotent=False),
            ]
            self._explorers.append(Explorer(host, "explorer", notes, is_committed=False))
        if WORK in self._scenes:
            kind, is_auto = _kind(world, WORKERS), world.chance(0.5)
            for number in range(1, rng.randint(2, 3) + 1):
                is_static = number > 1 and world.chance(0.5)
                member = Member(
                    host,
                    f"member{number}",
                    source,
                    self._handled,
                    kind=kind,
                    is_static=is_static,
                    is_auto=is_auto,
                )
                self._programs.append(member)
        if COPIES in self._scenes:
            kind = _kind(world, "copiers")
            self._programs += [Copier(host, f"copier{n}", source, target, kind) for n in (1, 2)]
            self._explorers.append(Explorer(host, "auditor", target, is_committed=True))
        self._programs += [*self._senders, *self._explorers]

    # --- all has healed -----------------------------------------------------------------------------

    def _demand_progress(self, host: Host, observer: Observer) -> None:
        """Everybody is answered, everything is read, handled and copied."""
        world = host.world
        if not world.run(world.mono + HEALING_S, is_done=lambda: all(one.is_idle for one in self._senders)):
            raise stuck(host, "producers do not tell what became of their records")
        reader = Reader(host, "reader", [self._source, self._notes])
        reader.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: reader.is_over):
            raise stuck(host, "not everything can be read")
        contents = dict(reader.contents)
        source = {key: contents[key] for key in self._source.keys}
        if COPIES in self._scenes:
            self._demand_copies(host, observer, [value for rows in source.values() for _, value in rows])
            contents |= observer.rows
        ends = {key: rows[-1][0] + 1 for key, rows in contents.items() if rows}

        def has_read_all() -> bool:
            return all(explorer.has_read(ends) for explorer in self._explorers)

        if not world.run(world.mono + HEALING_S, is_done=has_read_all):
            raise stuck(host, "not everything is shown to those who read by assignment")
        handled_by = {}
        if WORK in self._scenes:
            handled_by = {WORKERS: self._source.name}
            work = {(key, offset) for key, rows in source.items() for offset, _ in rows}
            if not world.run(world.mono + HEALING_S, is_done=lambda: self._handled >= work):
                raise stuck(host, f"{len(work - self._handled)} of {len(work)} records are not handled")
        host.history.add(ContentsKnown(contents, handled_by))

    def _demand_copies(self, host: Host, observer: Observer, originals: list[bytes]) -> None:
        world = host.world
        if not world.run(world.mono + HEALING_S, is_done=lambda: len(observer.shown) >= len(originals)):
            raise stuck(host, f"{len(observer.shown)} of {len(originals)} values are copied")
        world.run(world.mono + TRANSACTION_TIMEOUT_MS / 1000 + CALM_S)  # one too many would come now
        host.history.add(Copied(originals, [value.split(b":", 2)[2] for value in observer.shown]))


def _kind(world: World, group: str) -> GroupKind:
    protocol = world.rng.choice(("classic", "consumer"))
    return GroupKind(group, protocol, world.rng.choice(sorted(ASSIGNORS)))
