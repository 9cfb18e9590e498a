"""One run from one seed, in two phases: first with faults, then without.

The first phase checks safety: the judges raise at any fact that breaks a promise. The second checks progress:
within a limited time every producer gets its answers, and everything can be read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from traceback import format_exception

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_fault_profiles import (
    PROFILES,
    ClusterProfile,
    cluster_profile_of,
    settings_of,
)
from headrace.simulator.cluster_judges import cluster_judges
from headrace.simulator.cluster_judges.deleted_stays_deleted import DeletedStaysDeleted
from headrace.simulator.fault_profiles import FaultProfile, profile_of
from headrace.simulator.history import History, JudgedWrong
from headrace.simulator.host import Host
from headrace.simulator.judges import all_judges, judges_of_clients
from headrace.simulator.plays import ClusterPlay, Play
from headrace.simulator.plays.clean_end import stop_and_start
from headrace.simulator.plays.clients import Clients
from headrace.simulator.plays.cluster import ClusterOfLogs
from headrace.simulator.plays.cluster_coordinators import ClusterCoordinators
from headrace.simulator.plays.coordinators import Coordinators
from headrace.simulator.plays.logs import Logs
from headrace.simulator.plays.quorum import QuorumStorm
from headrace.simulator.world import World
from headrace.storage.disk import Disk

PLAYS: dict[str, Callable[[World], Play]] = {"logs": Logs, "coordinators": Coordinators, "clients": Clients}
CLUSTER_PLAYS: dict[str, Callable[[World], ClusterPlay]] = {
    "cluster": ClusterOfLogs,
    "cluster_coordinators": ClusterCoordinators,
}
QUORUM = "quorum"
ALL_PLAYS = (*PLAYS, *CLUSTER_PLAYS, QUORUM)


@dataclass(slots=True, frozen=True)
class Options:
    seconds: float = 20.0  # of trouble
    profile: FaultProfile | None = None  # None: that of the seed
    cluster_profile: ClusterProfile | None = None  # of a cluster's faults; None: that of the seed
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
    profile: str  # its name
    simulated_s: float
    events: int
    faults: int
    starts: int
    cleanings: int  # passes of the cleaner over a compacted log
    digest: str
    failure: Failure | None


def simulate(seed: int, options: Options = DEFAULT) -> Outcome:
    if options.play == QUORUM:
        return simulate_quorum(seed, options)
    if options.play in CLUSTER_PLAYS:
        return simulate_cluster(seed, options)
    name, profile = profile_of(seed) if options.profile is None else ("given", options.profile)
    world = World(seed)
    history = History(world, all_judges())
    directories = ["a", "b"][: world.rng.randint(1, 2)]
    play = PLAYS[options.play](world)
    settings = Settings.parse(_settings(directories) | play.settings)

    def start_node(disks: dict[str, Disk], rng: Randomness, boot_id: str, now: Now) -> Node:
        return Node(settings, disks, rng, boot_id, now)

    host = Host(world, history, directories, start_node)
    failure = _failure(history, lambda: play.live(host, profile, options.seconds))
    return Outcome(
        seed,
        options.play,
        name,
        world.lived_s,
        history.count,
        history.faults,
        host.starts,
        host.reports.count("info segments_cleaned"),
        history.digest,
        failure,
    )


def simulate_cluster(seed: int, options: Options) -> Outcome:
    world = World(seed)
    deletions = DeletedStaysDeleted()
    history = History(world, [*judges_of_clients(), deletions])
    play = CLUSTER_PLAYS[options.play](world)
    name, profile = cluster_profile_of(seed)
    if options.cluster_profile is not None:
        profile = options.cluster_profile
        name = next((known for known, one in PROFILES.items() if one is profile), "given")
    settings = play.settings | settings_of(seed, profile)
    cluster = Cluster(world, history, play.nodes, settings, [*cluster_judges(), deletions])

    def live() -> None:
        play.live(cluster, profile, options.seconds)
        stop_and_start(cluster)

    failure = _failure(history, live)
    return Outcome(
        seed,
        options.play,
        name,
        world.lived_s,
        history.count,
        history.faults,
        sum(host.starts for host in cluster.hosts.values()),
        0,
        history.digest,
        failure,
    )


def simulate_quorum(seed: int, options: Options) -> Outcome:
    world = World(seed)
    play = QuorumStorm(world)
    simulation = play.simulation
    failure = _failure(simulation.history, lambda: play.live(options.seconds))
    return Outcome(
        seed,
        options.play,
        f"{len(play.voters)} voters",
        world.lived_s,
        simulation.history.count,
        simulation.history.faults,
        sum(host.starts for host in simulation.hosts.values()),
        0,
        simulation.history.digest,
        failure,
    )


def _failure(history: History, live: Callable[[], None]) -> Failure | None:
    """What a judge objects to in a run."""
    try:
        live()
    except JudgedWrong as wrong:
        return Failure(wrong.judge, wrong.sentence, wrong.number, wrong.event, list(history.last_lines))
    except Exception as error:
        # machines answer for every failure of peers and disks; what they let out is a mistake of their own
        where = "".join(format_exception(error)[-4:])
        return Failure("nothing_is_raised", repr(error), history.count, where, list(history.last_lines))
    return None


def _settings(directories: list[str]) -> dict[str, str]:
    return {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": ",".join(directories),
        "log.retention.check.interval.ms": "700",
        "log.initial.task.delay.ms": "100",
        "auto.create.topics.enable": "false",
    }
