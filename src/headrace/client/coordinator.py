"""Lookup of the coordinator of a group, a transactional id or a sink.

    unknown --somebody wants it--> asked --answered--> known --it failed us--> unknown
                                         --failed--> unknown, asked again after a while

Listeners get an error for which a retry does not help (not authorized).
"""

from collections.abc import Callable
from enum import IntEnum

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.backoff import backoff
from headrace.client.cluster import Address
from headrace.client.errors import ClientError, KafkaError
from headrace.client.network.connection import ByVersion
from headrace.client.session import Answer, RequestQueue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

MANY_KEYS_SINCE = 4  # before, a FindCoordinator request asks for one key

# A broker that answers so is not the coordinator, or not able to be: it is looked up again.
NOT_THE_ONE = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT}
)

Listener = Callable[[Instant, ClientError], None]


class CoordinatorKind(IntEnum):
    """What is looked after, by Kafka's number of it."""

    GROUP = 0
    TRANSACTION = 1
    SINK = 100  # Headrace's own

    @property
    def noun(self) -> str:
        return "transactional id" if self is CoordinatorKind.TRANSACTION else self.name.lower()


class Coordinator:
    def __init__(
        self,
        key: str,
        request_queue: RequestQueue,
        rng: Randomness,
        *,
        request_timeout_s: float,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
    ) -> None:
        self.listeners: list[Listener] = []
        self._key = key
        self._kind = kind
        self._request_queue = request_queue
        self._rng = rng
        self._timeout_s = request_timeout_s
        self._address: Address | None = None
        self._is_wanted = False
        self._is_asked = False
        self._ask_at = Instant(0.0)
        self._failures = 0

    def address(self) -> Address | None:
        """Where requests to the coordinator go; None: not known, and looked for from now on."""
        if self._address is None:
            self._is_wanted = True
        return self._address

    @property
    def is_known(self) -> bool:
        return self._address is not None

    @property
    def is_sought(self) -> bool:
        """Whether requests wait for the coordinator."""
        return self._address is None and self._is_wanted

    def failed(self, address: Address) -> None:
        """This one did not answer, or says that it is not the one."""
        if self._address == address:
            self._address = None

    def advance(self, now: Instant) -> None:
        if not self.is_sought or self._is_asked or now < self._ask_at:
            return
        self._is_asked = True

        def make(version: int) -> FindCoordinatorRequest:
            if version >= MANY_KEYS_SINCE:
                return FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self._key])
            return FindCoordinatorRequest(key=self._key, key_type=self._kind)

        question = ByVersion(FindCoordinatorRequest, make)
        self._request_queue.post(None, question, self._answered, timeout_s=self._timeout_s)

    def _answered(self, now: Instant, answer: Answer) -> None:
        self._is_asked = False
        error: ClientError
        if isinstance(answer, ClientError):
            error = answer
        else:
            assert isinstance(answer, FindCoordinatorResponse)
            told = answer.coordinators[0] if answer.coordinators else answer
            if not told.error_code:
                self._address = Address(told.host, told.port)
                self._is_wanted = False
                self._failures = 0
                # a coordinator that fails at once is not looked for in a tight loop
                self._ask_at = Instant(now + backoff(0, self._rng))
                return
            subject = f"{self._kind.noun} {self._key!r}"
            error = KafkaError(told.error_code, told.error_message, subject=subject)
        self._ask_at = Instant(now + backoff(self._failures, self._rng))
        self._failures += 1
        if not error.is_retriable:
            self._is_wanted = False
            for listener in self.listeners:
                listener(now, error)

    def deadline(self) -> Instant:
        return self._ask_at if self.is_sought and not self._is_asked else NEVER
