"""One attempt to write one task's part of a batch of a sink.

    ASKING --brokers have sinks--> JOINING --> WRITING --refused, fenced, a record was lost--> FAILED
       '--they have none--> UNSUPPORTED  '--the batch was committed before--> COMMITTED

The coordinator gives the attempt a producer of its own and keeps the batch open as long as one of its
attempts is heard of: while it writes, an attempt joins again and again. It never ends its transaction. Who
made all attempts of the batch names those that count, in one commit (`admin.transactions.commit_sink`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, TopicPartition
from headrace.client.coordinator import Coordinator, CoordinatorKind
from headrace.client.errors import ClientError, KafkaError, OutsideTransaction, UnsupportedByBroker
from headrace.client.producer.idempotence import Sequences
from headrace.client.producer.transaction import (
    Severity,
    TransactionFactory,
    features_request,
    severity_of_answer,
)
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import ApiVersionsResponse
from headrace.protocol.messages.join_sink import JoinSinkRequest, JoinSinkResponse

# An attempt is heard of so often within the time after which its batch is given up.
JOINS_PER_TIMEOUT = 4


class AttemptId(NamedTuple):
    """The identity of an attempt: sink, query, run, batch, task and attempt; Spark pickles it into its
    messages.
    """

    app_id: str
    query_id: str
    run_id: str
    batch_id: int
    task: int
    attempt: int
    is_passing: bool = False  # the sink has no other batch, ever


class State(Enum):
    ASKING = auto()
    JOINING = auto()
    WRITING = auto()
    COMMITTED = auto()
    UNSUPPORTED = auto()
    FAILED = auto()


class Attempt:
    """A `Transaction`, as sending sees it. Invariant: at most one request is under way (`_is_asked`).

    It begins as a `TransactionSession` does and has no other code in common with it: the states are others,
    and nobody calls commit or abort.
    """

    is_ending = False
    produce_version_max: int | None = None  # partitions join by being written to, in the newest versions only

    def __init__(
        self,
        attempt_id: AttemptId,
        settings: SendingSettings,
        sequences: Sequences,
        request_queue: RequestQueue,
        rng: Randomness,
    ) -> None:
        self.attempt_id = attempt_id
        self.state = State.ASKING
        self.error: ClientError | None = None
        self.when_moved: Callable[[], object] = lambda: None
        self._settings = settings
        self._sequences = sequences
        self._request_queue = request_queue
        self._rng = rng
        self._coordinator = Coordinator(
            attempt_id.app_id,
            request_queue,
            rng,
            request_timeout_s=settings.request_timeout_s,
            kind=CoordinatorKind.SINK,
        )
        self._coordinator.listeners.append(lambda _, error: self._fail(error))
        self._is_asked = False
        self._ask_at = Instant(0.0)
        self._failures = 0

    @property
    def producer(self) -> tuple[int, int]:
        """By which the commit names the attempt."""
        return self._sequences.producer

    @property
    def has_joined(self) -> bool:
        """Whether it is known what becomes of it."""
        return self.state not in (State.ASKING, State.JOINING)

    # What sending asks

    @property
    def is_open(self) -> bool:
        return self.state is State.WRITING

    @property
    def will_abort(self) -> bool:
        return self.state is State.FAILED

    is_fatal = will_abort  # who ends it does not ask what became of single records

    def check_may_send(self) -> None:
        if self.error is not None:
            raise self.error
        if self.state is not State.WRITING:
            raise OutsideTransaction("the attempt has not joined its sink, or the batch was committed before")

    def may_send(self, at: TopicPartition) -> bool:
        return self.state is State.WRITING

    def batch_failed(self, error: ClientError) -> None:
        self._fail(error)

    # What the shell drives

    def advance(self, now: Instant, *, is_drained: bool) -> None:
        if not self._is_asked and now >= self._ask_at:
            if self.state is State.ASKING:
                self._ask_features()
            elif self.state in (State.JOINING, State.WRITING):
                self._join()
        self._coordinator.advance(now)

    def deadline(self) -> Instant:
        is_waiting = self.state in (State.ASKING, State.JOINING, State.WRITING) and not self._is_asked
        # one that waits for its coordinator has nothing to say before that is found
        own = self._ask_at if is_waiting and not self._coordinator.is_sought else NEVER
        return min(own, self._coordinator.deadline())

    def _ask_features(self) -> None:
        self._is_asked = True
        self._request_queue.post(
            None, features_request(), self._told_features, timeout_s=self._settings.request_timeout_s
        )

    def _told_features(self, now: Instant, answer: Answer) -> None:
        self._is_asked = False
        if self.state is not State.ASKING:
            return
        if isinstance(answer, ClientError):
            self._set_back(now, answer)
            return
        assert isinstance(answer, ApiVersionsResponse)
        if any(api.api_key == ApiKey.JOIN_SINK for api in answer.api_keys):
            self._move(State.JOINING)
        else:
            self.error = UnsupportedByBroker(ApiKey.JOIN_SINK.name)
            self._move(State.UNSUPPORTED)

    def _join(self) -> None:
        address = self._coordinator.address()
        if address is None:
            return
        self._is_asked = True
        attempt_id = self.attempt_id
        question = JoinSinkRequest(
            app_id=attempt_id.app_id,
            query_id=attempt_id.query_id,
            run_id=attempt_id.run_id,
            batch_id=attempt_id.batch_id,
            task=attempt_id.task,
            attempt=attempt_id.attempt,
            timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=self._sequences.producer_id,
            producer_epoch=self._sequences.producer_epoch,
            is_passing=attempt_id.is_passing,
        )

        def then(now: Instant, answer: Answer) -> None:
            self._is_asked = False
            self._told_place(now, address, answer)

        self._request_queue.post(address, question, then, timeout_s=self._settings.request_timeout_s)

    def _told_place(self, now: Instant, address: Address, answer: Answer) -> None:
        if self.state is State.FAILED:
            return
        error: ClientError
        if isinstance(answer, ClientError):
            error = answer
        else:
            assert isinstance(answer, JoinSinkResponse)
            if not answer.error_code:
                self._joined(now, answer)
                return
            subject = f"sink {self.attempt_id.app_id!r}"
            error = KafkaError(answer.error_code, answer.error_message, subject=subject)
        if severity_of_answer(error) is Severity.ELSEWHERE:
            self._coordinator.failed(address)
        self._set_back(now, error)

    def _joined(self, now: Instant, answer: JoinSinkResponse) -> None:
        self._failures = 0
        if answer.producer_id < 0:
            if self.state is State.JOINING:
                self._move(State.COMMITTED)
            else:
                said = f"batch {self.attempt_id.batch_id} was committed without this attempt"
                self._fail(
                    KafkaError(ErrorCode.PRODUCER_FENCED, said, subject=f"sink {self.attempt_id.app_id!r}")
                )
            return
        if self.state is State.JOINING:
            self._sequences.identify(answer.producer_id, answer.producer_epoch)
            self._move(State.WRITING)
        self._ask_at = Instant(now + self._settings.transaction_timeout_ms / 1000 / JOINS_PER_TIMEOUT)

    def _set_back(self, now: Instant, error: ClientError) -> None:
        if severity_of_answer(error) not in (Severity.PASSING, Severity.ELSEWHERE):
            self._fail(error)
            return
        self._ask_at = Instant(now + self._settings.backoff(self._failures, self._rng))
        self._failures += 1

    def _fail(self, error: ClientError) -> None:
        if self.state is State.FAILED:
            return
        self.error = error
        self._move(State.FAILED)

    def _move(self, state: State) -> None:
        self.state = state
        self.when_moved()


def attempt_factory(attempt_id: AttemptId) -> TransactionFactory:
    """How a producer's records become part of an attempt."""

    def transact(
        settings: SendingSettings, sequences: Sequences, request_queue: RequestQueue, rng: Randomness
    ) -> Attempt:
        return Attempt(attempt_id, settings, sequences, request_queue, rng)

    return transact
