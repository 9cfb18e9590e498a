"""One segment: a file of batches and its three indexes, named by the offset it begins with.

A segment costs nothing before it is used: files are opened, and indexes checked, at the first read or append.
Sealed segments never change, but recompression and compaction replace whole files.
"""

from contextlib import suppress
from struct import Struct

from headrace.records.batch import HEADER_BYTES, LENGTH_OVERHEAD, read_header
from headrace.storage import segment_walk
from headrace.storage.damage import Walk
from headrace.storage.disk import Disk, File
from headrace.storage.errors import DamagedBatch, is_transient
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.open_files import OpenFiles
from headrace.storage.segment_walk import LENGTH_MIN, WALK_BYTES, may_follow
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import TransactionIndex

# How much log may be written before its index entries are: what a restart after a kill has to walk at most,
# a fraction of a millisecond.
UNINDEXED_BYTES_MAX = 256 * 1024

# Base offset, length and last offset delta of a header: all that finding a place needs.
_PLACE = Struct(">qi11xi")
_PLACE_BYTES = _PLACE.size

UNLIMITED = 2**63 - 1

TEMPORARY = ".tmp"  # an index that is being made; a start removes it

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")

# What a new segment has. The log comes last: with it the segment is there, and whatever fails before leaves
# none. A log without records that stood behind one that still grows would hide all that is appended there
# from a restart.
CREATED = (".index", ".timeindex", ".log")


def segment_path(directory: str, base_offset: int) -> str:
    """The path of a segment's files without their suffixes: 20 digits, so that names sort as offsets do."""
    return f"{directory}/{base_offset:020d}"


def next_path(path: str, suffix: str) -> str:
    """Where a file waits that was created ahead (`storage/next_segment.py`); `path` is that of the segment
    which was active then.
    """
    return f"{path}.next{suffix}{TEMPORARY}"


class Segment:
    __slots__ = (
        "_disk",
        "_files",
        "_written_to",
        "base_offset",
        "created_ms",
        "damaged",
        "first_timestamp",
        "index",
        "index_entries",
        "is_loaded",
        "is_new",
        "limit_offset",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "modified_ms",
        "packed_as",
        "path",
        "size",
        "time_index",
        "transaction_index",
        "unindexed_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        wall_ms: int,
        *,
        is_new: bool = False,
    ) -> None:
        self._disk = disk
        self._files = files
        self.base_offset = base_offset
        self.path = path = segment_path(directory, base_offset)
        self.index = OffsetIndex(disk, files, path + ".index", base_offset)
        self.time_index = TimeIndex(disk, files, path + ".timeindex", base_offset)
        self.transaction_index = TransactionIndex(disk, files, path + ".txnindex")
        self.packed_as = ""  # the codec that recompression has brought it to in this run
        self.damaged: list[int] = []  # positions of damaged batches that recovery left where they are
        self.limit_offset = UNLIMITED  # none of its batches reaches so far: where the next segment begins
        self.is_new = is_new  # there are no files yet: they come with the first batch
        self.is_loaded = is_new  # the fields below are known
        self.log: File | None = None  # held open by the active segment only
        self.size = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1  # largest of the first batch, from which segment.ms counts
        self.index_entries = 0
        self.unindexed_bytes = 0  # since the last index entry
        self.created_ms = wall_ms
        self.modified_ms = wall_ms  # at the latest: when we wrote to it or first saw it
        self._written_to = 0  # position up to which index entries have reached their files

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes)"

    # --- life --------------------------------------------------------------------------------------------

    def create(self, prepared: str | None = None) -> None:
        """Create the files of a new, empty segment, or take those that were created ahead after the segment
        at `prepared`.
        """
        try:
            for leftover in (self.path + ".log", self.transaction_index.path):
                if self._disk.exists(leftover):
                    self._disk.remove(leftover)
            if prepared is None or not self._take(prepared):
                self.index.create()
                self.time_index.create()
                self.log = self._disk.open(self.path + ".log", create=True)
        except OSError:
            self.forget_files()
            self._remove_indexes()
            raise
        self.is_new = False

    def _take(self, prepared: str) -> bool:
        """Give files that were created ahead their names. False: one of them is not there."""
        try:
            log = self._disk.open(next_path(prepared, ".log"))  # it cannot fail once the log has its name
            for suffix in CREATED:
                self._files.forget(self._disk, self.path + suffix)
                self._disk.rename(next_path(prepared, suffix), self.path + suffix)
        except FileNotFoundError:
            return False
        self.index.begin()
        self.time_index.begin()
        self.log = log
        return True

    def _remove_indexes(self) -> None:
        """Those of a segment that could not be made. If they cannot be removed either, a start does."""
        for path in (self.index.path, self.time_index.path):
            with suppress(OSError):
                self._disk.remove(path)

    def hold(self) -> File:
        """Keep the log open: it is the active segment. What a failed write left behind its end, and could not
        be cut off then, is cut off first.
        """
        log = self.log
        if log is None:
            self.limit_offset = UNLIMITED
            log = self._disk.open(self.path + ".log")
            if log.size() != self.size:
                log.truncate(self.size)
            self.transaction_index.mend()
            self.log = log
        return log

    def pin(self) -> None:
        """Read the files that have its names now, whatever becomes of the names."""
        self.load()
        self.log = self.file()
        for index in (self.index, self.time_index, self.transaction_index):
            index.pin()

    def release(self) -> None:
        self.log = None

    def file(self) -> File:
        return self.log or self._files.file(self._disk, self.path + ".log")

    def measure(self) -> int:
        """The size of its log, without a look at anything else."""
        if not self.is_loaded and not self.size:
            self.size = self.file().size()
        return self.size

    def load(self) -> None:
        """Read sizes and bounds from the files, and write the indexes again where they cannot be trusted."""
        if self.is_loaded:
            return
        file = self.file()
        self.size = file.size()
        if self.index.is_whole() and self.time_index.is_whole() and self._index_fits(file):
            self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
            self.index_entries = len(self.index)
            self.unindexed_bytes = self.size - self.index.floor_position(self.size)
            self._written_to = self.size
            self.first_timestamp = self._first_timestamp(file)
            self.is_loaded = True
        else:
            self.rebuild_indexes()

    def rebuild_indexes(self, interval_bytes: int = 4096) -> None:
        """Indexes from the log, as appending would have made them; batches are taken as they are.

        Made beside the old ones and put in their place when they are durable: a half-written
        index cannot be told from a whole one.
        """
        self._name_indexes(TEMPORARY)
        try:
            made = self._make_indexes(interval_bytes)
        finally:
            self._name_indexes("")
        for path in made:
            final = path.removesuffix(TEMPORARY)
            self._files.forget(self._disk, final)
            self._disk.rename(path, final)
        self.is_loaded = True

    def _make_indexes(self, interval_bytes: int) -> list[str]:
        """Their paths, in the order in which they may replace the old ones."""
        end = self.file().size()
        self.restart(0, self.base_offset)
        for _, header in self.headers(0, end):
            self.note(header.size, header.last_offset, header.max_timestamp, interval_bytes)
        self.size = self._written_to = end
        self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        made = [self.time_index.path, self.index.path]
        self.time_index.sync()
        self.index.sync()
        for path in made:
            self._files.forget(self._disk, path)
        return made

    def _name_indexes(self, suffix: str) -> None:
        self.index = OffsetIndex(self._disk, self._files, f"{self.path}.index{suffix}", self.base_offset)
        self.time_index = TimeIndex(
            self._disk, self._files, f"{self.path}.timeindex{suffix}", self.base_offset
        )

    def restart(self, position: int, offset: int) -> None:
        """Forget what the indexes say from `offset`, whose batch begins at `position`, on."""
        if position == 0:
            self.index.create()
            self.time_index.create()
        else:
            self.index.cut_to(offset)
            self.time_index.cut_to(offset)
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        self.index_entries = len(self.index)
        self.unindexed_bytes = position - (self.index.at(-1)[1] if self.index_entries else 0)
        self._written_to = position
        self.size = position
        self.first_timestamp = self._first_timestamp(self.file()) if position else -1

    def reset(self) -> None:
        """Other files have its names now: forget what was known of the old ones."""
        self.forget_files()
        self._name_indexes("")
        self.transaction_index = TransactionIndex(self._disk, self._files, self.path + ".txnindex")
        self.packed_as = ""
        self.damaged = []
        self.is_loaded = False
        self.size = 0

    def _index_fits(self, file: File) -> bool:
        """The last entry must name a batch that is there: this finds a torn, stale or foreign index."""
        if not len(self.index):
            return True
        last_offset, position = self.index.at(-1)
        if not 0 <= position <= self.size - HEADER_BYTES:
            return False
        base, _, delta = _PLACE.unpack(file.read(position, _PLACE_BYTES))
        timestamp, offset = self.time_index.last()
        return base + delta == last_offset and offset >= self.base_offset and timestamp >= -1

    def _first_timestamp(self, file: File) -> int:
        header = file.read(0, HEADER_BYTES)
        return read_header(header).max_timestamp if len(header) == HEADER_BYTES else -1

    # --- writing -----------------------------------------------------------------------------------------

    def note(self, size: int, last_offset: int, max_timestamp: int, interval_bytes: int) -> None:
        """A batch was written at the end: count it, and index it if the index interval is over."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        position = self.size
        if self.unindexed_bytes > interval_bytes:
            self.index.add(last_offset, position)
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
            self.index_entries += 1
            self.unindexed_bytes = 0
            if position - self._written_to > UNINDEXED_BYTES_MAX:
                self.write_indexes()
        elif not position:
            self.first_timestamp = max_timestamp
        self.unindexed_bytes += size
        self.size = position + size

    def pass_by(self, size: int) -> None:
        """Leave so many damaged bytes at the end where they are."""
        self.damaged.append(self.size)
        self.size += size
        self.unindexed_bytes += size

    def write_indexes(self) -> None:
        """Write waiting index entries to their files; on a full disk they go on waiting."""
        try:
            self.time_index.write_pending()
            self.index.write_pending()
        except OSError as error:
            if not is_transient(error):
                raise
        else:
            self._written_to = self.size

    def seal(self) -> None:
        """Write the last index entries, so that the index alone has the segment's largest timestamp."""
        self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        self.time_index.write_pending()
        self.index.write_pending()

    def truncate(self, position: int, end_offset: int, *, is_synced: bool = True) -> None:
        """Cut before the batch at `position`; the log then ends at `end_offset`."""
        file = self.file()
        file.truncate(position)
        self.size = position
        self.is_loaded = False  # should there be no space or descriptor for the indexes: they are made again
        self.damaged = [one for one in self.damaged if one < position]
        if is_synced:
            file.sync()  # or a lost host could mix what was cut off with what is written now
        self.transaction_index.cut_to(end_offset)
        self.restart(position, end_offset)
        # the time index knows the largest timestamp only up to its last entry
        indexed = self.index.at(-1)[1] if len(self.index) else 0
        for _, header in self.headers(indexed, position):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
        self.is_loaded = True

    # --- finding -----------------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the batch that holds `offset`, or of the first after it; DamagedBatch when the
        offset lies in damaged bytes.
        """
        if not self.size:
            return None
        if self.damaged:
            return self._locate_carefully(offset)
        position = self.index.floor(offset)
        if position < 0:  # the entry is damaged
            return self._locate_carefully(offset)
        file = self.file()
        end = self.size - HEADER_BYTES
        chunk_at, chunk = position, b""
        least = -1  # not known before the first batch
        while position <= end:
            at = position - chunk_at
            if at + _PLACE_BYTES > len(chunk):
                chunk_at, chunk, at = position, file.read(position, WALK_BYTES), 0
            base, length, delta = _PLACE.unpack_from(chunk, at)
            following = position + length + LENGTH_OVERHEAD
            if (
                length < LENGTH_MIN
                or delta < 0
                or following > self.size
                or base + delta >= self.limit_offset
                or base != least
            ) and not self.is_sound(position, least):
                return self._locate_carefully(offset)
            if base + delta >= offset:
                if base < offset and not may_follow(self.file(), following, base + delta, self.size):
                    return self._locate_carefully(offset)  # its last offset may be damaged, too
                return position, length + LENGTH_OVERHEAD
            position = following
            least = base + delta + 1
        if position != self.size:
            return self._locate_carefully(offset)
        return None

    def is_sound(self, position: int, least: int) -> bool:
        """Whether a batch that does not continue the one before it can be where it stands: after a gap that
        compaction left, or where an index entry leads to.
        """
        file = self.file()
        base, length, delta = _PLACE.unpack(file.read(position, _PLACE_BYTES))
        following = position + length + LENGTH_OVERHEAD
        if length < LENGTH_MIN or delta < 0 or following > self.size or base + delta >= self.limit_offset:
            return False
        if base < max(least, self.base_offset) or position in self.damaged:
            return False
        if least < 0 and position:  # an index entry led here: it knows the last offset of the batch
            number = self.index.count_up_to_position(position)
            if not number or self.index.at(number - 1) != (base + delta, position):
                return False
        return may_follow(self.file(), following, base + delta, self.size)

    def _locate_carefully(self, offset: int) -> tuple[int, int] | None:
        """The same in a segment that is damaged: from the last index entry that is right, past all that is
        not sound.
        """
        position, end_offset = self._sound_floor(offset)
        for at, header in self.headers(position):
            if header.last_offset >= offset:
                if at != position and header.base_offset > offset >= end_offset:
                    raise DamagedBatch(self.path, position, offset)
                return at, header.size
            position, end_offset = at + header.size, header.next_offset
        if position != self.size and offset < self.limit_offset:
            raise DamagedBatch(self.path, position, offset)
        return None

    def _sound_floor(self, offset: int) -> tuple[int, int]:
        """Position and base offset of a valid batch that an index entry names, at or before `offset`."""
        walk = Walk(self.file())
        for number in range(self.index.count_up_to_offset(offset) - 1, -1, -1):
            last_offset, position = self.index.at(number)
            header = walk.valid_at(position) if 0 <= position < self.size else None
            if header is not None and header.last_offset == last_offset:
                return position, header.base_offset
        return 0, self.base_offset

    def boundary(self, start: int, limit: int) -> int:
        """The last beginning of a batch (or the end) at or before `limit`; `start` is one."""
        if limit >= self.size:
            return self.size
        file = self.file()
        position, chunk_at, chunk = start, start, b""
        number = self.index.count_up_to_position(limit)
        if number:
            last_offset, entry = self.index.at(number - 1)
            if start < entry <= self.size - HEADER_BYTES:
                read = file.read(entry, WALK_BYTES)
                base, _, delta = _PLACE.unpack_from(read)
                if base + delta == last_offset:  # else the entry is damaged, and names no batch
                    position, chunk_at, chunk = entry, entry, read
        while position + HEADER_BYTES <= self.size:
            at = position - chunk_at
            if at + _PLACE_BYTES > len(chunk):
                chunk_at, chunk, at = position, file.read(position, WALK_BYTES), 0
            length = _PLACE.unpack_from(chunk, at)[1]
            following = position + LENGTH_OVERHEAD + length
            if following > limit or length < LENGTH_MIN:
                break
            position = following
        return position

    def sound_end(self, start: int) -> int:
        """Up to where nothing behind `start` is known to be damaged."""
        return min((position for position in self.damaged if position > start), default=self.size)

    def batch_size(self, position: int) -> int:
        return int(_PLACE.unpack(self.file().read(position, _PLACE_BYTES))[1]) + LENGTH_OVERHEAD

    def base_offset_at(self, position: int) -> int:
        return int(_PLACE.unpack(self.file().read(position, _PLACE_BYTES))[0])

    headers = segment_walk.headers

    def end_offset(self) -> int:
        """The offset after the last batch."""
        end = self.base_offset
        for _, header in self.headers(self.index.floor_position(self.size)):
            end = header.next_offset
        return end

    def last_batch_end(self) -> int | None:
        """The same after a look at every batch behind the last index entry; None when one is damaged."""
        position = self.index.floor_position(self.size)
        end: int | None = None
        for at, header in self.headers(position):
            if at != position or (end is not None and header.base_offset < end):
                return None
            position, end = at + header.size, header.next_offset
        return end if position == self.size else None

    def paths(self) -> list[str]:
        """Paths of the files that it may have."""
        return [self.path + suffix for suffix in SUFFIXES]

    def forget_files(self) -> None:
        self.log = None
        for path in self.paths():
            self._files.forget(self._disk, path)
