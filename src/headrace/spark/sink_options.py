"""The options of writing to topics: those of Spark's own Kafka connector, what makes writes count once."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import NamedTuple

from headrace.client.configuration import admin_keys
from headrace.spark.errors import InvalidOption
from headrace.spark.formats import Part, written_parts

KAFKA = "kafka."
NAMES = ("topic", "path", "txnAppId", "txnVersion", "deliveryGuarantee", "includeHeaders")
# Of formats: see headrace.spark.formats.
OF_FORMATS = (
    *("keyFormat", "valueFormat", "keySchema", "valueSchema", "keySubject", "valueSubject"),
    *("keyMessage", "valueMessage", "schema.registry.url", "schema.registry.user"),
    *("schema.registry.password", "schema.registry.auto.register"),
)
# What Spark itself has to know, and hands on.
OF_SPARK = ("checkpointLocation", "queryName", "outputMode")
_KNOWN = {name.lower(): name for name in (*NAMES, *OF_FORMATS, *OF_SPARK)}

# What a task decides itself, and what to use instead.
_TAKEN = {
    "transactional.id": "txnAppId",
    "enable.idempotence": "deliveryGuarantee",
    "key.serializer": "keyFormat",
    "value.serializer": "valueFormat",
}

# How long a batch stays open when nobody is heard of. Tasks that write are; this is for the time in which a
# lost executor is replaced while all other tasks are done.
TRANSACTION_TIMEOUT_MS = 300_000


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    BEST = "best"  # exactly-once where the brokers have sinks, else at-least-once


class SinkOptions(NamedTuple):
    settings: dict[str, str]  # of the producer, by Kafka's names
    topic: str | None = None  # for all rows; None: each says its own
    app_id: str | None = None
    version: int | None = None  # of a batch write: the batch that it is
    guarantee: Guarantee = Guarantee.BEST
    checkpoint: str | None = None  # where Spark keeps the query's progress, as far as it was said here
    parts: tuple[Part, ...] = ()  # of records that have a format

    @property
    def admin_settings(self) -> dict[str, object]:
        """What an administrator understands of the settings."""
        known = admin_keys()
        return {name: value for name, value in self.settings.items() if name in known}


def sink_options(
    given: Mapping[str, str], *, is_stream: bool, overwrite: bool, servers: str | None = None
) -> SinkOptions:
    """Raises InvalidOption for whatever makes no sense; `servers` are those of who names none."""
    if overwrite:
        raise InvalidOption("a topic cannot be overwritten, only appended to")
    for name in given:
        if name.lower() not in _KNOWN and not name.lower().startswith(KAFKA):
            likely = get_close_matches(name.lower(), _KNOWN, 1)
            hint = f"; did you mean {_KNOWN[likely[0]]}?" if likely else ""
            raise InvalidOption(f"there is no option {name} for writing{hint}")
    options = {name.lower(): value for name, value in given.items()}
    settings = {name[len(KAFKA) :]: value for name, value in options.items() if name.startswith(KAFKA)}
    if servers:
        settings.setdefault("bootstrap.servers", servers)
    if "bootstrap.servers" not in settings:
        raise InvalidOption("kafka.bootstrap.servers must be given: the addresses of some brokers")
    for name, instead in _TAKEN.items():
        if name in settings:
            raise InvalidOption(f"kafka.{name} is not for Spark; use {instead}")
    settings.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
    app_id = options.get("txnappid")
    if app_id == "":
        raise InvalidOption("txnAppId is empty")
    return SinkOptions(
        settings,
        _topic(options),
        app_id,
        _version(options, app_id, is_stream=is_stream),
        _guarantee(options),
        options.get("checkpointlocation"),
        written_parts(options),
    )


def _topic(options: Mapping[str, str]) -> str | None:
    if "topic" in options and "path" in options:
        raise InvalidOption('give the topic as an option or as save("topic"), not both')
    topic = options.get("topic", options.get("path"))
    if topic == "":
        raise InvalidOption("topic is empty")
    return topic


def _version(options: Mapping[str, str], app_id: str | None, *, is_stream: bool) -> int | None:
    text = options.get("txnversion")
    if is_stream:
        if text is not None:
            raise InvalidOption("txnVersion is for batch writes: a stream counts its batches itself")
        return None
    if (text is None) != (app_id is None):
        raise InvalidOption("txnAppId and txnVersion go together: who writes, and the number of the write")
    if text is None:
        return None
    try:
        version = int(text)
    except ValueError as error:
        raise InvalidOption(f"txnVersion: {text!r} is no whole number") from error
    if version < 0:
        raise InvalidOption(f"txnVersion cannot be negative, and is {version}")
    return version


def _guarantee(options: Mapping[str, str]) -> Guarantee:
    text = options.get("deliveryguarantee")
    if text is None:
        return Guarantee.BEST
    wanted = {each.value: each for each in (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)}
    if text.lower() not in wanted:
        raise InvalidOption(f"deliveryGuarantee is {' or '.join(wanted)}, not {text}")
    return wanted[text.lower()]
