"""The options of `format("headrace")`: names and defaults are those of Spark's own Kafka connector.

Where it differs, on purpose: only committed records are read unless `kafka.isolation.level` says otherwise;
a misspelt option is an error; `load("topic")` is short for `subscribe`. What that connector does not have:
maxBytesPerTrigger, maxBytesPerPartition, keyFormat, valueFormat and the options of those formats.
fetchOffset.* and partition.metadata.cache.ttl.ms are taken and have no effect: this client tries again on its
own, and asks for metadata when it needs some.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from headrace.client.cluster import TopicPartition
from headrace.client.configuration import Configuration, InvalidSetting, admin_keys, consumer_keys
from headrace.spark import offsets
from headrace.spark.errors import InvalidOption
from headrace.spark.offsets import EARLIEST, LATEST, Offsets

KAFKA = "kafka."
SERVERS = "HEADRACE_BOOTSTRAP"  # of the environment: the brokers of queries that name none
GROUP_ID_PREFIX = "spark-headrace-source"
POLL_TIMEOUT_MS = 120_000  # as spark.network.timeout, which the JVM's connector takes
TRIGGER_DELAY_MAX = "15m"

_NAMES = """
    path subscribe subscribePattern assign startingOffsets startingTimestamp startingOffsetsByTimestamp
    startingOffsetsByTimestampStrategy endingOffsets endingTimestamp endingOffsetsByTimestamp failOnDataLoss
    kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger
    minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix includeHeaders
    partition.metadata.cache.ttl.ms maxBytesPerTrigger maxBytesPerPartition keyFormat valueFormat
"""
# Of formats: see headrace.spark.formats.
_OF_FORMATS = """
    schema.registry.url schema.registry.user schema.registry.password keySchema valueSchema keySubject
    valueSubject keyMessage valueMessage mode deadLetterTopic
"""
NAMES = tuple((_NAMES + _OF_FORMATS).split())
_KNOWN = {name.lower(): name for name in NAMES}


# What a task decides itself, and what to use instead.
_TAKEN = {
    "auto.offset.reset": "startingOffsets",
    "enable.auto.commit": "nothing: progress is kept in the checkpoint and shown as that of kafka.group.id",
    "key.deserializer": "keyFormat",
    "value.deserializer": "valueFormat",
}


@dataclass(slots=True, frozen=True)
class At:
    """Where to begin or to end: everywhere alike, or partition by partition; offsets or times."""

    everywhere: int | None = None  # EARLIEST or LATEST, or a time in ms
    each: Offsets | None = None  # offsets, or times in ms
    is_time: bool = False
    is_late_allowed: bool = False  # a time behind all records means the end, instead of an error


@dataclass(slots=True, frozen=True)
class SourceOptions:
    settings: dict[str, str]  # of the client, by Kafka's names
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    start: At = field(default_factory=lambda: At(LATEST))
    end: At = field(default_factory=lambda: At(LATEST))
    fails_on_data_loss: bool = True
    poll_timeout_s: float = POLL_TIMEOUT_MS / 1000
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    bytes_per_trigger_max: int | None = None
    trigger_delay_max_s: float = 15 * 60
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    bytes_per_partition_max: int | None = None
    includes_headers: bool = False
    group_id: str | None = None  # as the user named it
    group_id_prefix: str = GROUP_ID_PREFIX
    key_format: str | None = None
    value_format: str | None = None
    others: dict[str, str] = field(default_factory=dict)  # for formats

    @property
    def isolation_level(self) -> str:
        return self.settings.get("isolation.level", "read_committed").lower()

    @property
    def admin_settings(self) -> dict[str, object]:
        """What an administrator understands of the settings."""
        known = admin_keys()
        return {name: value for name, value in self.settings.items() if name in known}


def read_options(given: Mapping[str, str], *, is_stream: bool, servers: str | None = None) -> SourceOptions:
    """Raises InvalidOption for whatever makes no sense; `servers` are those of who names none."""
    options = {name.lower(): value for name, value in given.items()}
    if servers:
        options.setdefault(f"{KAFKA}bootstrap.servers", servers)
    settings = _settings(options)
    _check_names(given)
    topics, pattern, assigned = _topics(options)
    if is_stream:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in options:
                raise InvalidOption(f"{name} is for batch queries: a stream has no end")
    start = _start(options, is_stream=is_stream)
    end = At(LATEST) if is_stream else _end(options)
    least, most = _count(options, "minOffsetsPerTrigger"), _count(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidOption(f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
    return SourceOptions(
        settings=settings,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=start,
        end=end,
        fails_on_data_loss=_flag(options, "failOnDataLoss", True),
        poll_timeout_s=(_count(options, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS) / 1000,
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        bytes_per_trigger_max=_size(options, "maxBytesPerTrigger"),
        trigger_delay_max_s=_duration_s(options.get("maxtriggerdelay", TRIGGER_DELAY_MAX)),
        partitions_min=_count(options, "minPartitions"),
        records_per_partition_max=_count(options, "maxRecordsPerPartition"),
        bytes_per_partition_max=_size(options, "maxBytesPerPartition"),
        includes_headers=_flag(options, "includeHeaders", False),
        group_id=settings.pop("group.id", None),
        group_id_prefix=options.get("groupidprefix", GROUP_ID_PREFIX),
        key_format=_format(options, "keyFormat"),
        value_format=_format(options, "valueFormat"),
        others={name: options[name] for name in _OF_FORMATS.lower().split() if name in options},
    )


# --- the client ------------------------------------------------------------------------------------------


def _settings(options: Mapping[str, str]) -> dict[str, str]:
    settings = {name[len(KAFKA) :]: value for name, value in options.items() if name.startswith(KAFKA)}
    if "bootstrap.servers" not in settings:
        raise InvalidOption("kafka.bootstrap.servers must be given: the addresses of some brokers")
    for name, instead in _TAKEN.items():
        if name in settings:
            raise InvalidOption(f"kafka.{name} is not for Spark; use {instead}")
    try:
        Configuration(consumer_keys(), settings)
    except InvalidSetting as error:
        raise InvalidOption(f"kafka.*: {error}") from error
    return settings


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        lowered = name.lower()
        if lowered in _KNOWN or lowered.startswith(KAFKA):
            continue
        likely = get_close_matches(lowered, _KNOWN, 1)
        hint = f"; did you mean {_KNOWN[likely[0]]}?" if likely else ""
        raise InvalidOption(f"there is no option {name}{hint}")


# --- which topics ----------------------------------------------------------------------------------------


def _topics(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign", "path") if name.lower() in options]
    if len(chosen) != 1:
        said = f", not {' and '.join(chosen)}" if chosen else ""
        raise InvalidOption(f'say what to read by load("topic"), subscribe, subscribePattern or assign{said}')
    text = options[chosen[0].lower()].strip()
    if not text:
        raise InvalidOption(f"{chosen[0]} is empty")
    match chosen[0]:
        case "assign":
            return (), None, _assigned(text)
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidOption(f"subscribePattern is no regular expression: {error}") from error
            return (), text, ()
        case name:
            topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
            if not topics:
                raise InvalidOption(f"{name} names no topic")
            return topics, None, ()


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    found: set[TopicPartition] = set()
    for topic, partitions in offsets.json_object(text, "assign").items():
        if not isinstance(partitions, list) or not all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in partitions
        ):
            raise InvalidOption(f'assign: expected {{"topic": [0, 1]}}, and {topic!r} has {partitions!r}')
        found.update(TopicPartition(topic, number) for number in partitions)
    if not found:
        raise InvalidOption("assign names no partition")
    return tuple(sorted(found))


# --- from where to where ---------------------------------------------------------------------------------


def _start(options: Mapping[str, str], *, is_stream: bool) -> At:
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"startingOffsetsByTimestampStrategy is error or latest, not {strategy}")
    is_late_allowed = strategy == "latest"
    if (moment := _by_time(options, "starting", is_late_allowed)) is not None:
        return moment
    text = options.get("startingoffsets", "latest" if is_stream else "earliest")
    start = _ends(text, "startingOffsets")
    if not is_stream and _names(start, LATEST):
        raise InvalidOption("startingOffsets of a batch query cannot be latest: it would read nothing")
    return start


def _end(options: Mapping[str, str]) -> At:
    if (moment := _by_time(options, "ending", True)) is not None:
        return moment
    end = _ends(options.get("endingoffsets", "latest"), "endingOffsets")
    if _names(end, EARLIEST):
        raise InvalidOption("endingOffsets cannot be earliest: nothing would be read")
    return end


def _by_time(options: Mapping[str, str], which: str, is_late_allowed: bool) -> At | None:
    if (text := options.get(f"{which}timestamp")) is not None:
        return At(_time_ms(text, f"{which}Timestamp"), None, True, is_late_allowed)
    if (text := options.get(f"{which}offsetsbytimestamp")) is not None:
        return At(None, offsets.parse(text, f"{which}OffsetsByTimestamp"), True, is_late_allowed)
    return None


def _ends(text: str, name: str) -> At:
    match text.strip().lower():
        case "earliest":
            return At(EARLIEST)
        case "latest":
            return At(LATEST)
    each = offsets.parse(text, name)
    wrong = {at: offset for at, offset in each.at.items() if offset < EARLIEST}
    if wrong:
        raise InvalidOption(f"{name}: {next(iter(wrong.values()))} is no offset (-2 earliest, -1 latest)")
    return At(None, each)


def _names(at: At, end: int) -> bool:
    return at.everywhere == end or (at.each is not None and end in at.each.at.values())


# --- values ----------------------------------------------------------------------------------------------


def _time_ms(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOption(f"{name}: {text!r} is no time in milliseconds since 1970") from error


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidOption(f"{name} is true or false, not {text}")
    return text == "true"


def _count(options: Mapping[str, str], name: str) -> int | None:
    """None if it is not given."""
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise InvalidOption(f"{name}: {text!r} is no whole number") from error
    if number < 1:
        raise InvalidOption(f"{name} must be positive, and is {number}")
    return number


_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"(\d+)\s*(us|ms|s|min|m|h|d)?", re.IGNORECASE)


def _size(options: Mapping[str, str], name: str) -> int | None:
    """Bytes, as Spark writes them: `64m`, `1g`."""
    text = options.get(name.lower())
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise InvalidOption(f"{name}: {text!r} is no size such as 64m")
    return int(found[1]) << 10 * " kmgt".index(found[2].lower() or " ")


def _duration_s(text: str) -> float:
    """As Spark writes them: `15m`, `30s`; plain numbers are milliseconds."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise InvalidOption(f"maxTriggerDelay: {text!r} is no duration such as 15m")
    return int(found[1]) * _TIMES[(found[2] or "ms").lower()]


def _format(options: Mapping[str, str], name: str) -> str | None:
    text = options.get(name.lower(), "binary").lower()
    return None if text == "binary" else text
