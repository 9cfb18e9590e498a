"""Settings of a producer; the defaults are Kafka's."""

from dataclasses import dataclass

from headrace.base.randomness import Randomness
from headrace.base.time import Duration
from headrace.client.backoff import backoff
from headrace.client.producer.partitioner import STRATEGIES, Strategy
from headrace.client.settings.configuration import (
    Configuration,
    InvalidSetting,
    optional_seconds,
    seconds,
    typed_values,
    value,
)
from headrace.records.compression import CODEC_NAMES, Codec

IDEMPOTENT_IN_FLIGHT_MAX = 5  # batches of a producer and partition that a broker remembers


@dataclass(slots=True, frozen=True)
class SendingSettings:
    acks: int = -1  # -1: all replicas in sync
    codec: int = Codec.NONE
    compression_level: int | None = None  # None: the codec's default
    linger_s: float = seconds("linger.ms")
    delivery_s: float = seconds("delivery.timeout.ms")
    request_timeout_s: float = seconds("request.timeout.ms")
    retries: int = value("retries")
    retry_first_s: float = seconds("retry.backoff.ms")
    retry_last_s: float = seconds("retry.backoff.max.ms")
    in_flight_max: int = value("max.in.flight.requests.per.connection")  # requests per broker
    request_bytes_max: int = value("max.request.size")
    metadata_age_s: float = seconds("metadata.max.age.ms")
    is_idempotent: bool = value("enable.idempotence")
    transactional_id: str | None = value("transactional.id")
    transaction_timeout_ms: int = value("transaction.timeout.ms")
    unreachable_s: float | None = optional_seconds("headrace.unreachable.timeout.ms")

    def backoff(self, attempt: int, rng: Randomness) -> Duration:
        return backoff(attempt, rng, first_s=self.retry_first_s, last_s=self.retry_last_s)


def strategy(configuration: Configuration) -> Strategy:
    """How partitions are chosen, unless the application gave a function."""
    if configuration.flag("partitioner.ignore.keys"):
        return Strategy.STICKY
    return STRATEGIES[configuration.text("partitioner")]


def sending_settings(configuration: Configuration) -> SendingSettings:
    """Settings that contradict each other are an error if the user gave both; otherwise defaults give way."""
    acks = -1 if configuration.text("acks") == "all" else int(configuration.text("acks"))
    codec = CODEC_NAMES[configuration.text("compression.type")]
    return typed_values(
        SendingSettings,
        configuration,
        acks=acks,
        codec=codec,
        compression_level=_level(configuration, codec),
        delivery_s=_delivery_s(configuration),
        is_idempotent=_is_idempotent(configuration, acks),
    )


def _is_idempotent(configuration: Configuration, acks: int) -> bool:
    """True unless another setting of the user forbids it; to ask for both is an error."""
    wants = configuration.flag("enable.idempotence")
    is_explicit = wants and "enable.idempotence" in configuration.given
    obstacle = None
    if acks != -1:
        obstacle = "acks=all"
    elif configuration.number("retries") == 0:
        obstacle = "retries of more than 0"
    if wants and configuration.number("max.in.flight.requests.per.connection") > IDEMPOTENT_IN_FLIGHT_MAX:
        # Kafka refuses this since 4.0 even where idempotence is only the default
        obstacle = f"max.in.flight.requests.per.connection of at most {IDEMPOTENT_IN_FLIGHT_MAX}"
        is_explicit = True
    if wants and obstacle is not None and is_explicit:
        raise InvalidSetting(f"enable.idempotence needs {obstacle}")
    is_idempotent = wants and obstacle is None
    if configuration.optional_text("transactional.id") is not None and not is_idempotent:
        raise InvalidSetting(f"transactional.id needs {obstacle or 'enable.idempotence'}")
    return is_idempotent


def _delivery_s(configuration: Configuration) -> float:
    delivery_s = configuration.seconds("delivery.timeout.ms")
    least_s = configuration.seconds("linger.ms") + configuration.seconds("request.timeout.ms")
    if delivery_s < least_s:
        if "delivery.timeout.ms" in configuration.given:
            raise InvalidSetting("delivery.timeout.ms must be at least linger.ms + request.timeout.ms")
        return least_s
    return delivery_s


def _level(configuration: Configuration, codec: Codec) -> int | None:
    """The level of the codec, if the user chose one."""
    name = f"compression.{codec.name.lower()}.level"
    return configuration.number(name) if name in configuration.given else None
