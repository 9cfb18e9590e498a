"""Producers of a log, and up to where their open transactions let it be read."""

from headrace.storage.log_state import LogState, guarded
from headrace.storage.producer_state import ProducerEntry, ProducerState


def producer_state(log: LogState, wall_ms: int | None = None) -> ProducerState:
    state = log.partition_producers.state
    return state or _load(log, log.opened_ms if wall_ms is None else wall_ms)


@guarded
def _load(log: LogState, wall_ms: int) -> ProducerState:
    return log.partition_producers.load(wall_ms)


@guarded
def producers(log: LogState) -> list[ProducerEntry]:
    return list(producer_state(log))


@guarded
def expire_producers(log: LogState, wall_ms: int) -> int:
    """Forget producers that have been silent for too long; how many. Asks nothing of a log that has
    none loaded.
    """
    state = log.partition_producers.state
    return 0 if state is None else state.expire(wall_ms, log.producer_id_expiration_ms)


@guarded
def first_unstable_offset(log: LogState) -> int | None:
    """Where the oldest open transaction begins; None without one."""
    first = producer_state(log).first_open_offset
    return None if first is None else max(first, log.log_start_offset)


@guarded
def last_stable_offset(log: LogState, high_watermark: int) -> int:
    return max(producer_state(log).last_stable_offset(high_watermark), log.log_start_offset)
