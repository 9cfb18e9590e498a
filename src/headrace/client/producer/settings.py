"""Settings of a producer's machines; the defaults are those of Kafka's producer."""

from dataclasses import dataclass

from headrace.base.dice import Dice
from headrace.base.time import Duration
from headrace.client.backoff import backoff

RETRIES_MAX = (1 << 31) - 1


@dataclass(slots=True, frozen=True)
class SendingSettings:
    acks: int = -1
    codec: int = 0
    compression_level: int | None = None
    linger_s: float = 0.005
    delivery_s: float = 120.0
    request_timeout_s: float = 30.0
    retries: int = RETRIES_MAX
    retry_first_s: float = 0.1
    retry_last_s: float = 1.0
    in_flight_max: int = 5  # requests per broker
    request_bytes_max: int = 1_048_576
    metadata_age_s: float = 300.0
    is_idempotent: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    unreachable_s: float | None = None  # of an outage, before calls that wait raise; None: never

    def backoff(self, attempt: int, dice: Dice) -> Duration:
        return backoff(attempt, dice, first_s=self.retry_first_s, last_s=self.retry_last_s)
