"""Replacement of segments by rewritten ones, in steps that survive a crash.

    1  the job writes `.cleaned` files beside the segments and makes them durable; a start removes those
    2  the job renames them to `.swap`, the log last, and makes the names durable: from here on the new
       segment stands, and a start that finds it finishes the work
    3  the log puts the indexes into place, renames the segments that were merged away to `.deleted`, and then
       puts the new log into the place of the old one that has its name

A crash before 2 leaves the old segments, one after 2 the new one; never both, and nothing in between. Several
new segments are made `.swap` one after the other in the order of their offsets, so that the rewritten
segments always come first in the log: no tombstone is gone while an older segment has the value it deleted.
"""

from collections.abc import Iterable

from headrace.base.values import Value
from headrace.records.batch import HEADER_BYTES, read_header
from headrace.storage.disk import Disk
from headrace.storage.errors import is_transient
from headrace.storage.file_list import FileList
from headrace.storage.log_state import LogState
from headrace.storage.segment import segment_path
from headrace.storage.segment_removal import Doomed, doom_segment

CLEANED = ".cleaned"
SWAP = ".swap"

# The log last: while it is missing there is nothing to swap.
SUFFIXES = (".timeindex", ".index", ".txnindex", ".log")
_INDEXES = (".timeindex", ".index")
_LOG = ".log"


class Rewritten(Value):
    """One new segment in the place of some old ones."""

    base_offset: int
    merged: list[int]  # base offsets of the others that it replaces


def offer_swap(disk: Disk, path: str) -> None:
    """Step 2, for one segment; its `.cleaned` files are durable."""
    for suffix in SUFFIXES:
        _rename(disk, path + suffix + CLEANED, path + suffix + SWAP)
    disk.sync_dir(path.rpartition("/")[0])


def swap_indexes(disk: Disk, path: str) -> None:
    """The first half of step 3."""
    for suffix in SUFFIXES[:-1]:
        _rename(disk, path + suffix + SWAP, path + suffix)


def swap_log(disk: Disk, path: str) -> None:
    """The end of step 3."""
    _rename(disk, path + _LOG + SWAP, path + _LOG)


def withdraw_swap(disk: Disk, path: str) -> None:
    """Removes a new segment that is no longer wanted. Its log is renamed to `.cleaned` first: then a start
    uses nothing of the rest.
    """
    _rename(disk, path + _LOG + SWAP, path + _LOG + CLEANED)
    for suffix in SUFFIXES[:-1]:
        for stage in (SWAP, CLEANED):
            _remove(disk, path + suffix + stage)
    _remove(disk, path + _LOG + CLEANED)


def withdraw_swaps(disk: Disk, directory: str, bases: Iterable[int]) -> None:
    """Several new segments of one pass, the last one first: what a crash leaves is still the first part of
    the log.
    """
    for base in sorted(bases, reverse=True):
        withdraw_swap(disk, segment_path(directory, base))


def prepare_rewriting(disk: Disk, directory: str) -> None:
    """Before a job writes its first file: it finds the names as the last one wanted them.

    A job whose process was killed left files that this one would take for a part of its own. And what the
    last one has swapped must be durable under its new name: a start that finds `.cleaned` files beside a
    `.swap` takes the latter for withdrawn.
    """
    withdraw_swaps(disk, directory, _touched(disk.list(directory)))
    disk.sync_dir(directory)


def _touched(names: Iterable[str]) -> set[int]:
    """Base offsets of segments that have files of these stages."""
    leftovers = [name for name in names if name.endswith((CLEANED, SWAP))]
    return {int(stem) for name in leftovers if (stem := name.partition(".")[0]).isdigit()}


def finish_interrupted_swaps(disk: Disk, directory: str, names: list[str], bases: list[int]) -> None:
    """What a crash left of all this; `bases` loses the segments that were merged away."""
    touched = sorted(_touched(names))
    for base in touched:
        name = f"{base:020d}{_LOG}"
        if name + CLEANED not in names and base in bases:
            _finish_swap(disk, directory, base, bases, is_offered=name + SWAP in names)
        withdraw_swap(disk, segment_path(directory, base))
    if touched:
        disk.sync_dir(directory)


def _finish_swap(disk: Disk, directory: str, base: int, bases: list[int], *, is_offered: bool) -> None:
    """A new segment counts if a segment begins where it ends, as one did when it was made: otherwise the log
    was cut since. One that is not offered any more is in its place already, maybe without its indexes.
    """
    path = segment_path(directory, base)
    if is_offered:
        end = _end_offset(disk, path + _LOG + SWAP)
        if end not in bases:
            return
        gone = [other for other in bases if base < other < end]
        if gone:
            FileList(disk, directory).drop(gone.__contains__)
        for merged in gone:
            _remove_segment(disk, segment_path(directory, merged))
            bases.remove(merged)
    _rename(disk, path + ".txnindex" + SWAP, path + ".txnindex")
    for suffix in _INDEXES:
        _remove(disk, path + suffix)  # made from the log when it is loaded: those found may be the old log's
    if is_offered:
        swap_log(disk, path)


def _end_offset(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        end, position, size = -1, 0, file.size()
        while position + HEADER_BYTES <= size:
            header = read_header(file.read(position, HEADER_BYTES))
            if header.size < HEADER_BYTES:
                return -1  # damaged: no segment begins there
            end = header.next_offset
            position += header.size
        return end
    finally:
        file.close()


def _remove_segment(disk: Disk, path: str) -> None:
    for suffix in reversed(SUFFIXES):
        _remove(disk, path + suffix)


def _rename(disk: Disk, old: str, new: str) -> None:
    try:
        disk.rename(old, new)
    except FileNotFoundError:
        return  # not every segment has all of them, and a crash may have come after this step


def _remove(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except FileNotFoundError:
        return


def swap_all(log: LogState, rewritten: list[Rewritten], wall_ms: int) -> None:
    """What there is no space for now is swapped before anything else touches the sealed segments."""
    log.unfinished_swaps += rewritten
    try:
        finish_swaps(log, wall_ms)
    except OSError as error:
        if not is_transient(error):
            raise


def finish_swaps(log: LogState, wall_ms: int) -> None:
    """Segments that were merged away are among the doomed."""
    while log.unfinished_swaps:
        log.doomed += _swap(log, log.unfinished_swaps[0], wall_ms)
        del log.unfinished_swaps[0]


def has_segments(log: LogState, rewritten: Rewritten) -> bool:
    first = log.segments.number_of(rewritten.base_offset)
    found = log.segments.items[first : first + 1 + len(rewritten.merged)]
    return [one.base_offset for one in found] == [rewritten.base_offset, *rewritten.merged]


def _swap(log: LogState, rewritten: Rewritten, wall_ms: int) -> list[Doomed]:
    first = log.segments.number_of(rewritten.base_offset)
    segment, *merged = log.segments.items[first : first + 1 + len(rewritten.merged)]
    # a rename that fails leaves some names to the new segment: until all are, the old files are read
    for one in (segment, *merged):
        one.pin()
    swap_indexes(log.disk, segment.path)
    if merged:
        gone = {one.base_offset for one in merged}
        log.file_list.drop(gone.__contains__)
    doomed = [doom_segment(log.disk, one, log.config, wall_ms) for one in merged]
    swap_log(log.disk, segment.path)
    log.replaced.append(segment.file())
    for one in merged:
        one.forget_files()
    log.segments.drop(merged)
    segment.reset()
    if merged:
        segment.modified_ms = merged[-1].modified_ms
    log.segments.forget_readers()
    log.is_renamed = True
    log.rewrites += 1
    return doomed
