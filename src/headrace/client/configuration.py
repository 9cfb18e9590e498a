"""Settings of a producer or a consumer, from what the user wrote: typed, checked, complete.

A key may be spelt as Kafka does (`linger.ms`) or as Python would (`linger_ms`). One that does not exist is
an error that names the key which was probably meant, since a misspelt setting that is silently ignored is
found in production. Values may be text, as in a file, or of their own type.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from headrace.client import setting_keys
from headrace.client.errors import InvalidInput
from headrace.client.producer.partitioner import STRATEGIES, Strategy
from headrace.client.producer.settings import SendingSettings
from headrace.machines.configs.definition import KEPT_DOC, ConfigKey, ConfigType, parse_table
from headrace.machines.configs.values import InvalidConfig, Value, closest, parse_value
from headrace.records.compression import CODEC_NAMES, Codec

NUMBER_BITS_MAX = 64  # of any setting; Python refuses to write a number of thousands of digits as text
IDEMPOTENT_IN_FLIGHT_MAX = 5  # what a broker remembers of a producer in a partition


class InvalidSetting(InvalidInput):
    """A key or a value that is not accepted."""


@lru_cache(maxsize=1)
def producer_keys() -> dict[str, ConfigKey]:
    return _keys(setting_keys.PRODUCER)


@lru_cache(maxsize=1)
def consumer_keys() -> dict[str, ConfigKey]:
    return _keys(setting_keys.CONSUMER)


@lru_cache(maxsize=1)
def admin_keys() -> dict[str, ConfigKey]:
    return _keys("")


def _keys(own: str) -> dict[str, ConfigKey]:
    keys = parse_table(setting_keys.KEPT, KEPT_DOC)
    keys |= parse_table(setting_keys.COMMON)
    keys |= parse_table(own)
    return dict(sorted(keys.items()))


def given_settings(
    config: str | Mapping[str, object] | None, more: Mapping[str, object]
) -> dict[str, object]:
    """What a client was made with: bootstrap.servers alone or a mapping, and keywords besides."""
    if isinstance(config, str):
        config = {"bootstrap.servers": config}
    return {**(config or {}), **more}


class Configuration(Mapping[str, Value]):
    """Every key with its value, by Kafka's names.

    >>> given = {"bootstrap.servers": "localhost:9092", "linger_ms": 20}
    >>> configuration = Configuration(producer_keys(), given)
    >>> configuration["linger.ms"], configuration["acks"]
    (20, 'all')
    """

    def __init__(self, known: dict[str, ConfigKey], given: Mapping[str, object]) -> None:
        self.given: set[str] = set()  # what the user said
        self._values: dict[str, Value] = {}
        self._objects: dict[str, object] = {}
        for spelling, value in given.items():
            key = known[canonical_name(known, spelling)]
            if key.name in self.given:
                raise InvalidSetting(f"{key.name} is given twice, once as {spelling}")
            self.given.add(key.name)
            if key.allowed == "object":
                self._objects[key.name] = value
            else:
                self._values[key.name] = _read(key, value)
        for name, key in known.items():
            if name not in self._values:
                if key.is_required:
                    raise InvalidSetting(f"{name} must be given")
                self._values[name] = parse_value(key, key.default)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def without_effect(self) -> list[str]:
        """What the user set and nobody reads: worth a warning, since it may have been meant seriously."""
        return sorted(self.given & parse_table(setting_keys.KEPT).keys())

    def number(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def seconds(self, name: str) -> float:
        """Of a key that ends in `.ms`."""
        return self.number(name) / 1000

    def optional_seconds(self, name: str) -> float | None:
        """The same, of one where -1 means none."""
        return None if self.number(name) < 0 else self.seconds(name)

    def flag(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool)
        return value

    def text(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str)
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._values[name] is None else self.text(name)

    def given_object(self, name: str) -> object | None:
        """Of a key whose value is a thing of Python; None if it was not given."""
        return self._objects.get(name)

    def items_of(self, name: str) -> list[str]:
        value = self._values[name]
        assert isinstance(value, list)
        return value


def canonical_name(known: dict[str, ConfigKey], spelling: str) -> str:
    """Kafka's name for a setting that may be spelt as Python or as other clients do."""
    dotted = spelling.replace("_", ".")
    for name in (dotted, setting_keys.OTHER_NAMES.get(dotted, "")):
        if name in known:
            return name
    raise _unknown(spelling, known)


def _unknown(spelling: str, known: dict[str, ConfigKey]) -> InvalidSetting:
    suggestion = closest(spelling, known)
    if suggestion is not None and "_" in spelling:
        suggestion = suggestion.replace(".", "_")
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    return InvalidSetting(f"there is no setting {spelling}{hint}")


def _read(key: ConfigKey, value: object) -> Value:
    """From text or from a value of the key's own type."""
    match value:
        case None:
            text = None
        case bool():
            text = "true" if value else "false"
        case str():
            text = value
        case int() if value.bit_length() > NUMBER_BITS_MAX:
            raise InvalidSetting(f"{key.name} cannot be a number of {value.bit_length()} bits")
        case int() | float():
            text = str(value)
        case list() | tuple() if key.type is ConfigType.LIST:
            text = ",".join(str(part) for part in value)
        case _:
            raise InvalidSetting(f"{key.name} cannot be a {type(value).__name__}")
    if text is None and key.default is not None:
        raise InvalidSetting(f"{key.name} cannot be None")
    try:
        return parse_value(key, text)
    except InvalidConfig as error:
        raise InvalidSetting(str(error)) from error


def strategy(configuration: Configuration) -> Strategy:
    """How partitions are chosen; of a function the caller knows itself."""
    if configuration.flag("partitioner.ignore.keys"):
        return Strategy.STICKY
    return STRATEGIES[configuration.text("partitioner")]


def sending_settings(configuration: Configuration) -> SendingSettings:
    """A producer's settings; those that contradict each other are told apart by what the user said."""
    acks = -1 if configuration.text("acks") == "all" else int(configuration.text("acks"))
    transactional_id = configuration.optional_text("transactional.id")
    codec = CODEC_NAMES[configuration.text("compression.type")]
    return SendingSettings(
        acks=acks,
        codec=codec,
        compression_level=_level(configuration, codec),
        linger_s=configuration.seconds("linger.ms"),
        delivery_s=_delivery_s(configuration),
        request_timeout_s=configuration.seconds("request.timeout.ms"),
        retries=configuration.number("retries"),
        retry_first_s=configuration.seconds("retry.backoff.ms"),
        retry_last_s=configuration.seconds("retry.backoff.max.ms"),
        in_flight_max=configuration.number("max.in.flight.requests.per.connection"),
        request_bytes_max=configuration.number("max.request.size"),
        metadata_age_s=configuration.seconds("metadata.max.age.ms"),
        unreachable_s=configuration.optional_seconds("headrace.unreachable.timeout.ms"),
        is_idempotent=_is_idempotent(configuration, acks, transactional_id),
        transactional_id=transactional_id,
        transaction_timeout_ms=configuration.number("transaction.timeout.ms"),
    )


def _is_idempotent(configuration: Configuration, acks: int, transactional_id: str | None) -> bool:
    """True unless something else that the user said forbids it; who asks for both is told so."""
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
    if transactional_id is not None and not is_idempotent:
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
    """Of the codec, if the user chose one."""
    name = f"compression.{codec.name.lower()}.level"
    return configuration.number(name) if name in configuration.given else None
