"""Producers of a log: loaded when they are needed, forgotten when they have been silent for too long."""

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
