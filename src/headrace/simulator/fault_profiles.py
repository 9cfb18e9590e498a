"""Fault profiles: how often each kind of fault is chosen, usually, and more often for some seeds.

The number of a seed decides which it uses, so that the number alone repeats the run.
"""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class FaultProfile:
    """How often each fault is chosen, relative to the others; 0 turns it off."""

    kill: int = 3  # the process, between two calls
    lose: int = 3  # the host, with what was not fsynced
    crash_in_call: int = 6  # either, inside a disk call, inline or in a job
    loses_in_call: bool = True  # the host may be lost there, not only the process
    stop_cleanly: int = 2
    lingers: float = 0.7  # jobs that were ordered run after the clean marker, before the process ends
    hears_after_stop: bool = True  # and requests arrive then
    slow_jobs: int = 3
    disk_full: int = 2
    io_error: int = 2
    clock_jump: int = 2
    late_follower: int = 4  # holds the high watermark back
    reset: int = 4  # a client's connection
    no_space: int = 3  # for some kind of disk call, or no descriptor for it
    reload: int = 2  # a coordinator cannot write, and is made from its log again
    strand: int = 2  # the end of a transaction has no space while its coordinator is made again
    setting: int = 3  # of a topic or of the broker changes
    move: int = 2  # of a partition to another directory
    replace: int = 2  # a topic goes, and another comes under its name
    hide: int = 0  # a start cannot read one of the directories, which comes back later
    ambush: int = 8  # any of these, between two steps of a job
    deletions: int = 1  # of records and of topics by the administrator, relative to its other requests
    pause_s: tuple[float, float] = (0.2, 1.2)  # between faults


USUAL = FaultProfile()

# Each has more of what belongs together, and less time between faults.
HARDER: dict[str, FaultProfile] = {
    # the host is gone, again and again, wherever the disk is
    "losses": FaultProfile(
        kill=8, lose=12, crash_in_call=24, stop_cleanly=6, slow_jobs=6, late_follower=2, pause_s=(0.1, 0.8)
    ),
    # somebody moves, deletes, replaces and reconfigures whatever is in use
    "changes": FaultProfile(
        setting=12, move=16, replace=20, deletions=4, ambush=30, hide=4, pause_s=(0.05, 0.5)
    ),
    # disks are full or break, and processes come back to them
    "disks": FaultProfile(
        disk_full=8,
        io_error=8,
        no_space=16,
        reload=10,
        strand=10,
        kill=6,
        lose=6,
        move=6,
        hide=6,
        pause_s=(0.1, 0.8),
    ),
    # a bit more of everything, close together
    "crowded": FaultProfile(
        kill=6, lose=6, crash_in_call=10, move=10, replace=10, deletions=3, ambush=20, pause_s=(0.05, 0.4)
    ),
}
HARDER_EVERY = 4  # of so many seeds in a row one has a harder profile


def profile_of(seed: int) -> tuple[str, FaultProfile]:
    """The profile of a seed, and its name."""
    number, rest = divmod(seed, HARDER_EVERY)
    if rest:
        return "usual", USUAL
    name = sorted(HARDER)[number % len(HARDER)]
    return name, HARDER[name]
