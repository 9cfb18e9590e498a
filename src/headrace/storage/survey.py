"""What lies in a partition's directory: one listing, and the leftovers of whatever a crash interrupted
cleared away.
"""

from dataclasses import dataclass

from headrace.storage.disk import Disk
from headrace.storage.recompression import CLEANED, SWAP, swap_in
from headrace.storage.retention import DELETED
from headrace.storage.segment import TEMPORARY


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
    swaps: list[str] = []
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
        elif suffix == "log" + SWAP:
            swaps.append(name)
        elif suffix.endswith((DELETED, CLEANED, TEMPORARY)):
            disk.remove(f"{directory}/{name}")
    for name in swaps:
        base = int(name.partition(".")[0])
        if base in bases:
            swap_in(disk, f"{directory}/{base:020d}")
        else:
            disk.remove(f"{directory}/{name}")  # retention took the segment, the swap came too late
    _remove_orphans(disk, directory, indexed, bases, names)
    return Survey(bases, snapshots, not bases)


def _remove_orphans(
    disk: Disk, directory: str, indexed: list[str], bases: list[int], names: list[str]
) -> None:
    """Indexes without a log, which a new segment of that name must not inherit, and swaps without one."""
    known = set(bases)
    for name in indexed:
        if int(name.partition(".")[0]) not in known:
            disk.remove(f"{directory}/{name}")
    for name in names:
        if name.endswith(".index" + SWAP) and name.replace(".index", ".log") not in names:
            disk.remove(f"{directory}/{name}")
