"""Large batches: their bytes are written behind the end of the log in pieces, before they are appended.

One write of ten megabytes takes some 20 ms, mostly for the page cache. So whoever has such a batch writes it
ahead, a piece at a time, and lets others have their turn in between. The checksum is computed on the way.
`append` writes the last piece, after its checks: a batch that is damaged, repeated, or refused, is never
whole in the file, where a restart would take it for a part of the log. Until then reads end where the log
ends, and a crash leaves a torn batch. Anything else that changes the active segment meanwhile cuts the pieces
off, and the batch begins again.
"""

from headrace.records.batch import (
    ATTRIBUTES_FIELD,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP_FIELD,
    BatchHeader,
    assign,
    batch_size,
    check_produced_header,
    read_header,
)
from headrace.records.errors import CorruptBatch, InvalidBatch, UnsupportedCodec
from headrace.storage.appending import must_roll, prepare_active
from headrace.storage.batch_validation import check_timestamp_type
from headrace.storage.errors import is_transient
from headrace.storage.log_state import LogState, guarded
from headrace.storage.replicating import last_record_epoch, make_room
from headrace.storage.rolling import roll_active
from headrace.storage.unfinished import Unfinished, cut_back, drop_unfinished

# About a millisecond of writing, where 10 MB take 18 ms.
PIECE_BYTES = 512 * 1024

# From this size on a batch is written in pieces. Only topics with a larger `max.message.bytes` than the
# default one take such batches.
LARGE_BYTES = 1024 * 1024 + 13


@guarded
def write_ahead(
    log: LogState, batch: memoryview, *, wall_ms: int, leader_epoch: int, piece_bytes: int = PIECE_BYTES
) -> bool:
    """Write the next piece of a client's batch, which gets its offset and its leader epoch for that. True:
    only the last one is left, and `append` can follow at once.
    """
    offset = log.log_end_offset
    unfinished = log.unfinished
    if unfinished is not None:
        assign(batch, 0, offset, leader_epoch)
    if unfinished is None or not unfinished.is_of(batch):
        try:
            header = check_produced_header(batch, log.config.max_message_bytes)
        except (InvalidBatch, UnsupportedCodec):
            return (
                True  # the append says what is wrong: if the checksum is, too, the client may send it again
            )
        if header[ATTRIBUTES_FIELD] & LOG_APPEND_TIME:
            check_timestamp_type(header[ATTRIBUTES_FIELD])
        early_ms = header[MAX_TIMESTAMP_FIELD] - wall_ms
        if log.opens_batches or early_ms > log.config.message_timestamp_after_max_ms:
            return True  # it may be changed, or refused, when it is appended
        drop_unfinished(log)
        if log.active.log is None:
            prepare_active(log)
        last_offset = offset + header.last_offset_delta
        if must_roll(log, log.active, header.size, last_offset, header.max_timestamp, wall_ms):
            roll_active(log, wall_ms)
        assign(batch, 0, offset, leader_epoch)
        unfinished = log.unfinished = Unfinished(batch, header, log.config)
    return _write_piece(log, unfinished, piece_bytes)


@guarded
def write_ahead_as_follower(
    log: LogState, records: memoryview, *, leader_epoch: int, wall_ms: int, piece_bytes: int = PIECE_BYTES
) -> int:
    """The next piece of batches that a leader has sent: how many bytes of them, whole batches, are ready for
    `append_as_follower`. 0: a piece of a large batch was written, and the next one comes first.
    """
    ready = 0
    while len(records) - ready >= HEADER_BYTES:
        size = batch_size(records, ready)
        if not HEADER_BYTES <= size <= len(records) - ready:
            break  # the append says what is wrong with it
        if ready and ready + size > piece_bytes:
            return ready
        if size >= LARGE_BYTES:
            is_ready = _write_ahead_replicated(log, records[:size], leader_epoch, wall_ms, piece_bytes)
            return size if is_ready else 0
        ready += size
    return len(records)


def _write_ahead_replicated(
    log: LogState, batch: memoryview, leader_epoch: int, wall_ms: int, piece_bytes: int
) -> bool:
    unfinished = log.unfinished
    if unfinished is None or not unfinished.is_of(batch):
        header = read_header(batch)
        last_epoch = last_record_epoch(log)
        if (
            header.magic != MAGIC
            or header.is_control
            or header.base_offset != log.log_end_offset
            or header.last_offset_delta < 0
            or not last_epoch <= header.leader_epoch <= leader_epoch
        ):
            return True  # rare, or to be refused: the append knows what to do
        drop_unfinished(log)
        make_room(log, header, wall_ms)
        unfinished = log.unfinished = Unfinished(batch, header, log.config)
    try:
        return _write_piece(log, unfinished, piece_bytes)
    except CorruptBatch:
        return True  # the append refuses it


def _write_piece(log: LogState, unfinished: Unfinished, piece_bytes: int) -> bool:
    piece = unfinished.next_piece(piece_bytes)
    if not piece:
        return True
    file = log.active.log
    assert file is not None
    try:
        file.append(piece)
    except OSError as error:
        log.unfinished = None
        if is_transient(error):
            cut_back(log, file, log.active.size)
        raise
    unfinished.written += piece_bytes
    return False


def checked_ahead(log: LogState, batch: memoryview) -> BatchHeader | None:
    """The header of a batch that was checked while it was written ahead: nothing is to be checked again."""
    return None if log.unfinished is None else log.unfinished.checked(batch, log.config)


@guarded
def stop_writing_ahead(log: LogState) -> None:
    """The batch will not be appended."""
    drop_unfinished(log)
