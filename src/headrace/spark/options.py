"""Options of reading by `format("headrace")`, and offsets as options and checkpoints hold them.

Names and defaults are those of Spark's Kafka connector, with these differences: only committed records are
read unless `kafka.isolation.level` says otherwise; an unknown option is an error; `load("topic")` is short
for `subscribe`; maxBytesPerTrigger, maxBytesPerPartition, keyFormat, valueFormat and the options of formats
are new. fetchOffset.* and partition.metadata.cache.ttl.ms are accepted and have no effect: this client
retries on its own, and requests metadata when it needs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from headrace.base.secret import Secret, revealed
from headrace.client.cluster import TopicPartition
from headrace.client.settings.configuration import Configuration, InvalidSetting, canonical_name
from headrace.client.settings.keys import admin_keys, consumer_keys
from headrace.machines.configs.definition import ConfigKey
from headrace.spark.errors import InvalidOption

KAFKA = "kafka."
SERVERS = "HEADRACE_BOOTSTRAP"  # environment variable: the brokers of queries that name none
LATEST, EARLIEST = -1, -2  # as Kafka and Spark write them in place of an offset
GROUP_ID_PREFIX = "spark-headrace-source"
POLL_TIMEOUT_MS = 120_000  # as spark.network.timeout, which the JVM's connector takes
TRIGGER_DELAY_MAX = "15m"
NO_SERVERS = (
    "kafka.bootstrap.servers is missing: set the option to the brokers' addresses (localhost:9092), or set "
    f"{SERVERS} in the environment"
)

_NAMES = """
    path subscribe subscribePattern assign startingOffsets startingTimestamp startingOffsetsByTimestamp
    startingOffsetsByTimestampStrategy endingOffsets endingTimestamp endingOffsetsByTimestamp failOnDataLoss
    kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger
    minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix includeHeaders
    partition.metadata.cache.ttl.ms maxBytesPerTrigger maxBytesPerPartition keyFormat valueFormat history
"""
# See headrace.spark.formats.
_FORMAT_NAMES = """
    schema.registry.url schema.registry.user schema.registry.password schema.registry.ssl.ca.location
    keySchema valueSchema keySubject valueSubject keyMessage valueMessage mode deadLetterTopic
"""
NAMES = tuple((_NAMES + _FORMAT_NAMES).split())
_KNOWN = {name.lower(): name for name in NAMES}

# Client settings that a query must not set, and what to use instead.
_RESERVED = {
    "auto.offset.reset": "startingOffsets",
    "enable.auto.commit": "kafka.group.id, whose offsets show the progress; the checkpoint keeps it",
    "key.deserializer": "keyFormat",
    "value.deserializer": "valueFormat",
}


_ID, _MISSING = "id", "missing"  # beside the partitions' numbers


@dataclass(slots=True, frozen=True)
class Offsets:
    """Offsets by partition, with the topics' ids. As JSON:

        {"clicks": {"0": 120, "1": 87}}                      as Spark's Kafka connector writes them
        {"clicks": {"0": 120, "1": 87, "id": "mGZc9w…"}}     with the topic's id, as checkpoints hold them

    The id distinguishes a topic from a later one with the same name. Both forms are accepted everywhere.
    `"missing": 1` beside it says that the brokers no longer knew the topic.
    """

    by_partition: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)  # topics

    def to_json(self) -> dict[str, dict[str, int | str]]:
        """Ordered by partition: Spark compares the texts to see whether there is anything new."""
        found: dict[str, dict[str, int | str]] = {}
        for at in sorted(self.by_partition):
            found.setdefault(at.topic, {})[str(at.partition)] = self.by_partition[at]
        for topic, offsets in found.items():
            if topic in self.topic_ids:
                offsets[_ID] = self.topic_ids[topic]
            if topic in self.missing:
                offsets[_MISSING] = 1
        return found


def offsets_from_json(value: Mapping[str, Any], name: str = "offsets") -> Offsets:
    """`name` is the option that the value comes from."""
    offsets = Offsets()
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping):
            raise InvalidOption(f'{name}: {topic!r} is {partitions!r}: must be an object such as {{"0": 23}}')
        for partition, offset in partitions.items():
            if partition == _ID:
                offsets.topic_ids[topic] = str(offset)
            elif partition == _MISSING:
                offsets.missing.add(topic)
            else:
                offsets.by_partition[_partition(topic, partition, name)] = _number(offset, name)
    return offsets


def parse_offsets(text: str, name: str) -> Offsets:
    return offsets_from_json(_json_object(text, name), name)


def _json_object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{name}={text}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise InvalidOption(f'{name}={text}: must be a JSON object such as {{"clicks": …}}')
    return value


def _partition(topic: str, text: str, name: str) -> TopicPartition:
    if not text.isascii() or not text.isdigit():
        raise InvalidOption(
            f'{name}: {text!r} of topic {topic!r} is not a partition; write its number, such as "0"'
        )
    return TopicPartition(topic, int(text))


def _number(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{name}: {value!r} must be a whole number")
    return value


# --- options ---------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class OffsetSpec:
    """Where a query starts or ends: one value for all partitions, or one for each; offsets or timestamps."""

    everywhere: int | None = None  # EARLIEST, LATEST or a timestamp in ms
    each: Offsets | None = None  # offsets, or timestamps in ms
    is_time: bool = False
    is_late_allowed: bool = False  # a timestamp after all records means the end, not an error


@dataclass(slots=True, frozen=True)
class SourceOptions:
    settings: dict[str, str | Secret]  # client settings, by Kafka's names
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    start: OffsetSpec = field(default_factory=lambda: OffsetSpec(LATEST))
    end: OffsetSpec = field(default_factory=lambda: OffsetSpec(LATEST))
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
    group_id: str | None = None  # None: a new name for each run
    group_id_prefix: str = GROUP_ID_PREFIX
    history: str | None = None  # directory of the topic's lake table
    key_format: str | None = None
    value_format: str | None = None
    # see headrace.spark.formats; it has the registry's password
    format_options: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def isolation_level(self) -> str:
        return revealed(self.settings.get("isolation.level", "read_committed")).lower()

    @property
    def admin_settings(self) -> dict[str, object]:
        """The settings that the admin client has."""
        known = admin_keys()
        return {name: value for name, value in self.settings.items() if name in known}


def read_options(given: Mapping[str, str], *, is_stream: bool, servers: str | None = None) -> SourceOptions:
    """Raise InvalidOption for an invalid option; `servers` is the default of kafka.bootstrap.servers."""
    options = {name.lower(): value for name, value in given.items()}
    if servers:
        options.setdefault(f"{KAFKA}bootstrap.servers", servers)
    settings = _settings(options)
    group_id = None if "group.id" not in settings else revealed(settings.pop("group.id"))
    _check_names(given)
    topics, pattern, assigned = _topics(options)
    if is_stream:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in options:
                raise InvalidOption(
                    f"{name} is for batch queries only, because a stream has no end: remove it"
                )
    start = _start(options, is_stream=is_stream)
    end = OffsetSpec(LATEST) if is_stream else _end(options)
    least, most = whole_number(options, "minOffsetsPerTrigger"), whole_number(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidOption(
            f"minOffsetsPerTrigger={least}: must not be larger than maxOffsetsPerTrigger={most}"
        )
    return SourceOptions(
        settings=settings,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=start,
        end=end,
        fails_on_data_loss=_flag(options, "failOnDataLoss", True),
        poll_timeout_s=(whole_number(options, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS) / 1000,
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        bytes_per_trigger_max=_size(options, "maxBytesPerTrigger"),
        trigger_delay_max_s=_duration_s(options.get("maxtriggerdelay", TRIGGER_DELAY_MAX)),
        partitions_min=whole_number(options, "minPartitions"),
        records_per_partition_max=whole_number(options, "maxRecordsPerPartition"),
        bytes_per_partition_max=_size(options, "maxBytesPerPartition"),
        includes_headers=_flag(options, "includeHeaders", False),
        group_id=group_id,
        group_id_prefix=options.get("groupidprefix", GROUP_ID_PREFIX),
        history=_history(options, start, settings),
        key_format=_format(options, "keyFormat"),
        value_format=_format(options, "valueFormat"),
        format_options={name: options[name] for name in _FORMAT_NAMES.lower().split() if name in options},
    )


# --- client settings -------------------------------------------------------------------------------------


def client_settings(options: Mapping[str, str], known: dict[str, ConfigKey]) -> dict[str, str | Secret]:
    """Return the settings in the options `kafka.*` by Kafka's names, which other clients' names stand for.

    Passwords and keys do not show themselves in plans, traces and logs.
    """
    settings: dict[str, str | Secret] = {}
    for option, value in options.items():
        if option.startswith(KAFKA):
            try:
                name = canonical_name(known, option[len(KAFKA) :])
            except InvalidSetting as error:
                raise InvalidOption(f"kafka.*: {error}") from None
            if name in settings:
                raise InvalidOption(f"kafka.{name} is set twice, once as {option}")
            settings[name] = Secret(value) if known[name].is_sensitive else value
    return settings


def _settings(options: Mapping[str, str]) -> dict[str, str | Secret]:
    settings = client_settings(options, consumer_keys())
    if "bootstrap.servers" not in settings:
        raise InvalidOption(NO_SERVERS)
    for name, instead in _RESERVED.items():
        if name in settings:
            raise InvalidOption(f"kafka.{name} cannot be set in Spark; use {instead}")
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
        raise InvalidOption(f"unknown option {name}{hint}")


# --- topics ----------------------------------------------------------------------------------------------


def _topics(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign", "path") if name.lower() in options]
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} are given" if chosen else "none is given"
        raise InvalidOption(f'use one of load("topic"), subscribe, subscribePattern and assign; {found}')
    text = options[chosen[0].lower()].strip()
    if not text:
        raise InvalidOption(f"{chosen[0]} is empty: name what to read")
    match chosen[0]:
        case "assign":
            return (), None, _assigned(text)
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidOption(f"subscribePattern={text}: not a regular expression ({error})") from error
            return (), text, ()
        case name:
            topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
            if not topics:
                raise InvalidOption(f"{name}={text}: names no topic")
            return topics, None, ()


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    found: set[TopicPartition] = set()
    for topic, partitions in _json_object(text, "assign").items():
        if not isinstance(partitions, list) or not all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in partitions
        ):
            raise InvalidOption(
                f"assign: {topic!r} is {partitions!r}: must be a list of partitions such as [0, 1]"
            )
        found.update(TopicPartition(topic, number) for number in partitions)
    if not found:
        raise InvalidOption(f"assign={text}: names no partition")
    return tuple(sorted(found))


# --- start and end ---------------------------------------------------------------------------------------


def _start(options: Mapping[str, str], *, is_stream: bool) -> OffsetSpec:
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"startingOffsetsByTimestampStrategy={strategy}: must be error or latest")
    is_late_allowed = strategy == "latest"
    if (moment := _by_time(options, "starting", is_late_allowed)) is not None:
        return moment
    default = "latest" if is_stream and "history" not in options else "earliest"
    text = options.get("startingoffsets", default)
    start = _by_offset(text, "startingOffsets")
    if not is_stream and _contains(start, LATEST):
        raise InvalidOption(
            "startingOffsets of a batch query cannot be latest, since it would read nothing: use earliest"
        )
    return start


def _end(options: Mapping[str, str]) -> OffsetSpec:
    if (moment := _by_time(options, "ending", True)) is not None:
        return moment
    end = _by_offset(options.get("endingoffsets", "latest"), "endingOffsets")
    if _contains(end, EARLIEST):
        raise InvalidOption(
            "endingOffsets cannot be earliest, since the query would read nothing: use latest"
        )
    return end


def _by_time(options: Mapping[str, str], which: str, is_late_allowed: bool) -> OffsetSpec | None:
    if (text := options.get(f"{which}timestamp")) is not None:
        return OffsetSpec(_time_ms(text, f"{which}Timestamp"), None, True, is_late_allowed)
    if (text := options.get(f"{which}offsetsbytimestamp")) is not None:
        return OffsetSpec(None, parse_offsets(text, f"{which}OffsetsByTimestamp"), True, is_late_allowed)
    return None


def _by_offset(text: str, name: str) -> OffsetSpec:
    match text.strip().lower():
        case "earliest":
            return OffsetSpec(EARLIEST)
        case "latest":
            return OffsetSpec(LATEST)
    each = parse_offsets(text, name)
    wrong = {at: offset for at, offset in each.by_partition.items() if offset < EARLIEST}
    if wrong:
        raise InvalidOption(
            f"{name}: {next(iter(wrong.values()))} must be an offset, -2 (earliest) or -1 (latest)"
        )
    return OffsetSpec(None, each)


def _contains(spec: OffsetSpec, end: int) -> bool:
    return spec.everywhere == end or (spec.each is not None and end in spec.each.by_partition.values())


def _history(
    options: Mapping[str, str], start: OffsetSpec, settings: Mapping[str, str | Secret]
) -> str | None:
    """Check that a table can be a part of what the query reads."""
    text = options.get("history")
    if text is None:
        return None
    path = text.removeprefix("file://")
    if not path or "://" in path:
        raise InvalidOption(f"history={text}: name the directory of a lake table that all workers see")
    if start.is_time:
        raise InvalidOption("history: a query starts at an offset, not at a time: use startingOffsets")
    if "maxbytespertrigger" in options:
        raise InvalidOption("history: bytes in a table are not limited: use maxOffsetsPerTrigger")
    if revealed(settings.get("isolation.level", "read_committed")).lower() != "read_committed":
        raise InvalidOption("history: a table has committed records only: leave kafka.isolation.level out")
    return path


# --- values ----------------------------------------------------------------------------------------------


def _time_ms(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOption(f"{name}={text}: must be milliseconds since 1970") from error


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidOption(f"{name}={text}: must be true or false")
    return text == "true"


def whole_number(options: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    """None: not given."""
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise InvalidOption(f"{name}={text}: must be a whole number") from error
    if number < least:
        raise InvalidOption(f"{name}={number}: must be at least {least}")
    return number


_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"(\d+)\s*(us|ms|s|min|m|h|d)?", re.IGNORECASE)


def _size(options: Mapping[str, str], name: str) -> int | None:
    """Bytes in Spark's notation: `64m`, `1g`."""
    text = options.get(name.lower())
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise InvalidOption(f"{name}={text}: must be a size such as 64m")
    return int(found[1]) << 10 * " kmgt".index(found[2].lower() or " ")


def _duration_s(text: str) -> float:
    """Durations in Spark's notation: `15m`, `30s`; a plain number is milliseconds."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise InvalidOption(f"maxTriggerDelay={text}: must be a duration such as 15m")
    return int(found[1]) * _TIMES[(found[2] or "ms").lower()]


def _format(options: Mapping[str, str], name: str) -> str | None:
    text = options.get(name.lower(), "binary").lower()
    return None if text == "binary" else text
