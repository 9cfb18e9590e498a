"""Segments that a log lacks, though nobody has deleted their records.

The list of its files tells which are missing. A log that has no list yet may have lost its first segments,
and seem to be one from which retention has removed them. Two files tell the difference. The checkpoint of log
starts is written now and then, so it may be older than the last removal. The leader epochs are cut right
after the segments of a removal got other names (`.deleted`), under which they wait for a while: whoever was
killed in between has left files of these names. After the loss of a host nothing is said about these: the
changes may have reached the disk in another order.
"""

from headrace.base.values import Value
from headrace.storage.disk import Disk
from headrace.storage.file_list import FileList, base_of
from headrace.storage.leader_epochs import FILE_NAME, LeaderEpochs
from headrace.storage.segment import UNLIMITED


class LostSegments(Value):
    offset: int  # everything before is there, or was deleted
    next_offset: int  # base offset of the first segment after the gap; UNLIMITED: none is left

    @property
    def is_end(self) -> bool:
        return self.next_offset == UNLIMITED


def lost_segments(disk: Disk, directory: str, start: int, *, is_start_known: bool) -> LostSegments | None:
    """None: nothing is missing, or nobody can tell. The log starts at `start` at the earliest, which counts
    without a list only if it is known for certain.
    """
    names = disk.list(directory)
    listed = FileList(disk, directory).read()
    if not listed:
        return _lost_beginning(disk, directory, names, start) if is_start_known else None
    bases = sorted({base_of(name) for name in listed})
    missing = {base_of(name) for name in listed.difference(names)}
    for base, following in zip(bases, [*bases[1:], UNLIMITED], strict=True):
        if base in missing and following > start:
            left = (one for one in bases if one > base and one not in missing)
            return LostSegments(max(base, start), min(left, default=UNLIMITED))
    return None


def _lost_beginning(
    disk: Disk, directory: str, names: list[str], checkpointed_start: int
) -> LostSegments | None:
    bases: set[int] = set()
    others: set[int] = set()  # segments that are being removed, or replaced by a compacted one
    for name in names:
        stem, _, suffix = name.partition(".")
        if stem.isdigit() and suffix.startswith("log"):
            (bases if suffix == "log" else others).add(int(stem))
    if not bases:
        return None
    base = min(bases)
    if base <= checkpointed_start or any(other < base for other in others):
        return None
    epochs = LeaderEpochs.read(disk, f"{directory}/{FILE_NAME}")
    entries = epochs.entries() if epochs is not None else []
    if not entries or entries[0][1] >= base:
        return None
    return LostSegments(max(checkpointed_start, entries[0][1]), base)
