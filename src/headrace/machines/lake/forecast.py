"""When a topic may delete records that its table does not have yet.

A record is deleted with its segment, when the newest record of the segment is older than `retention.ms`. So a
record's own age tells the earliest moment. If retention waits for the table's group, that is the moment when
it no longer does. What `retention.bytes` deletes depends on records that are not written yet, and is not
forecast.
"""


def time_left_ms(
    first_missing_ms: int | None,
    *,
    retention_ms: int,
    cleanup_policy: str,
    now_ms: int,
    waits_max_ms: int | None = None,
) -> int | None:
    """Return how long the first record that the table lacks is safe; None if its age does not endanger it.

    `first_missing_ms` is that record's timestamp; None if the table lacks nothing, or the record has none.
    `waits_max_ms` is the age up to which retention waits for the table, -1 without a limit; None if it does
    not wait.
    """
    if first_missing_ms is None or retention_ms < 0 or "delete" not in cleanup_policy:
        return None
    if waits_max_ms is not None:
        if waits_max_ms < 0:
            return None
        retention_ms = max(retention_ms, waits_max_ms)
    return max(0, first_missing_ms + retention_ms - now_ms)


def time_left_text(left_ms: int) -> str:
    """11_520_000 → 3 h 12 m"""
    minutes = left_ms // 60_000
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} m" if hours else f"{minutes} m"
