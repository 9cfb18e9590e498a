"""Programs made of our own client before the node: producers, readers by assignment, workers in a group, and
copiers that read, transform and write in transactions. All of them die and come back, and the network loses,
delays and repeats what they say.

A run has two of three scenes: notes that are written and read by assignment, a group at work, and copiers. As
in the play of the coordinators, machines are lost only where every record is fsynced before it is
acknowledged.
"""

from dataclasses import replace

from headrace.client.assignors import ASSIGNORS
from headrace.simulator.clients.admin import Admin
from headrace.simulator.clients.observer import Observer
from headrace.simulator.clients.reader import Reader
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import ContentsKnown, Copied, PartitionKey
from headrace.simulator.machine import Machine
from headrace.simulator.mischief import Mischief
from headrace.simulator.odds import Odds
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
        dice = world.dice
        self._is_flushed = world.chance(0.5)
        self._scenes = dice.sample((NOTES, WORK, COPIES), 2)
        self.settings = {
            "offsets.topic.num.partitions": str(dice.randint(1, 2)),
            "transaction.state.log.num.partitions": str(dice.randint(1, 2)),
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "2000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.assignment.interval.ms": "0",
            "group.initial.rebalance.delay.ms": dice.choice(("0", "200")),
        }
        if self._is_flushed:
            self.settings["log.flush.interval.messages"] = "1"
        self._senders: list[Sender] = []
        self._explorers: list[Explorer] = []
        self._programs: list[Program] = []
        self._handled: set[tuple[PartitionKey, int]] = set()  # by the workers

    def live(self, machine: Machine, odds: Odds, seconds: float) -> None:
        world = machine.world
        # The network is what is on trial; of the rest as much as keeps everybody awake.
        odds = replace(odds, reset=24, late_follower=2, clock_jump=1)
        if not self._is_flushed:
            odds = replace(odds, lose=0, loses_in_call=False)
        self._cast(machine)
        observer = Observer(machine, "observer", self._target)
        changing = [one for topic in self._topics for one in settings_of(topic, **self._flushing)]
        operator = Operator(machine, "operator", changing, [], [])
        mischief = Mischief(machine, [self._admin, operator, *self._programs], odds, operator)

        machine.start()
        self._admin.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: self._admin.has_created):
            raise stuck(machine, "topics are not created")
        operator.begin()
        for program in self._programs:
            program.begin()
        if COPIES in self._scenes:
            observer.begin()
        mischief.begin()
        world.run(world.mono + seconds * TROUBLE_SHARE)

        mischief.stop()
        self._admin.is_quiet = True
        for program in self._programs:
            program.is_careful = True
        for sender in self._senders:
            sender.is_stopping = True
        for explorer in self._explorers:
            explorer.rest()
        machine.start()
        world.run(world.mono + STALL_S_MAX + CALM_S)  # what is under way from earlier has arrived by then
        if not world.run(world.mono + HEALING_S, is_done=lambda: operator.has_restored):
            raise stuck(machine, "settings are not as they were")
        self._demand_progress(machine, observer)

    def _cast(self, machine: Machine) -> None:
        world, dice = machine.world, machine.world.dice
        configs = {"retention.ms": "-1", "internal.segment.bytes": "8000", "max.message.bytes": "1000"}
        if self._is_flushed:
            configs["flush.messages"] = "1"
        self._source = source = Topic("source", dice.randint(1, 3), configs)
        self._target = target = Topic("target", dice.randint(1, 2), configs)
        self._notes = notes = Topic("notes", dice.randint(1, 2), configs)
        self._topics = topics = [source, target, notes]
        self._flushing = {} if self._is_flushed else {"flush_messages": (NEVER, "1", "2")}
        self._admin = Admin(machine, "admin", topics, [], topics)
        self._senders.append(Sender(machine, "feeder", source, acks=-1, is_idempotent=True))
        if NOTES in self._scenes:
            acks = dice.choice((0, 1, -1))
            self._senders += [
                Sender(machine, "writer", notes, acks=-1, is_idempotent=True),
                Sender(machine, "plain", notes, acks=acks, is_idempotent=False),
            ]
            self._explorers.append(Explorer(machine, "explorer", notes, is_committed=False))
        if WORK in self._scenes:
            kind, is_auto = _kind(world, WORKERS), world.chance(0.5)
            for number in range(1, dice.randint(2, 3) + 1):
                is_static = number > 1 and world.chance(0.5)
                member = Member(
                    machine,
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
            self._programs += [Copier(machine, f"copier{n}", source, target, kind) for n in (1, 2)]
            self._explorers.append(Explorer(machine, "auditor", target, is_committed=True))
        self._programs += [*self._senders, *self._explorers]

    # --- all has healed -----------------------------------------------------------------------------

    def _demand_progress(self, machine: Machine, observer: Observer) -> None:
        """Everybody is answered, everything is read, handled and copied."""
        world = machine.world
        if not world.run(world.mono + HEALING_S, is_done=lambda: all(one.is_idle for one in self._senders)):
            raise stuck(machine, "producers do not tell what became of their records")
        reader = Reader(machine, "reader", [self._source, self._notes])
        reader.begin()
        if not world.run(world.mono + HEALING_S, is_done=lambda: reader.is_over):
            raise stuck(machine, "not everything can be read")
        contents = dict(reader.contents)
        source = {key: contents[key] for key in self._source.keys}
        if COPIES in self._scenes:
            self._demand_copies(machine, observer, [value for rows in source.values() for _, value in rows])
            contents |= observer.rows
        ends = {key: rows[-1][0] + 1 for key, rows in contents.items() if rows}

        def has_read_all() -> bool:
            return all(explorer.has_read(ends) for explorer in self._explorers)

        if not world.run(world.mono + HEALING_S, is_done=has_read_all):
            raise stuck(machine, "not everything is shown to those who read by assignment")
        handled_by = {}
        if WORK in self._scenes:
            handled_by = {WORKERS: self._source.name}
            work = {(key, offset) for key, rows in source.items() for offset, _ in rows}
            if not world.run(world.mono + HEALING_S, is_done=lambda: self._handled >= work):
                raise stuck(machine, f"{len(work - self._handled)} of {len(work)} records are not handled")
        machine.history.add(ContentsKnown(contents, handled_by))

    def _demand_copies(self, machine: Machine, observer: Observer, originals: list[bytes]) -> None:
        world = machine.world
        if not world.run(world.mono + HEALING_S, is_done=lambda: len(observer.shown) >= len(originals)):
            raise stuck(machine, f"{len(observer.shown)} of {len(originals)} values are copied")
        world.run(world.mono + TRANSACTION_TIMEOUT_MS / 1000 + CALM_S)  # one too many would come now
        machine.history.add(Copied(originals, [value.split(b":", 2)[2] for value in observer.shown]))


def _kind(world: World, group: str) -> GroupKind:
    protocol = world.dice.choice(("classic", "consumer"))
    return GroupKind(group, protocol, world.dice.choice(sorted(ASSIGNORS)))
