"""The end of a log where it grows: batches are checked, given their place and written, segments begun and
cut.

A batch is one write. On a full disk the log is cut back to where it ended, and refuses with DiskFull; what
cannot be cut back then is cut back before the next batch.
"""

from headrace.records.batch import (
    CONTROL,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    assign,
    check_crc,
)
from headrace.records.errors import InvalidBatch
from headrace.storage.admission import admit_inline, check_own, check_produced
from headrace.storage.disk import File
from headrace.storage.errors import (
    OffsetsNotRising,
    RecordListTooLarge,
    is_transient,
)
from headrace.storage.opened_log import OpenedLog, guarded
from headrace.storage.partition_producers import EndMarker, end_marker_of
from headrace.storage.producer_state import ProducerState
from headrace.storage.segment import Segment
from headrace.storage.tail import BATCHES_MAX
from headrace.storage.transaction_index import TransactionIndex

INT32_MAX = (1 << 31) - 1


class Appended:
    __slots__ = ("base_offset", "is_duplicate", "last_offset", "log_append_time_ms", "log_start_offset")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        is_duplicate: bool,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms  # -1: the records keep the producer's timestamps
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate  # was in the log already, at these offsets


class GrowingLog(OpenedLog):
    __slots__ = ()

    # --- appending --------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        *,
        wall_ms: int,
        leader_epoch: int,
        from_client: bool = True,
        admitted: BatchHeader | None = None,
    ) -> Appended:
        """Write one batch: checked, given its offset and epoch in place, in a single write.

        `admitted` is the header that an AdmitJob gave: nothing of it is checked again.
        """
        if self._health.error is not None:
            raise self._health.offline()
        config = self._config
        if admitted is not None:
            header = admitted
        else:
            header = check_produced(records, config) if from_client else check_own(records)
            if from_client and (self._opens or header[8] - wall_ms > config.message_timestamp_after_max_ms):
                records, header = admit_inline(records, header, config, wall_ms, self.directory)
        _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        state: ProducerState | None = None
        try:
            if producer_id >= 0:
                state = self._producers.state or self._producers.load(wall_ms)
                if attributes & CONTROL:
                    return self._append_marker(records, header, state, wall_ms, leader_epoch)
                if from_client:
                    repeated = state.check(
                        producer_id, epoch, sequence, delta, is_transactional=bool(attributes & TRANSACTIONAL)
                    )
                else:
                    repeated = None
                    state.check_epoch(producer_id, epoch)
                if repeated is not None:
                    return Appended(
                        repeated.last_offset - repeated.offset_delta,
                        repeated.last_offset,
                        repeated.timestamp if attributes & LOG_APPEND_TIME else -1,
                        self.log_start_offset,
                        True,
                    )
            offset = self.log_end_offset
            if leader_epoch != self._stamped_epoch:
                self._enter_epoch(leader_epoch)
            assign(records, 0, offset, leader_epoch)
            self._write(records, length + LENGTH_OVERHEAD, offset + delta, max_timestamp, wall_ms)
        except OSError as error:
            raise self._health.met(error) from error
        if state is not None:
            state.appended(
                producer_id,
                epoch,
                sequence,
                offset,
                delta,
                max_timestamp,
                wall_ms,
                is_transactional=bool(attributes & TRANSACTIONAL),
            )
        return Appended(
            offset,
            offset + delta,
            max_timestamp if attributes & LOG_APPEND_TIME else -1,
            self.log_start_offset,
            False,
        )

    def _write(
        self, batch: memoryview, size: int, last_offset: int, max_timestamp: int, wall_ms: int
    ) -> None:
        """Bytes of one batch to the end of the active segment, after a new one was begun if it is time."""
        active = self._active
        if active.log is None:
            self._prepare_active()
        if self._must_roll(active, size, last_offset, max_timestamp, wall_ms):
            self._roll(wall_ms)
            active = self._active
        log = active.log
        assert log is not None
        position = active.size
        try:
            log.append(batch)
        except OSError as error:
            if is_transient(error):
                self._cut_back(log, position)
            raise
        active.note(size, last_offset, max_timestamp, self._config.index_interval_bytes)
        active.modified_ms = wall_ms
        tail = self._tail
        lasts = tail.lasts
        if not lasts:
            tail.first_offset = self.log_end_offset
        lasts.append(last_offset)
        tail.positions.append(position)
        if len(lasts) > BATCHES_MAX:
            tail.shrink()
        self.log_end_offset = last_offset + 1
        self._unflushed_bytes += size

    def _cut_back(self, log: File, position: int) -> None:
        """A part of a batch may lie behind the end."""
        try:
            log.truncate(position)
        except OSError as error:
            if not is_transient(error):
                raise
            self._let_go()

    def _let_go(self) -> None:
        """The files hold more than they should: whoever needs the active segment next opens it, and only then
        when they could be put right.
        """
        self._active.release()
        self._tail.clear()

    def _must_roll(
        self, active: Segment, size: int, last_offset: int, max_timestamp: int, wall_ms: int
    ) -> bool:
        config = self._config
        if not active.size:
            if size > config.segment_bytes:
                raise RecordListTooLarge(f"a batch of {size} bytes exceeds the segment size")
            return False
        if active.size + size > config.segment_bytes or last_offset - active.base_offset > INT32_MAX:
            return True
        first = active.first_timestamp
        waited_ms = max_timestamp - first if first >= 0 <= max_timestamp else wall_ms - active.created_ms
        return (
            waited_ms > self._roll_ms
            or (active.index_entries + 1) * active.time_index.entry_bytes > config.segment_index_bytes
        )

    def _prepare_active(self) -> None:
        """The active segment is about to get a batch: have its files open."""
        active = self._active
        if active.is_new:
            self._is_renamed = True
            active.create()
        else:
            active.load()
            active.hold()

    def _append_marker(
        self, batch: memoryview, header: BatchHeader, state: ProducerState, wall_ms: int, leader_epoch: int
    ) -> Appended:
        marker = end_marker_of(batch, header)
        if marker is None:
            raise InvalidBatch("a control batch with a producer that is no end marker")
        state.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        if leader_epoch != self._stamped_epoch:
            self._enter_epoch(leader_epoch)
        offset = self.log_end_offset
        assign(batch, 0, offset, leader_epoch)
        self._write_marker(batch, header, marker, offset, state, wall_ms)
        return Appended(offset, offset, -1, self.log_start_offset, False)

    def _write_marker(
        self,
        batch: memoryview,
        header: BatchHeader,
        marker: EndMarker,
        offset: int,
        state: ProducerState,
        wall_ms: int,
    ) -> None:
        """The end of a transaction: the transaction index learns of an abort before the log does."""
        # a new segment, if it is time for one, comes before the entry in its transaction index
        self._prepare_active()
        if self._must_roll(self._active, header.size, offset, header.max_timestamp, wall_ms):
            self._roll(wall_ms)
        aborted = state.aborting(header.producer_id, offset) if marker.is_aborted else None
        index = self._active.transaction_index
        known = len(index)
        try:
            if aborted is not None:
                self._is_renamed |= not known  # the file appears with its first entry
                index.add(aborted)
            self._write(batch, header.size, offset, header.max_timestamp, wall_ms)
        except OSError as error:
            if aborted is not None and is_transient(error):
                self._forget_aborted(index, known)
            raise
        state.ended(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            offset,
            header.max_timestamp,
            wall_ms,
        )

    def _forget_aborted(self, index: TransactionIndex, known: int) -> None:
        """The marker was not written: the transaction is still open, and must not be told to be aborted."""
        try:
            index.cut(known)
        except OSError as error:
            if not is_transient(error):
                raise
            self._let_go()

    @guarded
    def append_batches(self, records: memoryview, *, wall_ms: int) -> None:
        """Batches that have their offsets and epochs already: from a leader, or of the metadata log."""
        position = 0
        while position < len(records):
            header = check_crc(records, position)
            if header.base_offset < self.log_end_offset:
                raise OffsetsNotRising(
                    f"a batch at offset {header.base_offset} where the log ends at {self.log_end_offset}"
                )
            batch = records[position : position + header.size]
            if header.leader_epoch != self._stamped_epoch:
                self._enter_epoch(header.leader_epoch, header.base_offset)
            if not self._active.size and self._active.is_new and len(self._segments) == 1:
                self._begin_at(header.base_offset, wall_ms)
            elif header.last_offset - self.log_end_offset > INT32_MAX:
                # no segment could hold the gap that compaction left before it
                self._roll(wall_ms, header.base_offset)
            self._write_replicated(batch, header, wall_ms)
            position += header.size

    def _write_replicated(self, batch: memoryview, header: BatchHeader, wall_ms: int) -> None:
        """A batch that its leader has admitted: nothing about its producer is questioned."""
        if header.producer_id >= 0:
            state = self._producers.state or self._producers.load(wall_ms)
            marker = end_marker_of(batch, header) if header.is_control else None
            if marker is not None:
                self._write_marker(batch, header, marker, header.last_offset, state, wall_ms)
                return
        self._write(batch, header.size, header.last_offset, header.max_timestamp, wall_ms)
        if header.producer_id >= 0:
            state.replayed(header, wall_ms)

    def _begin_at(self, offset: int, wall_ms: int) -> None:
        """A follower's empty log takes over the leader's start."""
        if offset != self._active.base_offset:
            self._segments.drop(self._segments.items)
            self._start_empty(offset, wall_ms)

    def roll(self, wall_ms: int) -> None:
        """Seal the active segment and begin a new one, unless it is empty."""
        if self._health.error is not None:
            raise self._health.offline()
        try:
            self._active.load()
            if self._active.size:
                self._roll(wall_ms)
        except OSError as error:
            raise self._health.met(error) from error

    def _roll(self, wall_ms: int, base_offset: int | None = None) -> None:
        sealed = self._active
        if not sealed.is_new:
            sealed.load()
            sealed.hold()
        sealed.seal()
        self._producers.take_snapshot(self.log_end_offset, wall_ms)
        base_offset = self.log_end_offset if base_offset is None else base_offset
        new = Segment(self._disk, self._files, self.directory, base_offset, wall_ms, is_new=True)
        new.create()
        sealed.release()
        self._segments.append(new)
        self._active = new
        self._tail.clear()
        self._is_renamed = True

    def _enter_epoch(self, epoch: int, offset: int | None = None) -> None:
        """The first batch of a leader epoch is about to come: remember where, before it is there."""
        epochs = self._leader_epochs()
        if epoch > epochs.latest:
            epochs.assign(epoch, self.log_end_offset if offset is None else offset)
        self._write_epochs(epochs)
        self._stamped_epoch = epoch

    @guarded
    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`, or at the beginning of the batch that holds it."""
        if offset >= self.log_end_offset:
            return
        self.generation += 1
        if offset < self.flushed_offset:
            # the lower recovery point comes first: nothing written from here on was flushed
            self.flushed_offset = max(offset, 0)
            self.first_dirty_offset = min(self.first_dirty_offset, self.flushed_offset)
            if self._lowered is not None:
                self._lowered()
        self._tail.clear()
        self._segments.forget_readers()
        placed = self._segments.place(offset)
        if offset <= self._segments.items[0].base_offset or placed is None:
            self._remove_segments(self._segments.items)
            self._start_empty(offset, self._wall_ms)
        else:
            segment, position, _ = placed
            end = min(segment.base_offset_at(position), offset)
            kept = self._segments.number_of(segment.base_offset) + 1
            self._remove_segments(self._segments.items[kept:])
            segment.truncate(position, end)
            self._active = segment
            self.log_end_offset = end
            self._producers.truncate(end)
        epochs = self._leader_epochs()
        epochs.truncate_end(self.log_end_offset)
        self._write_epochs(epochs)
        self._stamped_epoch = -2
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self._is_dirty = self._is_renamed = True
