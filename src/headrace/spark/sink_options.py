"""Options of writing by `format("headrace")`: those of Spark's Kafka connector, formats and exactly-once."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import NamedTuple

from headrace.base.secret import Secret
from headrace.client.settings.keys import admin_keys, producer_keys
from headrace.spark.errors import InvalidOption
from headrace.spark.formats import Format, sink_formats
from headrace.spark.options import KAFKA, NO_SERVERS, client_settings, whole_number

NAMES = ("topic", "path", "txnAppId", "txnVersion", "deliveryGuarantee", "includeHeaders")
# See headrace.spark.formats.
FORMAT_NAMES = (
    *("keyFormat", "valueFormat", "keySchema", "valueSchema", "keySubject", "valueSubject"),
    *("keyMessage", "valueMessage", "schema.registry.url", "schema.registry.user"),
    *("schema.registry.password", "schema.registry.ssl.ca.location", "schema.registry.auto.register"),
)
# Spark's own options, which it passes on.
SPARK_NAMES = ("checkpointLocation", "queryName", "outputMode")
_KNOWN = {name.lower(): name for name in (*NAMES, *FORMAT_NAMES, *SPARK_NAMES)}

# Client settings that a query must not set, and what to use instead.
_RESERVED = {
    "transactional.id": "txnAppId",
    "enable.idempotence": "deliveryGuarantee",
    "key.serializer": "keyFormat",
    "value.serializer": "valueFormat",
}

# How long a batch stays open without a request from any of its tasks. Tasks that write send requests all the
# time; this covers the replacement of a lost executor after all other tasks are done.
TRANSACTION_TIMEOUT_MS = 300_000


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    BEST = "best"  # exactly-once where the brokers have sinks, else at-least-once


class SinkOptions(NamedTuple):
    settings: dict[str, str | Secret]  # producer settings, by Kafka's names
    topic: str | None = None  # of all rows; None: the column topic
    app_id: str | None = None
    version: int | None = None  # of a batch write
    guarantee: Guarantee = Guarantee.BEST
    checkpoint: str | None = None  # the query's checkpoint, if the option is set on the sink
    formats: tuple[Format, ...] = ()

    @property
    def admin_settings(self) -> dict[str, object]:
        """The settings that the admin client has."""
        known = admin_keys()
        return {name: value for name, value in self.settings.items() if name in known}


def sink_options(
    given: Mapping[str, str], *, is_stream: bool, overwrite: bool, servers: str | None = None
) -> SinkOptions:
    """Raise InvalidOption for an invalid option; `servers` is the default of kafka.bootstrap.servers."""
    if overwrite:
        raise InvalidOption('a topic cannot be overwritten, only appended to: use .mode("append")')
    for name in given:
        if name.lower() not in _KNOWN and not name.lower().startswith(KAFKA):
            likely = get_close_matches(name.lower(), _KNOWN, 1)
            hint = f"; did you mean {_KNOWN[likely[0]]}?" if likely else ""
            raise InvalidOption(f"unknown option {name} for writing{hint}")
    options = {name.lower(): value for name, value in given.items()}
    settings = client_settings(options, producer_keys())
    if servers:
        settings.setdefault("bootstrap.servers", servers)
    if "bootstrap.servers" not in settings:
        raise InvalidOption(NO_SERVERS)
    for name, instead in _RESERVED.items():
        if name in settings:
            raise InvalidOption(f"kafka.{name} cannot be set in Spark; use {instead}")
    settings.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
    app_id = options.get("txnappid")
    if app_id == "":
        raise InvalidOption("txnAppId is empty: name the sink, or remove the option")
    return SinkOptions(
        settings,
        _topic(options),
        app_id,
        _version(options, app_id, is_stream=is_stream),
        _guarantee(options),
        options.get("checkpointlocation"),
        sink_formats(options),
    )


def _topic(options: Mapping[str, str]) -> str | None:
    if "topic" in options and "path" in options:
        raise InvalidOption('the option topic and save("topic") are both given: remove one of them')
    topic = options.get("topic", options.get("path"))
    if topic == "":
        raise InvalidOption("topic is empty: name a topic, or remove the option and add a column topic")
    return topic


def _version(options: Mapping[str, str], app_id: str | None, *, is_stream: bool) -> int | None:
    text = options.get("txnversion")
    if is_stream:
        if text is not None:
            raise InvalidOption(
                "txnVersion is for batch writes only, because a stream numbers its own: remove it"
            )
        return None
    if (text is None) != (app_id is None):
        raise InvalidOption(
            f"{'txnVersion' if text is None else 'txnAppId'} is missing: a batch write needs both txnAppId "
            "(its name) and txnVersion (its number), or neither"
        )
    return whole_number(options, "txnVersion", least=0)


def _guarantee(options: Mapping[str, str]) -> Guarantee:
    text = options.get("deliveryguarantee")
    if text is None:
        return Guarantee.BEST
    wanted = {each.value: each for each in (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)}
    if text.lower() not in wanted:
        raise InvalidOption(f"deliveryGuarantee={text}: must be {' or '.join(wanted)}")
    return wanted[text.lower()]
