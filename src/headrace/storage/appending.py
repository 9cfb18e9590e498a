"""Appending to a log: a batch is checked, gets its offset and its leader epoch, and is written.

A batch is one write. On a full disk the log is cut back to where it ended, and refuses with DiskFull; what
cannot be cut back then is cut back before the next batch.
"""

from headrace.base.numbers import INT32_MAX
from headrace.records.batch import (
    ATTRIBUTES_FIELD,
    CONTROL,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_FIELD,
    TRANSACTIONAL,
    BatchHeader,
    assign,
    check_crc,
    check_own,
    check_produced,
)
from headrace.records.errors import InvalidBatch
from headrace.storage.batch_validation import check_timestamp_type, validate_inline
from headrace.storage.errors import OffsetsNotRising, RecordListTooLarge, is_transient
from headrace.storage.file_list import log_name, transaction_index_name
from headrace.storage.flushing import flush_now
from headrace.storage.log_state import LogState, guarded
from headrace.storage.partition_producers import EndMarker, end_marker_of
from headrace.storage.producer_state import ProducerState
from headrace.storage.rolling import roll_active
from headrace.storage.segment import Segment
from headrace.storage.tail import BATCHES_MAX
from headrace.storage.transaction_index import TransactionIndex
from headrace.storage.unfinished import cut_back, drop_others, release_active, take_rest


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


def append(
    log: LogState,
    records: memoryview,
    *,
    wall_ms: int,
    leader_epoch: int,
    from_client: bool = True,
    validated: BatchHeader | None = None,
) -> Appended:
    """Write one batch: checked, given its offset and epoch in place, in a single write.

    `validated` is the header that a ValidateBatchJob gave: nothing of it is checked again.
    """
    if log.status.error is not None:
        raise log.status.offline()
    config = log.config
    if validated is not None:
        header = validated
    else:
        if not from_client:
            header = check_own(records)
        else:
            header = check_produced(records, config.max_message_bytes)
            if header[ATTRIBUTES_FIELD] & LOG_APPEND_TIME:
                check_timestamp_type(header[ATTRIBUTES_FIELD])
            if (
                log.opens_batches
                or header[MAX_TIMESTAMP_FIELD] - wall_ms > config.message_timestamp_after_max_ms
            ):
                records, header = validate_inline(records, header, config, wall_ms, log.directory)
    _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
    state: ProducerState | None = None
    try:
        if producer_id >= 0:
            state = log.partition_producers.state or log.partition_producers.load(wall_ms)
            if attributes & CONTROL:
                return _append_marker(log, records, header, state, wall_ms, leader_epoch)
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
                    log.log_start_offset,
                    True,
                )
        offset = log.log_end_offset
        if leader_epoch != log.stamped_epoch:
            enter_epoch(log, leader_epoch)
        assign(records, 0, offset, leader_epoch)
        _write(log, records, length + LENGTH_OVERHEAD, offset + delta, max_timestamp, wall_ms)
    except OSError as error:
        raise log.status.met(error) from error
    if state is not None:
        state.add_batch(
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
        log.log_start_offset,
        False,
    )


def _write(
    log: LogState, batch: memoryview, size: int, last_offset: int, max_timestamp: int, wall_ms: int
) -> None:
    """Bytes of one batch to the end of the active segment, after a new one was begun if it is time."""
    active = log.active
    if log.unfinished is not None:
        drop_others(log, batch)
    if active.log is None:
        prepare_active(log)
    if must_roll(log, active, size, last_offset, max_timestamp, wall_ms):
        roll_active(log, wall_ms)
        active = log.active
    file = active.log
    assert file is not None
    position = active.size
    rest = batch if log.unfinished is None else take_rest(log, batch)
    try:
        file.append(rest)
    except OSError as error:
        if is_transient(error):
            cut_back(log, file, position)
        raise
    active.note(size, last_offset, max_timestamp, log.config.index_interval_bytes)
    active.modified_ms = wall_ms
    tail = log.tail
    lasts = tail.lasts
    if not lasts:
        tail.first_offset = log.log_end_offset
    lasts.append(last_offset)
    tail.positions.append(position)
    if len(lasts) > BATCHES_MAX:
        tail.shrink()
    log.log_end_offset = last_offset + 1
    log.unflushed_bytes += size


def must_roll(
    log: LogState, active: Segment, size: int, last_offset: int, max_timestamp: int, wall_ms: int
) -> bool:
    """Whether the batch belongs into a new segment."""
    config = log.config
    if active.size + size > config.segment_bytes:
        if size > config.segment_bytes:
            raise RecordListTooLarge(
                f"the batch has {size} bytes, more than segment.bytes={config.segment_bytes}"
            )
        return True
    if not active.size:
        return False
    if last_offset - active.base_offset > INT32_MAX:
        return True
    first = active.first_timestamp
    waited_ms = max_timestamp - first if first >= 0 <= max_timestamp else wall_ms - active.created_ms
    return (
        waited_ms > log.roll_ms
        or (active.index_entries + 1) * active.time_index.entry_bytes > config.segment_index_bytes
    )


def prepare_active(log: LogState) -> None:
    """The active segment is about to get a batch: have its files open."""
    active = log.active
    if active.is_new:
        log.is_renamed = True
        active.create()
        log.file_list.add(log_name(active.base_offset))
    else:
        active.load()
        active.hold()


def _append_marker(
    log: LogState,
    batch: memoryview,
    header: BatchHeader,
    state: ProducerState,
    wall_ms: int,
    leader_epoch: int,
) -> Appended:
    marker = end_marker_of(batch, header)
    if marker is None:
        raise InvalidBatch("the control batch has a producer id but is not a transaction's end marker")
    state.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
    if leader_epoch != log.stamped_epoch:
        enter_epoch(log, leader_epoch)
    offset = log.log_end_offset
    assign(batch, 0, offset, leader_epoch)
    write_marker(log, batch, header, marker, offset, state, wall_ms)
    return Appended(offset, offset, -1, log.log_start_offset, False)


def write_marker(
    log: LogState,
    batch: memoryview,
    header: BatchHeader,
    marker: EndMarker,
    offset: int,
    state: ProducerState,
    wall_ms: int,
) -> None:
    """The end of a transaction: the transaction index learns of an abort before the log does."""
    # a new segment, if it is time for one, comes before the entry in its transaction index
    prepare_active(log)
    if must_roll(log, log.active, header.size, offset, header.max_timestamp, wall_ms):
        roll_active(log, wall_ms)
    aborted = state.aborted_at(header.producer_id, offset) if marker.is_aborted else None
    index = log.active.transaction_index
    known = len(index)
    try:
        if aborted is not None:
            log.is_renamed |= not known  # the file appears with its first entry
            index.add(aborted)
            if not known:
                log.file_list.add(transaction_index_name(log.active.base_offset))
        _write(log, batch, header.size, offset, header.max_timestamp, wall_ms)
    except OSError as error:
        if aborted is not None and is_transient(error):
            _forget_aborted(log, index, known)
        raise
    state.end_transaction(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        offset,
        header.max_timestamp,
        wall_ms,
    )


def _forget_aborted(log: LogState, index: TransactionIndex, known: int) -> None:
    """The marker was not written, so the transaction is still open: the index must not have it as aborted."""
    try:
        index.cut(known)
    except OSError as error:
        if not is_transient(error):
            raise
        release_active(log)


@guarded
def append_batches(log: LogState, records: memoryview, *, wall_ms: int) -> None:
    """Batches that have their offsets and epochs already: from a leader, or of the metadata log."""
    position = 0
    while position < len(records):
        header = check_crc(records, position)
        if header.base_offset < log.log_end_offset:
            raise OffsetsNotRising(
                f"batch with base offset {header.base_offset}: the log already ends at {log.log_end_offset}"
            )
        batch = records[position : position + header.size]
        if header.leader_epoch != log.stamped_epoch:
            enter_epoch(log, header.leader_epoch, header.base_offset)
        if not log.active.size and log.active.is_new and len(log.segments) == 1:
            begin_at(log, header.base_offset, wall_ms)
        elif header.last_offset - log.log_end_offset > INT32_MAX:
            # no segment could hold the gap that compaction left before it
            roll_active(log, wall_ms, header.base_offset)
        _write_replicated(log, batch, header, wall_ms)
        position += header.size


def _write_replicated(log: LogState, batch: memoryview, header: BatchHeader, wall_ms: int) -> None:
    """A batch that its leader has admitted: nothing about its producer is questioned."""
    if header.producer_id >= 0:
        state = log.partition_producers.state or log.partition_producers.load(wall_ms)
        marker = end_marker_of(batch, header) if header.is_control else None
        if marker is not None:
            write_marker(log, batch, header, marker, header.last_offset, state, wall_ms)
            return
    _write(log, batch, header.size, header.last_offset, header.max_timestamp, wall_ms)
    if header.producer_id >= 0:
        state.replay_batch(header, wall_ms)


def begin_at(log: LogState, offset: int, wall_ms: int) -> None:
    """A follower's empty log takes over the leader's start."""
    if offset != log.active.base_offset:
        log.segments.drop(log.segments.items)
        log.start_empty(offset, wall_ms)


def enter_epoch(log: LogState, epoch: int, offset: int | None = None) -> None:
    """The first batch of a leader epoch, or after a cut, is about to come: remember where, before it is
    there. What was cut off must not come back behind it: usually that was flushed long ago.
    """
    log.partition_producers.remove_leftover()
    if log.is_cut:
        flush_now(log)
    epochs = log.epochs.read()
    if offset is not None:
        epochs.truncate_end(offset)  # this replica led in epochs in which it wrote nothing
    if epoch > epochs.latest:
        epochs.assign(epoch, log.log_end_offset if offset is None else offset)
    log.write_epochs()
    log.stamped_epoch = epoch
