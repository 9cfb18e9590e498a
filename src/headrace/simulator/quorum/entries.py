"""Entries of a simulated metadata log, and the disk that holds them."""

from dataclasses import dataclass, field
from typing import Any

from headrace.machines.raft.quorum_state import QuorumState
from headrace.machines.raft.voters import Voters


@dataclass(slots=True, frozen=True)
class Entry:
    epoch: int
    value: Any  # "leader", Voters, or what a test proposes


@dataclass
class QuorumDisk:
    """What a node would find after it lost its memory and its page cache."""

    directory_id: bytes
    state: QuorumState = field(default_factory=QuorumState)
    entries: list[Entry] = field(default_factory=list)  # synced
    start_offset: int = 0  # entries before are only in the snapshot
    snapshot_end: int = 0


def epochs_of(entries: list[Entry], first: int) -> list[tuple[int, int]]:
    """Each epoch of the entries from `first` on, and the offset at which it begins."""
    return [
        (one.epoch, offset)
        for offset, one in enumerate(entries)
        if offset >= first and (offset == first or entries[offset - 1].epoch != one.epoch)
    ]


def voters_of(entries: list[Entry], first: int, end: int) -> list[tuple[int, Voters]]:
    return [
        (offset, entries[offset].value)
        for offset in range(first, end)
        if isinstance(entries[offset].value, Voters)
    ]
