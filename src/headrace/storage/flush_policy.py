"""Flush policy: when flush.messages and flush.ms ask for a flush of a log."""

from headrace.base.time import Instant, Now
from headrace.storage.config import INT64_MAX, LogConfig


class FlushPolicy:
    """Time counts from when unflushed data was first noticed."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: Instant | None = None

    def reset(self) -> None:
        self._since = None

    def due_at(self, config: LogConfig, unflushed_messages: int, now: Now) -> Instant | None:
        """None: nothing to flush, or no setting asks for it."""
        if not unflushed_messages:
            return None
        if unflushed_messages >= config.flush_messages:
            return now.mono
        if config.flush_ms == INT64_MAX:
            return None
        if self._since is None:
            self._since = now.mono
        return Instant(self._since + config.flush_ms / 1000)
