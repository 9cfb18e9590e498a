"""Recovery of a log: what can be trusted after each kind of stop, and where the log ends.

    clean   everything: the last stop wrote its marker after a flush
    killed  what was written, since the host went on running: only the end of the active segment, from its
            last index entry on, is read to find where the log ends
    lost    what was flushed: from the recovery point on every checksum is computed

Of what was not flushed, recovery keeps the valid prefix: the log ends before the first batch that is torn or
wrong. A batch that is damaged below that, or one that a kill cannot explain, stays where it is and is
reported: it costs no other batch, and its offsets are never given to other records.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from headrace.base.values import Value
from headrace.records._codec import Row
from headrace.records.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.records.errors import BadRecords
from headrace.records.reader import read_rows
from headrace.storage.damage import HOLE_BYTES, Damage, Walk
from headrace.storage.errors import DamagedLog
from headrace.storage.segment import Segment

Trust = Literal["clean", "killed", "lost"]

# What compaction leaves of a batch's header even when it removes all records.
_IDENTITY = attrgetter("last_offset_delta", "producer_id", "producer_epoch", "base_sequence")


class Recovery(Value):
    """What is known of a log before it is opened."""

    trust: Trust
    recovery_point: int = 0  # everything below was flushed; with a clean marker, the log's end
    log_start_offset: int = 0
    is_checked: bool = True  # the recovery point has a checksum: no log is opened just to see its end
    high_watermark: int = 0  # everything below was shown to consumers; a kill has lost none of it
    is_cached_only: bool = False  # an fsync failed on this boot: unflushed bytes may be in memory only
    has_copies: bool = False  # other replicas have the same records
    is_settled: bool = False  # after a clean stop: no segment was about to be removed
    is_listed: bool = False  # the list of its files is believed
    is_list_exact: bool = False  # and names no file that was removed


@dataclass(slots=True)
class Scanned:
    """The part of the log that was looked at."""

    start_offset: int
    end_offset: int
    has_control: bool
    epochs: list[tuple[int, int]]  # leader epochs met, each with the offset where it was met first
    removed: list[Segment]  # segments behind the valid prefix; their files are still there
    damages: list[Damage] = field(default_factory=list)  # batches that were left where they are


def recover_killed(
    active: Segment, recovery_point: int, interval_bytes: int, *, has_gaps: bool, high_watermark: int = 0
) -> Scanned:
    """Find the end of a log whose process was killed."""
    position, offset = _last_indexed(active)
    active.restart(position, offset)
    scanned = Scanned(offset, offset, False, [], [])
    kept = _Kept(recovery_point, max(recovery_point, high_watermark), is_killed=True)
    _scan(active, scanned, interval_bytes, kept, has_gaps=has_gaps, following=None)
    return scanned


def recover_lost(
    segments: list[Segment], recovery_point: int, interval_bytes: int, *, has_gaps: bool
) -> Scanned:
    """Find the end of a log whose host was lost; what lies behind it is named in `removed`.

    No checksum covers offsets. Unless compaction may have left gaps, each batch of the last segment must
    begin where the one before it ended. Sealed segments may have been compacted under an earlier policy,
    those behind the recovery point too: it is written now and then only.
    """
    kept = _Kept(recovery_point, recovery_point, is_killed=False)
    # a segment that ends at the recovery point may have been sealed after the flush, its indexes not synced
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset < recovery_point:
        first += 1
    offset = segments[first].base_offset
    scanned = Scanned(offset, offset, False, [], [])
    last = len(segments) - 1
    for number, segment in enumerate(segments[first:], first):
        # every segment begins where the one before it ended, so a gap is a tail that was lost
        if number > first:
            if segment.base_offset != scanned.end_offset:
                scanned.removed = segments[number:]
                return scanned
            segments[number - 1].seal()
        segment.restart(0, segment.base_offset)
        following = None if number == last else segments[number + 1]
        may_have_gaps = has_gaps or number < last
        if not _scan(segment, scanned, interval_bytes, kept, has_gaps=may_have_gaps, following=following):
            scanned.removed = segments[number + 1 :]
            return scanned
    return scanned


def overlapped(segments: list[Segment]) -> list[Segment]:
    """Segments that compaction merged into the one before them, and whose removal a lost host forgot;
    under an earlier policy perhaps.
    """
    found: list[Segment] = []
    bases = {segment.base_offset for segment in segments}
    end_offset = -1
    for number, segment in enumerate(segments[:-1]):
        if segment.base_offset < end_offset:
            found.append(segment)
            continue
        end_offset = -1
        end = _valid_end(segment, has_gaps=True)
        # a merged segment ends where a later one begins; anything else is a damaged offset
        if end in bases and end is not None and end > segments[number + 1].base_offset:
            others = [one for one in segments if segment.base_offset < one.base_offset < end]
            if _has_merged(segment, others, end):
                end_offset = end
    return found


def _has_merged(segment: Segment, others: list[Segment], end_offset: int) -> bool:
    """Whether the segment has copies of batches of the others. A damaged offset may reach into them, too: no
    checksum covers it, but the records are not theirs then.

    Of the others nothing may be left but the mark where they ended, at the offset of their last batch. When
    they do not reach that end, one of them is gone already, and only a merge explains it.
    """
    originals = {header.base_offset: (one, at, header) for one in others for at, header in _batches(one)}
    last = max(originals.values(), key=lambda original: original[2].base_offset)[2] if originals else None
    is_proven = last is None or last.next_offset != end_offset
    for position, header in _batches(segment):
        if header.base_offset < others[0].base_offset:
            continue
        if header.is_end_mark:
            is_proven |= last is not None and header.base_offset == last.base_offset
            continue
        original = originals.get(header.base_offset)
        if original is None:
            continue  # of a segment that is gone already
        is_same = _IDENTITY(header) == _IDENTITY(original[2])
        if not is_same or not _is_copy(_rows(segment, position, header), _rows(*original)):
            return False
        is_proven = True
    return is_proven


def _batches(segment: Segment) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of the valid batches up to the first that is damaged."""
    walk = Walk(segment.file())
    position = 0
    while (header := walk.valid_at(position)) is not None:
        yield position, header
        position += header.size


def _rows(segment: Segment, position: int, header: BatchHeader) -> list[Row] | None:
    """None for records that cannot be decoded."""
    try:
        return read_rows(segment.file().read(position, header.size), 0, header)
    except BadRecords:
        return None


def _is_copy(rows: list[Row] | None, originals: list[Row] | None) -> bool:
    """Whether compaction may have made one batch of the other: some records are gone, and none is new."""
    if rows is None or originals is None:
        return False
    by_offset = {row[0]: row for row in originals}
    return all(by_offset.get(row[0]) == row for row in rows)


def _valid_end(segment: Segment, *, has_gaps: bool) -> int | None:
    """Where its last batch ends; None when a batch after the last index entry is damaged."""
    position, end_offset = _last_indexed(segment)
    file = segment.file()
    walk = Walk(file)
    while (header := walk.valid_at(position)) is not None:
        if header.base_offset < end_offset or (header.base_offset > end_offset and not has_gaps):
            return None
        position += header.size
        end_offset = header.next_offset
    return end_offset if position == file.size() else None


def contiguous_from(
    segments: list[Segment], recovery_point: int, *, is_settled: bool = False
) -> tuple[int, list[Damage]]:
    """The number of the first segment after which no flushed one is missing, and damaged ends of segments.

    Retention takes segments away from the front; a lost host may have kept a later removal without an
    earlier one. A segment whose own end is damaged does not show that. After a clean stop (`is_settled`)
    every removal is durable: a segment that is missing was lost, and costs no other one.
    """
    start = 0
    damages: list[Damage] = []
    for number in range(len(segments) - 1):
        following = segments[number + 1].base_offset
        if following > recovery_point:
            break
        indexed = _indexed_offset(segments[number])  # loading may make the indexes again, from what is left
        segments[number].load()
        if segments[number].end_offset() == following:
            continue
        end = _valid_end(segments[number], has_gaps=False)
        is_cut_off = end == segments[number].base_offset or indexed >= (end or 0)
        if end is not None and end < following and not is_cut_off:
            if is_settled:
                what = f"offsets {end} to {following - 1} are missing"
                damages.append(Damage(f"{segments[number].path}.log", what, end))
            else:
                start = number + 1
        elif end != following:
            path, start_offset = f"{segments[number].path}.log", segments[number].base_offset
            damages.append(Damage(path, f"a batch before offset {following} is damaged", start_offset))
    return start, damages


def _indexed_offset(segment: Segment) -> int:
    """The highest offset that its indexes know: a segment that ends before it was longer. -1 without any."""
    highest = -1
    with suppress(FileNotFoundError):
        if len(segment.index):
            highest = segment.index.at(-1)[0]
    with suppress(FileNotFoundError):
        if len(segment.time_index):
            highest = max(highest, segment.time_index.last()[1])
    return highest


def _last_indexed(segment: Segment) -> tuple[int, int]:
    """Position and base offset of the last batch that the index leads to.

    Without a sound index: the segment's beginning.
    """
    beginning = 0, segment.base_offset
    index = segment.index
    try:
        index.cut(len(index))
        segment.time_index.cut(len(segment.time_index))
    except FileNotFoundError:
        return beginning
    if not len(index):
        return beginning
    last_offset, position = index.at(-1)
    header = Walk(segment.file()).valid_at(position) if position >= 0 else None
    if header is None or header.last_offset != last_offset or header.base_offset < segment.base_offset:
        return beginning
    return position, header.base_offset


class _Kept(Value):
    """Up to where a log was promised to be kept."""

    flushed_offset: int  # batches below are not checked: they were flushed
    end_offset: int  # no log ends below
    is_killed: bool


def _scan(
    segment: Segment,
    scanned: Scanned,
    interval_bytes: int,
    kept: _Kept,
    *,
    has_gaps: bool,
    following: Segment | None,
) -> bool:
    """Walk on to the end or to a torn batch, index what is valid, cut off what is torn; whether nothing was.

    Aborted transactions below the flushed offset stay in their index: they are durable there, and one that is
    written again would not be.
    """
    offset = max(scanned.end_offset, segment.base_offset)
    segment.is_loaded = True
    if kept.is_killed:
        segment.transaction_index.cut_to(max(offset, kept.flushed_offset))
    else:
        segment.transaction_index.recover(max(offset, kept.flushed_offset))
    file = segment.file()
    size = file.size()
    walk = Walk(file)
    limit = kept.end_offset if following is None else following.base_offset
    while segment.size < size:
        header = _flushed_at(segment, size, kept.flushed_offset) if offset < kept.flushed_offset else None
        if header is None:
            header = walk.valid_at(segment.size)
        if header is not None and _continues(segment, header, offset, size, limit, has_gaps=has_gaps):
            segment.note(header.size, header.last_offset, header.max_timestamp, interval_bytes)
            offset = header.next_offset
            scanned.has_control |= header.is_control
            epochs = scanned.epochs
            if header.leader_epoch >= 0 and (not epochs or header.leader_epoch > epochs[-1][0]):
                epochs.append((header.leader_epoch, header.base_offset))
            continue
        behind = walk.behind(segment.size, offset + 1, is_dense=not has_gaps)
        if _is_torn(segment, offset, behind, walk, kept, is_dense=not has_gaps):
            break
        offset = _pass_by(segment, scanned, offset, behind, size, kept, following)
    scanned.end_offset = offset
    segment.transaction_index.cut_to(max(offset, kept.flushed_offset))
    segment.write_indexes()
    if segment.size == size:
        if following is None and offset < kept.end_offset:
            where = f"the log ends at offset {offset}, but it went up to {kept.end_offset}"
            scanned.damages.append(Damage(f"{segment.path}.log", where, offset))
            scanned.end_offset = kept.end_offset
        elif following is not None and offset != following.base_offset and offset < kept.flushed_offset:
            where = f"the segment ends at offset {offset}, but the next one begins at {following.base_offset}"
            scanned.damages.append(Damage(f"{segment.path}.log", where, offset))
            scanned.end_offset = following.base_offset
        return True
    file.truncate(segment.size)
    file.sync()  # what is cut off must not come back behind records that are written now
    return False


def _flushed_at(segment: Segment, size: int, flushed_offset: int) -> BatchHeader | None:
    """The header of a batch that was flushed, whose checksum is not computed again; None when it may be
    damaged, or was not flushed.
    """
    position = segment.size
    if position + HEADER_BYTES > size:
        return None
    header = read_header(segment.file().read(position, HEADER_BYTES))
    following = position + header.size
    if header.last_offset >= flushed_offset or header.magic != MAGIC or header.last_offset_delta < 0:
        return None
    if not position + HEADER_BYTES <= following <= size:
        return None
    if following + HEADER_BYTES <= size and segment.base_offset_at(following) != header.next_offset:
        return None  # one of the two is damaged, or compaction left a gap: the checksum tells
    return header


def _continues(
    segment: Segment, header: BatchHeader, offset: int, size: int, end_offset: int, *, has_gaps: bool
) -> bool:
    """Whether a valid batch stands where it belongs: no checksum covers its offset.

    A gap is what compaction left, or a batch that was damaged earlier. The batch after it has to agree; the
    last one of a segment must not reach beyond `end_offset`, where the segment is known to end.
    """
    if header.base_offset == offset:
        return True
    if header.base_offset < offset:
        return False
    following = segment.size + header.size
    if following + HEADER_BYTES > size:
        return header.next_offset <= end_offset or (has_gaps and not end_offset)
    base_offset = segment.base_offset_at(following)
    return base_offset == header.next_offset or (has_gaps and base_offset > header.last_offset)


def _is_torn(
    segment: Segment, offset: int, behind: int | None, walk: Walk, kept: _Kept, *, is_dense: bool
) -> bool:
    """Whether a stop can have left bytes that are not a valid batch: then they were never durable."""
    if offset < kept.end_offset:
        return False
    is_certain = not kept.is_killed and (behind is None or kept.flushed_offset > 0)
    if is_certain or walk.is_cut_short(segment.size, offset, is_dense=is_dense):
        return True
    if kept.is_killed or behind is None:
        return False
    # what was flushed is not known: a sector of zeros is what a power loss leaves, other bytes are damage
    return bytes(HOLE_BYTES) in segment.file().read(segment.size, behind - segment.size)


def _pass_by(
    segment: Segment,
    scanned: Scanned,
    offset: int,
    behind: int | None,
    size: int,
    kept: _Kept,
    following: Segment | None,
) -> int:
    """Leave a damaged batch where it is; the offset after it."""
    position = segment.size
    end = size if behind is None else behind
    if behind is not None:
        next_offset = segment.base_offset_at(behind)
    elif following is not None:
        next_offset = following.base_offset
    else:
        claimed = _claimed_end(segment, offset, size)
        if claimed is None and kept.is_killed:
            raise DamagedLog(
                f"{segment.path}.log is damaged from position {position}, offset {offset}, to its end, and "
                "the next offset of the log is unknown. Restore the file from a backup or from another copy"
            )
        next_offset = max(claimed or 0, kept.end_offset, offset)
    where = f"position {position} to {end}: offsets {offset} to {next_offset - 1} are damaged"
    scanned.damages.append(Damage(f"{segment.path}.log", where, offset))
    segment.pass_by(end - position)
    return next_offset


def _claimed_end(segment: Segment, offset: int, size: int) -> int | None:
    """Where damaged batches at the end of the log say that they end, if two fields of each agree. The later
    ones are whole but for their offsets, which no checksum covers.
    """
    position = segment.size
    if position + HEADER_BYTES > size:
        return None
    walk = Walk(segment.file())
    header: BatchHeader | None = read_header(segment.file().read(position, HEADER_BYTES))
    claimed = None
    while header is not None:
        if header.last_offset_delta < 0 or header.record_count != header.last_offset_delta + 1:
            break
        offset += header.record_count
        claimed = offset
        position += header.size
        header = walk.valid_at(position) if header.size >= HEADER_BYTES else None
    return claimed
