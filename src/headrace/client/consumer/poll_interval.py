"""max.poll.interval.ms: warnings for an application that does not poll often enough for its group."""

from headrace.base.time import NEVER, Instant
from headrace.client.session import Log
from headrace.client.settings.consumer import ConsumerSettings

PULSE_S = 1.0  # how often an application that waits or iterates says that it is not stuck


class PollInterval:
    """`pulse_at` is when the group is to hear of the application again."""

    def __init__(self, settings: ConsumerSettings, log: Log) -> None:
        self._log = log
        self.pulse_at = NEVER
        self._max_poll_records = settings.max_poll_records
        self._interval_s = float("inf") if settings.group is None else settings.group.max_poll_interval_s
        self._seen_at: Instant | None = None
        self._has_warned = False

    def shown(self, now: Instant, *, is_subscribed: bool) -> None:
        """The application asks for messages."""
        if is_subscribed and self._seen_at is not None and now - self._seen_at > self._interval_s:
            self._log.warning(
                "%.1f s passed between two polls, more than max.poll.interval.ms (%d) allows: the group has "
                "given the partitions to others. Set max.poll.interval.ms to more than the work on one poll "
                "may take, or max.poll.records (%d) lower.",
                now - self._seen_at,
                self._interval_s * 1000,
                self._max_poll_records,
            )
        self._seen_at = now
        self._has_warned = False
        self.pulse_at = Instant(now + PULSE_S)

    def watch(self, now: Instant, *, is_subscribed: bool) -> None:
        """From the background: whoever does not poll at all is told in time, once."""
        if self._has_warned or not is_subscribed or self._seen_at is None:
            return
        if now - self._seen_at >= self._interval_s:
            self._has_warned = True
            self._log.warning(
                "poll was not called for max.poll.interval.ms (%d): this member leaves its group, and joins "
                "again with the next poll. If the application is only slow, raise max.poll.interval.ms or "
                "lower max.poll.records (%d).",
                self._interval_s * 1000,
                self._max_poll_records,
            )
