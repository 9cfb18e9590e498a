"""Large batches: their bytes are written behind the end of the log in pieces, before they are appended.

One write of ten megabytes takes some 20 ms, mostly for the page cache. So whoever has such a batch writes it
ahead, a piece at a time, and lets others have their turn in between. `append` writes the last piece, after
its checks: a batch that is repeated, or refused, is never whole in the file, where a restart would take it
for a part of the log. Until then reads end where the log ends, and a crash leaves a torn batch. Anything else
that changes the active segment meanwhile cuts the pieces off, and the batch begins again.
"""

from headrace.records.batch import (
    ATTRIBUTES_FIELD,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_FIELD,
    assign,
    check_produced,
)
from headrace.storage.appending import must_roll, prepare_active
from headrace.storage.batch_validation import check_timestamp_type
from headrace.storage.errors import is_transient
from headrace.storage.log_state import LogState, guarded
from headrace.storage.rolling import roll_active
from headrace.storage.unfinished import Unfinished, cut_back, drop_unfinished

# About a millisecond of writing, where 10 MB take 18 ms.
PIECE_BYTES = 512 * 1024


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
        header = check_produced(batch, log.config.max_message_bytes)
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
        unfinished = log.unfinished = Unfinished(batch)
    if len(batch) - unfinished.written <= piece_bytes:
        return True
    file = log.active.log
    assert file is not None
    try:
        file.append(batch[unfinished.written : unfinished.written + piece_bytes])
    except OSError as error:
        log.unfinished = None
        if is_transient(error):
            cut_back(log, file, log.active.size)
        raise
    unfinished.written += piece_bytes
    return False


@guarded
def stop_writing_ahead(log: LogState) -> None:
    """The batch will not be appended."""
    drop_unfinished(log)
