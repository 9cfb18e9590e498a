"""One run from one seed, in two phases: things break while clients work, then all heals and must be served.

The first phase is for safety: the judges object to any impossible fact. The second demands progress: within
a bounded time every producer has its answers, and everything can be read.
"""

from dataclasses import dataclass, field
from traceback import format_exception

from headrace.base.dice import Dice
from headrace.base.time import Now
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.simulator.clients.admin import Admin
from headrace.simulator.clients.consumer import Consumer
from headrace.simulator.clients.producer import Producer
from headrace.simulator.clients.reader import Reader
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import History, JudgedWrong
from headrace.simulator.judges import all_judges
from headrace.simulator.machine import Machine
from headrace.simulator.mischief import Mischief, Odds
from headrace.simulator.world import World
from headrace.storage.disk import Disk

CALM_S = 1.0  # until what was under way when the trouble ended is over
HEALING_S = 60.0  # beyond every timeout and back-off of the clients and every interval of the node


@dataclass(slots=True, frozen=True)
class Options:
    seconds: float = 20.0  # of trouble
    odds: Odds = field(default_factory=Odds)


DEFAULT = Options()


@dataclass(slots=True)
class Failure:
    judge: str
    sentence: str
    event_number: int
    event: str
    lines_before: list[str]


@dataclass(slots=True)
class Outcome:
    seed: int
    simulated_s: float
    events: int
    faults: int
    starts: int
    digest: str
    failure: Failure | None


def simulate(seed: int, options: Options = DEFAULT) -> Outcome:
    world = World(seed)
    history = History(world, all_judges())
    directories = ["a", "b"][: world.dice.randint(1, 2)]
    settings = Settings.parse(_settings(directories))

    def start_node(disks: dict[str, Disk], dice: Dice, boot_id: str, now: Now) -> Node:
        return Node(settings, disks, dice, boot_id, now)

    machine = Machine(world, history, directories, start_node)
    failure = None
    try:
        _live(world, machine, options)
    except JudgedWrong as wrong:
        failure = Failure(wrong.judge, wrong.sentence, wrong.number, wrong.event, list(history.last_lines))
    except Exception as error:
        # a node answers for every failure of clients and disks; what it lets out is a mistake of its own
        where = "".join(format_exception(error)[-4:])
        failure = Failure("node_raises_nothing", repr(error), history.count, where, list(history.last_lines))
    return Outcome(seed, world.mono, history.count, history.faults, machine.starts, history.digest, failure)


def _live(world: World, machine: Machine, options: Options) -> None:
    topics, later = _topics(world)
    everything = [*topics, *later]
    admin = Admin(machine, "admin", topics, later, everything)
    producers = [
        Producer(machine, "p1", everything, acks=-1, is_idempotent=True),
        Producer(machine, "p2", everything, acks=world.dice.choice((1, -1)), is_idempotent=True),
        Producer(machine, "p3", everything, acks=world.dice.choice((0, 1, -1)), is_idempotent=False),
    ]
    consumers = [Consumer(machine, "c1", everything), Consumer(machine, "c2", topics[:1])]
    mischief = Mischief(machine, [admin, *producers, *consumers], options.odds)

    machine.start()
    admin.begin()
    if not world.run(world.mono + HEALING_S, is_done=lambda: admin.has_created):
        raise _stuck(machine, "topics are not created")
    for client in (*producers, *consumers):
        client.begin()
    mischief.begin()
    world.run(world.mono + options.seconds)

    mischief.stop()
    admin.is_quiet = True
    for producer in producers:
        producer.is_stopping = True
    machine.start()
    world.run(world.mono + CALM_S)
    if not world.run(world.mono + HEALING_S, is_done=lambda: all(one.is_idle for one in producers)):
        raise _stuck(machine, "producers have no answer")
    reader = Reader(machine, "reader", everything)
    reader.begin()
    if not world.run(world.mono + HEALING_S, is_done=lambda: reader.is_over):
        raise _stuck(machine, "not everything can be read")


def _stuck(machine: Machine, what: str) -> JudgedWrong:
    state = "is down" if machine.node is None else f"reported {machine.reports[-3:]}"
    sentence = f"{HEALING_S:.0f} s after all has healed {what}; the node {state}"
    return JudgedWrong("progress_after_healing", sentence, machine.history.count, "nothing happens")


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


def _settings(directories: list[str]) -> dict[str, str]:
    return {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": ",".join(directories),
        "log.retention.check.interval.ms": "700",
        "log.initial.task.delay.ms": "100",
        "auto.create.topics.enable": "false",
    }
