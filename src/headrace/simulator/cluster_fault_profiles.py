"""Fault profiles of a cluster: how often each kind of fault is chosen, usually, and for some seeds.

The number of a seed decides which it uses, so that the number alone repeats the run.
"""

from dataclasses import dataclass, replace
from random import Random


@dataclass(slots=True, frozen=True)
class ClusterProfile:
    """How often each fault is chosen, relative to the others; 0 turns it off."""

    kill: int = 6
    lose: int = 3  # the host, with what was not fsynced
    stop_cleanly: int = 3
    pause: int = 4  # the process stands still
    isolate: int = 4  # a node from all others
    divide: int = 3  # two groups that do not reach each other
    bridge: int = 2  # two groups that reach each other only through one node
    cut_link: int = 6  # one direction between two nodes
    refuse: int = 3
    flap: int = 2  # a link comes and goes
    slow_link: int = 3
    reset: int = 4  # connections between nodes
    client_reset: int = 4
    clock_jump: int = 2
    slow_jobs: int = 3
    disk_full: int = 2
    topple: int = 0  # a leader, and then the next one
    cut_off_followers: int = 0  # from their leader, which reaches the controller
    cut_off_controller: int = 0  # from a leader, which reaches its followers
    drift: int = 0  # of a node's clocks
    late_reads: int = 0  # of what is sent to other nodes
    rotten_reads: int = 0
    torn_write: int = 0  # the process dies inside a disk call
    failing_disk: int = 0  # an I/O error
    rot: int = 0  # a bit flips on the disk of a node that is down
    empty_disk: int = 0  # a node comes back with a new disk
    stale_disk: int = 0  # or with an older copy of it
    depose: int = 0  # a leader that clients wait for
    overwrite: int = 0  # what a leader that was deposed has not sent yet
    outlive: int = 0  # a request that arrives in the next run of its sender
    fork: int = 0  # two followers lead in turn, the one that lacks records first
    late_queue: int = 0  # jobs of one queue are late, the others are not
    isolate_controller: int = 0  # the active one
    exhaust: int = 0  # a process has no file descriptor left
    lost_file: int = 0  # a file is gone from the disk of a node that is down
    kill_writer: int = 0  # the process dies between two pieces of a large batch
    has_small_fetches: bool = False  # followers get a few batches at a time
    flushes_each: bool = False  # flush.messages=1 everywhere: any number of hosts may be lost at once
    power_cut: int = 0  # several hosts are lost at once, or all
    has_deletions: bool = False  # a client deletes records of a topic of its own
    has_admin: bool = False  # a client creates, changes and deletes topics
    has_large: bool = (
        False  # a client sends records that are written in pieces, and have whole batches inside
    )
    has_moves: bool = False  # a client moves replicas between two log directories of each node
    min_in_sync: int = 0  # min.insync.replicas of one topic; 0: as usual
    pause_s: tuple[float, float] = (0.1, 1.0)  # between faults


USUAL = ClusterProfile()

HARDER: dict[str, ClusterProfile] = {
    # leaders change while their followers are not equally far
    "leaders": ClusterProfile(
        topple=30, cut_off_followers=8, cut_off_controller=8, late_reads=10, drift=4, pause_s=(0.1, 0.8)
    ),
    # disks tear, fail, rot, and are replaced
    "disks": ClusterProfile(
        kill=3,
        lose=4,
        disk_full=4,
        torn_write=8,
        failing_disk=4,
        rot=10,
        rotten_reads=8,
        empty_disk=6,
        stale_disk=4,
        isolate=1,
        divide=1,
        min_in_sync=3,
        pause_s=(0.2, 1.2),
    ),
}
# what is old arrives late: one part of a script is enough for a few seconds, so there are fewer other faults
LATE = ClusterProfile(
    kill=3,
    lose=2,
    pause=2,
    isolate=1,
    divide=1,
    bridge=1,
    cut_link=2,
    refuse=1,
    flap=1,
    slow_link=1,
    reset=2,
    depose=14,
    overwrite=14,
    outlive=14,
    pause_s=(0.1, 0.9),
)
# the same, with a log that two leaders continue, one after the other, from different places
FORKS = replace(LATE, depose=3, overwrite=3, outlive=3, fork=36)
# parts of a node that are late while the rest goes on, followers that need many fetches to catch up, and
# promises that only fsyncs can keep
UNEVEN: dict[str, ClusterProfile] = {
    # what admin clients are told while controllers change
    "admin": ClusterProfile(
        topple=4, cut_off_controller=4, isolate_controller=20, has_admin=True, pause_s=(0.2, 1.0)
    ),
    # processes that open no files and no connections for a while
    "descriptors": ClusterProfile(exhaust=20, disk_full=4, topple=6, late_queue=4, pause_s=(0.1, 0.8)),
    # followers that are away while records are deleted, or late to know it
    "deletions": ClusterProfile(
        pause=12,
        isolate=8,
        topple=6,
        late_queue=10,
        isolate_controller=4,
        has_deletions=True,
        has_admin=True,
        pause_s=(0.1, 0.8),
    ),
    "backlog": ClusterProfile(
        kill=4, pause=6, cut_link=4, slow_jobs=1, late_queue=16, has_small_fetches=True, pause_s=(0.1, 0.8)
    ),
    "power": ClusterProfile(
        lose=6, topple=6, torn_write=2, late_queue=4, power_cut=16, flushes_each=True, pause_s=(0.2, 1.2)
    ),
}
# what is stored goes wrong: files are lost, large batches are written in part, replicas move
STORED: dict[str, ClusterProfile] = {
    # files are lost, of the active controller's broker too, and records are deleted
    "files": ClusterProfile(
        kill=3, lost_file=20, topple=4, has_deletions=True, min_in_sync=2, pause_s=(0.2, 1.0)
    ),
    # leaders die while they write a large batch
    "pieces": ClusterProfile(
        kill=4,
        pause=2,
        torn_write=6,
        topple=4,
        isolate=2,
        divide=1,
        kill_writer=20,
        has_large=True,
        pause_s=(0.2, 1.0),
    ),
    # processes die, and disks are full, while replicas move between log directories
    "moves": ClusterProfile(
        kill=10, torn_write=10, disk_full=4, topple=6, late_queue=6, has_moves=True, pause_s=(0.1, 0.8)
    ),
}
# of so many seeds in a row one has a harder profile, one the late one, one an uneven one; the rest see below
HARDER_EVERY = 4
REST = 1
LATE_REST = 2
UNEVEN_REST = 3
UNEVEN_TURNS = ("backlog", "power", "admin", "deletions", "descriptors")
# of so many of the latter one has the usual profile, one something stored that goes wrong, and one forks
REST_EVERY = 3
STORED_TURN = 1
FORKS_TURN = 2

PROFILES: dict[str, ClusterProfile] = {
    "usual": USUAL,
    "late": LATE,
    "forks": FORKS,
    **HARDER,
    **UNEVEN,
    **STORED,
}


def cluster_profile_of(seed: int) -> tuple[str, ClusterProfile]:
    """The profile of a seed, and its name."""
    number, rest = divmod(seed, HARDER_EVERY)
    if rest == LATE_REST:
        return "late", LATE
    if rest == REST:
        turns, turn = divmod(number, REST_EVERY)
        if turn == FORKS_TURN:
            return "forks", FORKS
        if turn != STORED_TURN:
            return "usual", USUAL
        names, number = sorted(STORED), turns
    else:
        names = list(UNEVEN_TURNS) if rest == UNEVEN_REST else sorted(HARDER)
    name = names[number % len(names)]
    return name, PROFILES[name]


def settings_of(seed: int, profile: ClusterProfile) -> dict[str, str]:
    """Settings of the nodes that a profile asks for. They are chosen apart from all other choices of the
    seed, which stay the same.
    """
    rng = Random(f"settings of {seed}")
    settings = {}
    if profile.has_small_fetches:  # a batch has up to 2,000 bytes, and the first one always comes whole
        settings["replica.fetch.max.bytes"] = rng.choice(("0", "1", "200", "1000"))
        settings["replica.fetch.response.max.bytes"] = rng.choice(("0", "1", "300", "3000"))
    if profile.flushes_each:
        settings["log.flush.interval.messages"] = "1"
    if profile.has_moves:
        settings["log.dirs"] = "a,b"
    return settings
