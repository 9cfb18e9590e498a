"""How an idempotent producer without transactions comes by its id and its epochs.

unknown --asked--> known --a partition has a gap--> the next epoch, by our own counting (KIP-360)
   ^                                                   |
   '-------------------- epochs used up ---------------'
"""

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.errors import ClientError, KafkaError
from headrace.client.mailbox import Answer, Mailbox
from headrace.client.producer.sequences import Sequences
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

EPOCH_MAX = (1 << 15) - 1
NO_TRANSACTION_TIMEOUT_MS = (1 << 31) - 1


class Identity:
    def __init__(self, sequences: Sequences, mailbox: Mailbox, settings: SendingSettings, dice: Dice) -> None:
        self.error: ClientError | None = None  # the broker will never give us an id
        self._sequences = sequences
        self._mailbox = mailbox
        self._settings = settings
        self._dice = dice
        self._is_asked = False
        self._ask_at = Instant(0.0)
        self._failures = 0

    def advance(self, now: Instant) -> None:
        sequences = self._sequences
        if sequences.is_identified and sequences.wants_restart:
            if sequences.producer_epoch < EPOCH_MAX:
                sequences.identify(sequences.producer_id, sequences.producer_epoch + 1)
            else:
                sequences.producer_id = -1
        if sequences.is_identified or self._is_asked or self.error is not None or now < self._ask_at:
            return
        self._is_asked = True
        question = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
        )
        self._mailbox.post(None, question, self._answered, timeout_s=self._settings.request_timeout_s)

    def _answered(self, now: Instant, answer: Answer) -> None:
        self._is_asked = False
        error: ClientError
        if isinstance(answer, ClientError):
            error = answer
        else:
            assert isinstance(answer, InitProducerIdResponse)
            if not answer.error_code:
                self._failures = 0
                self._sequences.identify(answer.producer_id, answer.producer_epoch)
                return
            error = KafkaError(answer.error_code, subject="a producer id")
        if not error.is_retriable:
            self.error = error
            return
        self._ask_at = Instant(now + self._settings.backoff(self._failures, self._dice))
        self._failures += 1

    def deadline(self) -> Instant:
        is_waiting = not (self._sequences.is_identified or self._is_asked or self.error is not None)
        return self._ask_at if is_waiting else NEVER
