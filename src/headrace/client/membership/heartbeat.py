"""Liveness of a group member: heartbeats to the broker, and warnings of max.poll.interval.ms.

Both protocols have the timer; the requests here are those of a classic group. A session that passes without
an answer makes the member look for its coordinator again: it may have moved. `PollInterval` warns of an
application that does not poll often enough for its group.
"""

from collections.abc import Callable

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.backoff import backoff
from headrace.client.cluster import Address
from headrace.client.coordinator import NOT_THE_ONE, Coordinator
from headrace.client.errors import ClientError
from headrace.client.membership.classic_protocol import Generation, heartbeat_request
from headrace.client.session import Answer, Log, RequestQueue
from headrace.client.settings.consumer import ConsumerSettings, GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatResponse


class HeartbeatTimer:
    """One beat is under way at a time; an interval begins when one is sent, a session when one is heard."""

    def __init__(self, rng: Randomness, *, interval_s: float, session_s: float) -> None:
        self.interval_s = interval_s
        self.session_s = session_s
        self.is_under_way = False
        self.session_until = NEVER
        self._beat_at = Instant(0.0)
        self._retry_at = Instant(0.0)  # not before, whatever the hurry: the last one failed
        self._failures = 0
        self._rng = rng

    def start(self, now: Instant) -> None:
        """Starts the timer; another request has just shown the broker that the member is alive."""
        self._beat_at = Instant(now + self.interval_s)
        self._settled(now)

    def beat_at(self) -> Instant:
        return NEVER if self.is_under_way else max(self._beat_at, self._retry_at)

    def sent(self, now: Instant) -> None:
        self.is_under_way = True
        self._beat_at = Instant(now + self.interval_s)

    def heard(self, now: Instant) -> None:
        self.is_under_way = False
        self._beat_at = min(
            self._beat_at, Instant(now + self.interval_s)
        )  # the answer may change the interval
        self._settled(now)

    def _settled(self, now: Instant) -> None:
        self.session_until = Instant(now + self.session_s)
        self._retry_at = Instant(0.0)
        self._failures = 0

    def missed(self, now: Instant) -> None:
        """No answer, or one that passes: the next beat comes sooner than the interval says."""
        self.is_under_way = False
        self._retry_at = Instant(now + min(self.interval_s, backoff(self._failures, self._rng)))
        self._beat_at = self._retry_at
        self._failures += 1

    def hurry(self) -> None:
        """Makes the next heartbeat due at once, or when a failed one is retried, because there is news to
        report.
        """
        self._beat_at = Instant(0.0)


class Heartbeat:
    def __init__(
        self,
        settings: GroupSettings,
        request_queue: RequestQueue,
        coordinator: Coordinator,
        rng: Randomness,
        *,
        answered: Callable[[Generation, int], None],
    ) -> None:
        """`answered` hears in whose name a heartbeat was sent, and the error code of its answer."""
        self._settings = settings
        self._request_queue = request_queue
        self._coordinator = coordinator
        self._answered = answered
        self._timer = HeartbeatTimer(
            rng, interval_s=settings.heartbeat_interval_s, session_s=settings.session_timeout_s
        )

    def start(self, now: Instant) -> None:
        """Starts heartbeats; another request has just shown the group that the member is alive."""
        self._timer.start(now)

    def deadline(self) -> Instant:
        return min(self._timer.beat_at(), self._timer.session_until)

    def advance(self, now: Instant, generation: Generation) -> None:
        to = self._coordinator.address()
        if to is None:
            return
        if now >= self._timer.session_until:
            self._coordinator.failed(to)
            self._coordinator.address()
            self._timer.start(now)
        elif now >= self._timer.beat_at():
            self._send(now, to, generation)

    def _send(self, now: Instant, to: Address, generation: Generation) -> None:
        self._timer.sent(now)

        def then(now: Instant, answer: Answer) -> None:
            self._heard(now, to, generation, answer)

        timeout_s = min(self._settings.request_timeout_s, self._settings.session_timeout_s)
        self._request_queue.post(to, heartbeat_request(self._settings, generation), then, timeout_s=timeout_s)

    def _heard(self, now: Instant, to: Address, generation: Generation, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self._timer.missed(now)
            self._coordinator.failed(to)
            return
        assert isinstance(answer, HeartbeatResponse)
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._timer.heard(now)
        else:
            self._timer.missed(now)
            if code in NOT_THE_ONE:
                self._coordinator.failed(to)
        self._answered(generation, code)


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
                "assigned the partitions to other members. Raise max.poll.interval.ms above the time that "
                "the work on one poll takes, or lower max.poll.records (%d).",
                now - self._seen_at,
                self._interval_s * 1000,
                self._max_poll_records,
            )
        self._seen_at = now
        self._has_warned = False
        self.pulse_at = Instant(now + PULSE_S)

    def watch(self, now: Instant, *, is_subscribed: bool) -> None:
        """Called in the background: warns once, in time, if the application does not poll at all."""
        if self._has_warned or not is_subscribed or self._seen_at is None:
            return
        if now - self._seen_at >= self._interval_s:
            self._has_warned = True
            self._log.warning(
                "poll was not called for max.poll.interval.ms (%d): this member leaves its group, and joins "
                "again with the next poll. If the application is only slow, raise max.poll.interval.ms, or "
                "lower max.poll.records (%d).",
                self._interval_s * 1000,
                self._max_poll_records,
            )
