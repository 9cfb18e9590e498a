"""One run from one seed, in two phases: things break while clients work, then all heals and must be served.

The first phase is for safety: the judges object to any impossible fact. The second demands progress: within
a bounded time every producer has its answers, and everything can be read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from traceback import format_exception

from headrace.base.dice import Dice
from headrace.base.time import Now
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.simulator.history import History, JudgedWrong
from headrace.simulator.judges import all_judges
from headrace.simulator.machine import Machine
from headrace.simulator.odds import Odds, odds_of
from headrace.simulator.plays import Play
from headrace.simulator.plays.clients import Clients
from headrace.simulator.plays.coordinators import Coordinators
from headrace.simulator.plays.logs import Logs
from headrace.simulator.world import World
from headrace.storage.disk import Disk

PLAYS: dict[str, Callable[[World], Play]] = {"logs": Logs, "coordinators": Coordinators, "clients": Clients}


@dataclass(slots=True, frozen=True)
class Options:
    seconds: float = 20.0  # of trouble
    odds: Odds | None = None  # None: those of the seed
    play: str = "logs"


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
    play: str
    odds: str  # their name
    simulated_s: float
    events: int
    faults: int
    starts: int
    cleanings: int  # passes of the cleaner over a compacted log
    digest: str
    failure: Failure | None


def simulate(seed: int, options: Options = DEFAULT) -> Outcome:
    name, odds = odds_of(seed) if options.odds is None else ("given", options.odds)
    world = World(seed)
    history = History(world, all_judges())
    directories = ["a", "b"][: world.dice.randint(1, 2)]
    play = PLAYS[options.play](world)
    settings = Settings.parse(_settings(directories) | play.settings)

    def start_node(disks: dict[str, Disk], dice: Dice, boot_id: str, now: Now) -> Node:
        return Node(settings, disks, dice, boot_id, now)

    machine = Machine(world, history, directories, start_node)
    failure = None
    try:
        play.live(machine, odds, options.seconds)
    except JudgedWrong as wrong:
        failure = Failure(wrong.judge, wrong.sentence, wrong.number, wrong.event, list(history.last_lines))
    except Exception as error:
        # machines answer for every failure of peers and disks; what they let out is a mistake of their own
        where = "".join(format_exception(error)[-4:])
        failure = Failure("nothing_is_raised", repr(error), history.count, where, list(history.last_lines))
    return Outcome(
        seed,
        options.play,
        name,
        world.mono,
        history.count,
        history.faults,
        machine.starts,
        machine.reports.count("info segments_cleaned"),
        history.digest,
        failure,
    )


def _settings(directories: list[str]) -> dict[str, str]:
    return {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": ",".join(directories),
        "log.retention.check.interval.ms": "700",
        "log.initial.task.delay.ms": "100",
        "auto.create.topics.enable": "false",
    }
