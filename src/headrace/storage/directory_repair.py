"""Repair of a partition's directory at its opening: removes and finishes what a crash interrupted, and lists
the segments that are left.
"""

from headrace.base.values import Value
from headrace.storage.disk import Disk
from headrace.storage.segment import TEMPORARY
from headrace.storage.segment_removal import DELETED
from headrace.storage.swapping import finish_interrupted_swaps


class FoundFiles(Value):
    bases: list[int]  # base offsets of segments, rising
    snapshots: list[int]  # offsets of producer snapshots, rising


def repair_directory(disk: Disk, directory: str) -> FoundFiles:
    """Segments and snapshots by name; a missing directory is created."""
    try:
        names = disk.list(directory)
    except FileNotFoundError:
        disk.make_dir(directory)
        return FoundFiles([], [])
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
    finish_interrupted_swaps(disk, directory, names, bases)
    # indexes without a log, which a new segment of that name must not inherit
    for name in indexed:
        if int(name.partition(".")[0]) not in found:
            disk.remove(f"{directory}/{name}")
    return FoundFiles(bases, snapshots)
