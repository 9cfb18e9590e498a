"""A classic member's heartbeats: it says that it lives, and hears what the group thinks of it.

A session that passes without an answer has the coordinator looked for anew: it may be another's by now.
"""

from collections.abc import Callable

from headrace.base.dice import Dice
from headrace.base.time import Instant
from headrace.client.cluster import Address
from headrace.client.coordinator import NOT_THE_ONE, Coordinator
from headrace.client.errors import ClientError
from headrace.client.mailbox import Answer, Mailbox
from headrace.client.membership.classic_requests import Generation, heartbeat_request
from headrace.client.membership.pulse import Pulse
from headrace.client.membership.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatResponse


class Heartbeat:
    def __init__(
        self,
        settings: GroupSettings,
        mailbox: Mailbox,
        coordinator: Coordinator,
        dice: Dice,
        *,
        answered: Callable[[Generation, int], None],
    ) -> None:
        """`answered` hears in whose name a heartbeat was sent, and the error code of its answer."""
        self._settings = settings
        self._mailbox = mailbox
        self._coordinator = coordinator
        self._answered = answered
        self._pulse = Pulse(
            dice, interval_s=settings.heartbeat_interval_s, session_s=settings.session_timeout_s
        )

    def start(self, now: Instant) -> None:
        """The group has just heard of us in another way."""
        self._pulse.start(now)

    def deadline(self) -> Instant:
        return min(self._pulse.beat_at(), self._pulse.session_until)

    def advance(self, now: Instant, generation: Generation) -> None:
        to = self._coordinator.address()
        if to is None:
            return
        if now >= self._pulse.session_until:
            self._coordinator.failed(to)
            self._coordinator.address()
            self._pulse.start(now)
        elif now >= self._pulse.beat_at():
            self._send(now, to, generation)

    def _send(self, now: Instant, to: Address, generation: Generation) -> None:
        self._pulse.sent(now)

        def then(now: Instant, answer: Answer) -> None:
            self._heard(now, to, generation, answer)

        timeout_s = min(self._settings.request_timeout_s, self._settings.session_timeout_s)
        self._mailbox.post(to, heartbeat_request(self._settings, generation), then, timeout_s=timeout_s)

    def _heard(self, now: Instant, to: Address, generation: Generation, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self._pulse.missed(now)
            self._coordinator.failed(to)
            return
        assert isinstance(answer, HeartbeatResponse)
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._pulse.heard(now)
        else:
            self._pulse.missed(now)
            if code in NOT_THE_ONE:
                self._coordinator.failed(to)
        self._answered(generation, code)
