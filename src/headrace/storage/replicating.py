"""Appending as a follower: batches that a leader has checked, with the offsets and epochs that it gave them.

An answer to a fetch has many batches; those that go into the same segment are one write, and a large batch is
written ahead in pieces (`writing_ahead.py`). Every checksum is computed again: a batch that was damaged on
the leader's disk or on the way is refused, with all batches after it. So are batches of a later leader epoch
than that of the leader that was asked: the leader may have truncated and rewritten its file while the answer
was on its way.
"""

from headrace.base.numbers import INT32_MAX
from headrace.base.values import Value
from headrace.records.batch import BatchHeader, check_crc
from headrace.records.errors import BadRecords
from headrace.storage.appending import (
    begin_at,
    enter_epoch,
    must_roll,
    prepare_active,
    write_marker,
)
from headrace.storage.damage import Damage
from headrace.storage.errors import DamagedBatch, is_transient
from headrace.storage.log_state import LogState, guarded
from headrace.storage.partition_producers import EndMarker, end_marker_of
from headrace.storage.rolling import roll_active
from headrace.storage.tail import BATCHES_MAX
from headrace.storage.unfinished import cut_back, drop_others, drop_unfinished, take_rest


class Replicated(Value):
    end_offset: int  # of the log
    refusal: str | None  # why the rest of the batches was not appended


@guarded
def append_as_follower(
    log: LogState, records: memoryview, *, leader_epoch: int, allows_gaps: bool, wall_ms: int
) -> Replicated:
    """Append batches up to the first that is refused. `allows_gaps`: compaction may have removed records
    between them.
    """
    refusal: str | None = None
    accepted: list[BatchHeader] = []
    position = 0
    start, end = log.log_start_offset, log.log_end_offset
    is_empty = _is_empty(log)
    last_epoch = last_record_epoch(log)
    ahead = None if log.unfinished is None else log.unfinished.checked(records, log.config)
    while position < len(records):
        try:
            header = ahead or check_crc(records, position)
        except BadRecords as damage:
            refusal = str(damage)
            break
        if is_empty and not accepted and header.base_offset < end <= header.last_offset:
            end = header.base_offset  # the leader's log starts inside this batch: records were deleted
        refusal = _refusal(header, end, last_epoch, leader_epoch, allows_gaps=allows_gaps)
        if refusal is not None:
            break
        accepted.append(header)
        position += header.size
        last_epoch, end = header.leader_epoch, header.next_offset
    if accepted:
        _write_all(log, records, accepted, wall_ms)
        log.log_start_offset = max(log.log_start_offset, start)
    if refusal is not None:
        drop_unfinished(log)
    return Replicated(log.log_end_offset, refusal)


@guarded
def last_record_epoch(log: LogState) -> int:
    """The leader epoch of the log's last record; -1 without any. As a follower the log forgets epochs in
    which it led and wrote nothing: the records that come next may be of an earlier one.
    """
    epochs = log.epochs.read()
    epochs.truncate_end(log.log_end_offset)
    if epochs.latest != log.stamped_epoch:
        log.stamped_epoch = None  # forgotten: its first record may still come
    return epochs.latest


def first_damage(log: LogState) -> int | None:
    """The lowest offset that is known to be damaged on disk, or to be missing there."""
    return min((damage.offset for damage in log.damages), default=None)


def kept_start(log: LogState) -> int:
    """Everything before it was deleted. What was lost here was not: other replicas keep it, and give it to
    this one when they lead.
    """
    return min(log.log_start_offset, log.lost_start)


@guarded
def check_batch_at(log: LogState, offset: int) -> str | None:
    """What is wrong with the batch that holds the offset; None: nothing. For a batch that followers refuse.
    Nobody reads a damaged one from now on.
    """
    try:
        placed = log.segments.place(offset)
        if placed is None:
            return None
        segment, position, size = placed
        check_crc(segment.file().read(position, size))
    except DamagedBatch as known:
        return str(known)
    except BadRecords as damage:
        segment.damaged = sorted({*segment.damaged, position})
        log.tail.clear()
        log.segments.forget_readers()
        what = f"{segment.path}.log, position {position}: {damage}"
        log.damages.append(Damage(f"{segment.path}.log", what, offset))
        return what
    return None


def _is_empty(log: LogState) -> bool:
    return not log.active.size and log.active.is_new and len(log.segments) == 1


def _refusal(
    header: BatchHeader, end: int, last_epoch: int, leader_epoch: int, *, allows_gaps: bool
) -> str | None:
    where = f"the batch at offset {header.base_offset}"
    if header.leader_epoch > leader_epoch:
        return f"{where} has leader epoch {header.leader_epoch}, its leader had {leader_epoch}"
    if header.leader_epoch < last_epoch:
        return f"{where} has leader epoch {header.leader_epoch}, behind records of epoch {last_epoch}"
    if header.base_offset < end or header.last_offset_delta < 0:
        return f"{where} begins before the end of the log, {end}"
    if header.base_offset > end and not allows_gaps:
        return f"{where} leaves a gap: the log ends at {end}"
    return None


def _write_all(log: LogState, records: memoryview, headers: list[BatchHeader], wall_ms: int) -> None:
    """Runs of batches, each one write: a new epoch, a transaction's end and a new segment begin another."""
    first = position = 0  # where the run begins and ends
    run: list[BatchHeader] = []
    if _is_empty(log):
        begin_at(log, headers[0].base_offset, wall_ms)
    for header in headers:
        batch = records[position : position + header.size]
        marker = end_marker_of(batch, header) if header.is_control and header.producer_id >= 0 else None
        is_new_epoch = header.leader_epoch != log.stamped_epoch
        if run and (is_new_epoch or marker is not None or _is_full(log, position - first, run, header)):
            _write_run(log, records[first:position], run, wall_ms)
            first, run = position, []
        if is_new_epoch:
            enter_epoch(log, header.leader_epoch, header.base_offset)
        position += header.size
        if marker is not None:
            _write_marker(log, batch, header, marker, wall_ms)
            first = position
        else:
            run.append(header)
    if run:
        _write_run(log, records[first:position], run, wall_ms)


def _is_full(log: LogState, size: int, run: list[BatchHeader], header: BatchHeader) -> bool:
    """Whether the batch does not fit into the segment that the run of `size` bytes goes into. Where that is
    not quite sure, two writes do no harm.
    """
    active = log.active
    config = log.config
    if active.size + size + header.size > config.segment_bytes:
        return True
    if header.last_offset - min(active.base_offset, run[0].base_offset) > INT32_MAX:
        return True
    first = active.first_timestamp if active.size else run[0].max_timestamp
    if header.max_timestamp >= 0 <= first and header.max_timestamp - first > log.roll_ms:
        return True
    entries = active.index_entries + size // max(config.index_interval_bytes, 1) + 2
    return entries * active.time_index.entry_bytes > config.segment_index_bytes


def _write_run(log: LogState, data: memoryview, run: list[BatchHeader], wall_ms: int) -> None:
    producers = log.partition_producers
    has_producers = any(header.producer_id >= 0 for header in run)
    state = (producers.state or producers.load(wall_ms)) if has_producers else None
    drop_others(log, data)
    make_room(log, run[0], wall_ms)
    active = log.active
    file = active.log
    assert file is not None
    start = active.size
    rest = take_rest(log, data)
    try:
        file.append(rest)
    except OSError as error:
        log.epochs.read().truncate_end(log.log_end_offset)  # that of the run, if it was its first
        log.stamped_epoch = None
        if is_transient(error):
            cut_back(log, file, start)
        raise
    tail = log.tail
    position = start
    for header in run:
        last_offset = header.last_offset
        active.note(header.size, last_offset, header.max_timestamp, log.config.index_interval_bytes)
        if not tail.lasts:
            tail.first_offset = log.log_end_offset
        tail.lasts.append(last_offset)
        tail.positions.append(position)
        if len(tail.lasts) > BATCHES_MAX:
            tail.shrink()
        position += header.size
        log.log_end_offset = last_offset + 1
        if header.producer_id >= 0 and state is not None and not header.is_control:
            state.replay_batch(header, wall_ms)
    active.modified_ms = wall_ms
    log.unflushed_bytes += len(data)


def _write_marker(
    log: LogState, batch: memoryview, header: BatchHeader, marker: EndMarker, wall_ms: int
) -> None:
    state = log.partition_producers.state or log.partition_producers.load(wall_ms)
    if header.last_offset - log.log_end_offset > INT32_MAX:
        roll_active(log, wall_ms, header.base_offset)
    write_marker(log, batch, header, marker, header.last_offset, state, wall_ms)


def make_room(log: LogState, header: BatchHeader, wall_ms: int) -> None:
    """The active segment is open and takes the batch; a new one was begun if it is time."""
    if log.active.log is None:
        prepare_active(log)
    active = log.active
    if header.last_offset - log.log_end_offset > INT32_MAX:
        # no segment could hold the gap that compaction left before it
        roll_active(log, wall_ms, header.base_offset)
    elif header.size > log.config.segment_bytes:
        if active.size:  # the leader has accepted it: it gets a segment of its own
            roll_active(log, wall_ms)
    elif must_roll(log, active, header.size, header.last_offset, header.max_timestamp, wall_ms):
        roll_active(log, wall_ms)
