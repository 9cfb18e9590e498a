"""Producers of one partition, loaded on demand from the newest snapshot and the batches after it.

A log whose batches come from plain producers never loads them, and a restart reads no snapshot it does not
need.
"""

from bisect import insort
from contextlib import suppress
from struct import Struct

from headrace.records.batch import BatchHeader
from headrace.records.builder import ABORT, COMMIT, control_kind
from headrace.records.errors import BadRecords
from headrace.records.reader import read_rows
from headrace.storage.disk import Disk
from headrace.storage.errors import is_transient
from headrace.storage.producer_state import ProducerState
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments
from headrace.storage.snapshots import DamagedSnapshot, read_snapshot, snapshot_path, write_snapshot

# Snapshots in the active segment, besides those where segments begin: one more in case the last is damaged.
_SPARES = 2

_END_MARKER = Struct(">hi")


class EndMarker:
    """Content of a transaction's end marker."""

    __slots__ = ("coordinator_epoch", "is_aborted")

    def __init__(self, *, is_aborted: bool, coordinator_epoch: int) -> None:
        self.is_aborted = is_aborted
        self.coordinator_epoch = coordinator_epoch


def end_marker_of(batch: bytes | memoryview, header: BatchHeader) -> EndMarker | None:
    """The marker in a control batch; None for the other kinds of control records."""
    try:
        rows = read_rows(batch, 0, header)
    except BadRecords:
        return None
    if not rows:
        return None
    kind, value = control_kind(rows[0][2]), rows[0][3]
    if kind not in (ABORT, COMMIT) or value is None or len(value) < _END_MARKER.size:
        return None
    return EndMarker(is_aborted=kind == ABORT, coordinator_epoch=_END_MARKER.unpack_from(value)[1])


class PartitionProducers:
    __slots__ = (
        "_directory",
        "_disk",
        "_leftover",
        "_segments",
        "_snapshots",
        "_sound",
        "_unsynced",
        "state",
    )

    def __init__(self, disk: Disk, directory: str, segments: Segments, snapshots: list[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._snapshots = snapshots  # offsets, rising
        self._unsynced = set(snapshots)  # maybe not durable: an fsync too many does no harm
        self._sound: set[int] = set()  # written or read by us
        self._leftover: list[int] = []  # of snapshots that count no more: the files could not be removed yet
        self.state: ProducerState | None = None  # None: not loaded

    def load(self, wall_ms: int, *, aborts_from: int | None = None) -> ProducerState:
        """State at the end of the log. With `aborts_from`, the transaction indexes from that offset on are
        written again.
        """
        state, offset = self._newest_snapshot(aborts_from, wall_ms)
        self._replay_from(state, offset, None, aborts_from, wall_ms)
        self.state = state
        return state

    def _replay_from(
        self, state: ProducerState, offset: int, end_offset: int | None, aborts_from: int | None, wall_ms: int
    ) -> None:
        for segment, position, header in self._segments.headers(offset):
            if end_offset is not None and header.base_offset >= end_offset:
                break
            if header.base_offset < offset or header.producer_id < 0:
                continue
            batch = segment.file().read(position, header.size) if header.is_control else b""
            is_indexed = aborts_from is None or header.base_offset < aborts_from
            self._replay(state, segment, header, batch, wall_ms, is_indexed=is_indexed)

    def _newest_snapshot(self, limit: int | None, wall_ms: int) -> tuple[ProducerState, int]:
        for offset in reversed(self._snapshots[:]):
            if limit is not None and offset > limit:
                continue
            try:
                state = read_snapshot(self._disk, self._directory, offset, wall_ms)
            except (DamagedSnapshot, FileNotFoundError):
                self._remove(offset)
                continue
            self._sound.add(offset)
            return state, offset
        return ProducerState(), self._segments.items[0].base_offset

    def _replay(
        self,
        state: ProducerState,
        segment: Segment,
        header: BatchHeader,
        batch: bytes,
        wall_ms: int,
        *,
        is_indexed: bool,
    ) -> None:
        if not header.is_control:
            state.replay_batch(header, wall_ms)
            return
        marker = end_marker_of(batch, header)
        if marker is None:
            return
        if marker.is_aborted and not is_indexed:
            aborted = state.aborted_at(header.producer_id, header.last_offset)
            if aborted is not None:
                segment.transaction_index.add(aborted)
        state.end_transaction(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            header.last_offset,
            header.max_timestamp,
            wall_ms,
        )

    def take_snapshot(self, offset: int, wall_ms: int) -> None:
        """Write the state at `offset`, the log's end, to its file, and remove older spare files."""
        state = self.state or self.load(wall_ms)  # which removes a damaged file of that name
        if self._snapshots and self._snapshots[-1] == offset:
            return
        try:
            write_snapshot(self._disk, self._directory, offset, state)
        except OSError:
            with suppress(OSError):  # its checksum is wrong, if it is there at all: the first error counts
                self._disk.remove(snapshot_path(self._directory, offset))
            raise
        self._snapshots.append(offset)
        self._unsynced.add(offset)
        self._sound.add(offset)
        bases = {segment.base_offset for segment in self._segments.items}
        for spare in [spare for spare in self._snapshots if spare not in bases][:-_SPARES]:
            try:
                self._remove(spare)
            except OSError as error:
                if not is_transient(error):
                    raise  # else: the next snapshot tries again

    def unsynced(self) -> list[int]:
        """Offsets of the snapshots that a flush has to make durable."""
        return [offset for offset in self._snapshots if offset in self._unsynced]

    def note_synced(self, offsets: list[int]) -> None:
        self._unsynced.difference_update(offsets)

    def outlive(self, offset: int, wall_ms: int, *, may_wait: bool) -> bool:
        """What lies below `offset` is about to go: from now on the snapshot there replaces it.

        So it must be sound and durable, and is written again where it is damaged or missing. False: it
        becomes durable with the next flush, and nothing may go before. Without `may_wait` it is synced here.
        """
        if offset in self._snapshots and offset not in self._sound:
            try:
                read_snapshot(self._disk, self._directory, offset, wall_ms)
                self._sound.add(offset)
            except (DamagedSnapshot, FileNotFoundError):
                self._remove(offset)
        if offset not in self._snapshots:
            state, start = self._newest_snapshot(offset, wall_ms)
            self._replay_from(state, start, offset, None, wall_ms)
            try:
                write_snapshot(self._disk, self._directory, offset, state)
            except OSError as error:
                if not is_transient(error):
                    raise
                return True  # the space that is about to come free is worth more
            insort(self._snapshots, offset)
            self._sound.add(offset)
            self._unsynced.add(offset)
        if offset in self._unsynced:
            if may_wait:
                return False
            file = self._disk.open(snapshot_path(self._directory, offset))
            try:
                file.sync()
            finally:
                file.close()
            self._disk.sync_dir(self._directory)
            self._unsynced.discard(offset)
        return True

    def truncate(self, end_offset: int, *, is_synced: bool = True) -> None:
        """The log ends earlier now: forget what is beyond, and load it again when needed. That is so also
        where there is no space to remove the files: see `remove_leftover`.
        """
        self.state = None
        gone = [offset for offset in self._snapshots if offset > end_offset]
        self._snapshots = [offset for offset in self._snapshots if offset <= end_offset]
        self._sound.difference_update(gone)
        self._unsynced.difference_update(gone)
        self._leftover += gone
        self.remove_leftover(is_synced=is_synced)

    def remove_leftover(self, *, is_synced: bool = True) -> None:
        """Before other records come where the log was cut: a start would take the files for their state."""
        if not self._leftover:
            return
        for offset in self._leftover:
            with suppress(FileNotFoundError):  # all that counts is that it is gone
                self._disk.remove(snapshot_path(self._directory, offset))
        if is_synced:
            # one that came back with a lost host would be taken for the state of other records
            self._disk.sync_dir(self._directory)
        self._leftover.clear()

    def begin(self, offset: int) -> None:
        """The log is empty and begins at `offset`: a snapshot there is all that can be known."""
        self.truncate(offset)
        if offset not in self._snapshots:
            self.state = ProducerState()

    def forget_before(self, start_offset: int) -> list[str]:
        """Paths of the snapshots that a log beginning at `start_offset` needs no more, forgotten here."""
        gone = [offset for offset in self._snapshots if offset < start_offset]
        self._snapshots = [offset for offset in self._snapshots if offset >= start_offset]
        self._sound.difference_update(gone)
        self._unsynced.difference_update(gone)
        return [snapshot_path(self._directory, offset) for offset in gone]

    def _remove(self, offset: int) -> None:
        try:
            self._disk.remove(snapshot_path(self._directory, offset))
        except FileNotFoundError:
            pass  # all that counts is that it is gone
        self._snapshots.remove(offset)
        self._sound.discard(offset)
        self._unsynced.discard(offset)
