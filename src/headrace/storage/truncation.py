"""Truncating a log: a follower removes what its leader does not have."""

from headrace.storage.log_state import LogState, guarded


@guarded
def truncate_to(log: LogState, offset: int) -> None:
    """Cut the log so that it ends at `offset`, or at the beginning of the batch that holds it."""
    if offset >= log.log_end_offset:
        return
    log.generation += 1
    if offset < log.flushed_offset:
        # the lower recovery point comes first: nothing written from here on was flushed
        log.flushed_offset = max(offset, 0)
        log.first_dirty_offset = min(log.first_dirty_offset, log.flushed_offset)
        if log.lower_recovery_point is not None:
            log.lower_recovery_point()
    log.tail.clear()
    log.segments.forget_readers()
    placed = log.segments.place(offset)
    if offset <= log.segments.items[0].base_offset or placed is None:
        log.remove_segments(log.segments.items)
        log.start_empty(offset, log.opened_ms)
    else:
        segment, position, _ = placed
        end = min(segment.base_offset_at(position), offset)
        kept = log.segments.number_of(segment.base_offset) + 1
        log.remove_segments(log.segments.items[kept:])
        segment.truncate(position, end)
        log.active = segment
        log.log_end_offset = end
        log.partition_producers.truncate(end)
    log.epochs.read().truncate_end(log.log_end_offset)
    log.write_epochs()
    log.stamped_epoch = -2
    log.flushed_offset = min(log.flushed_offset, log.log_end_offset)
    log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
    log.is_dirty = log.is_renamed = True
