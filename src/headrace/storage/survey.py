"""What lies in a partition's directory: one listing, and the leftovers of whatever a crash interrupted
cleared away.
"""

from dataclasses import dataclass

from headrace.storage.disk import Disk
from headrace.storage.retention import DELETED
from headrace.storage.segment import TEMPORARY
from headrace.storage.swapping import finish_swaps


@dataclass(slots=True)
class Survey:
    bases: list[int]  # base offsets of segments, rising
    snapshots: list[int]  # offsets of producer snapshots, rising
    is_new: bool = False  # there is nothing but, at most, partition.metadata


def survey(disk: Disk, directory: str) -> Survey:
    """Segments and snapshots by name; a missing directory is made."""
    try:
        names = disk.list(directory)
    except FileNotFoundError:
        disk.make_dir(directory)
        return Survey([], [], True)
    bases: list[int] = []
    snapshots: list[int] = []
    indexed: list[str] = []
    for name in names:
        stem, _, suffix = name.partition(".")
        if not stem.isdigit():
            continue
        if suffix == "log":
            bases.append(int(stem))
        elif suffix == "snapshot":
            snapshots.append(int(stem))
        elif suffix in ("index", "timeindex", "txnindex"):
            indexed.append(name)
        elif suffix.endswith((DELETED, TEMPORARY)):
            disk.remove(f"{directory}/{name}")
    found = set(bases)
    finish_swaps(disk, directory, names, bases)
    # indexes without a log, which a new segment of that name must not inherit
    for name in indexed:
        if int(name.partition(".")[0]) not in found:
            disk.remove(f"{directory}/{name}")
    return Survey(bases, snapshots, not bases)
