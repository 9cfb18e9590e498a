"""Formats of keys and values: JSON, Avro or Protobuf, as the options name them, and the columns they give.

With `valueFormat` the fields of a value become columns, and Kafka's columns get an underscore in front
(`_offset`), because a field may be named `timestamp`. With `keyFormat` the key becomes a struct. The schema
is declared (`valueSchema`, or `.schema(...)` for JSON), comes from a registry (`schema.registry.url`), or is
inferred from the first records of a JSON topic.

`decoding` applies them to records that are read, `rows` to rows that are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.secret import Secret
from headrace.schemas import Decoder, Encoder, Registry, Schema, decoder_for, encoder_for
from headrace.schemas.registry import LATEST_TTL_S
from headrace.spark.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.options import SourceOptions

# Kafka's columns with Spark's types, in the order of Spark's Kafka connector.
HEADERS = "headers"
KAFKA_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key: string, value: binary>>",
}
PREFIX = "_"  # of Kafka's columns, where the values' fields are columns too
FORMATS = ("json", "avro", "protobuf")
MODES = ("failfast", "permissive", "dropmalformed")


class Format(NamedTuple):
    """The format of the keys or of the values."""

    name: str  # "key" or "value"
    format: str
    schema: str | Schema | None  # text, or a schema from the registry
    subject: str | None
    message: str | None
    # url (it may have a password), user, password, authorities to trust
    registry: tuple[Secret, str | None, Secret | None, str | None] | None
    auto_register: bool = True  # for writing

    def decoder(self, *, wanted: pa.StructType | None = None, sample: pa.Array | None = None) -> Decoder:
        """`wanted` are the fields that the query declares; for JSON they serve as the schema."""
        registry = None if self.registry is None else _registry_at(*self.registry)
        schema: Any = self.schema
        if schema is None and self.format == "json" and wanted is not None:
            schema = wanted
        return decoder_for(
            self.format,
            schema=schema,
            registry=registry,
            subject=self.subject,
            message=self.message,
            sample=sample,
        )

    def with_latest_schema(self) -> Format:
        """Take the subject's latest schema; JSON needs none."""
        if self.registry is None or self.schema is not None or self.format == "json":
            return self
        assert self.subject is not None
        newest = _registry(*self.registry).latest(self.subject)
        return self._replace(schema=newest.schema)

    def encoder(self, kind: pa.DataType, topic: str) -> Encoder:
        """Return the encoder of rows of this type for the topic."""
        return encoder_for(
            self.format,
            kind,
            schema=self.schema,
            registry=None if self.registry is None else _registry_at(*self.registry),
            subject=self.subject or f"{topic}-{self.name}",
            message=self.message,
            auto_register=self.auto_register,
            name=self.name.capitalize(),
        )

    def check(self, kind: pa.DataType) -> None:
        """Check, without asking a registry, that rows of this type can be encoded."""
        can_derive = self.format != "protobuf" and (self.registry is None or self.auto_register)
        if self.schema is not None or can_derive:
            self._replace(registry=None).encoder(kind, "")
        elif self.registry is None:
            raise InvalidOption(
                f"{self.name}Schema is missing: {self.format} cannot derive a schema from the columns; give "
                f"{self.name}Schema or schema.registry.url"
            )

    @property
    def is_inferred(self) -> bool:
        """Whether the columns are inferred from the first records."""
        return self.format == "json" and self.schema is None and self.registry is None


class Formats(NamedTuple):
    key: Format | None
    value: Format | None
    mode: str
    dead_letter_topic: str | None

    def with_latest_schemas(self) -> Formats:
        """Fix the schemas at the start of a query, so that its columns do not change while it runs."""
        key, value = (
            None if format is None else format.with_latest_schema() for format in (self.key, self.value)
        )
        return self._replace(key=key, value=value)

    @property
    def is_raw(self) -> bool:
        return self.key is None and self.value is None

    @property
    def prefix(self) -> str:
        """The prefix of Kafka's columns."""
        return PREFIX if self.value is not None else ""

    def kafka_names(self, *, includes_headers: bool) -> dict[str, str]:
        """Return Kafka's columns: the name in this query → the name in KAFKA_COLUMNS."""
        names = [name for name in KAFKA_COLUMNS if includes_headers or name != HEADERS]
        return {self.prefix + name: name for name in names if name != "value" or self.value is None}


def read_formats(options: SourceOptions) -> Formats:
    mode = options.format_options.get("mode", "failfast").lower()
    if mode not in MODES:
        raise InvalidOption(f"mode={mode}: must be one of {', '.join(MODES).upper()}")
    return Formats(
        _read_format("key", options.key_format, options),
        _read_format("value", options.value_format, options),
        mode,
        options.format_options.get("deadlettertopic"),
    )


def sink_formats(options: Mapping[str, str]) -> tuple[Format, ...]:
    """Return the formats in a sink's options; without a subject, each topic has its own."""
    found = []
    for name in ("key", "value"):
        format = options.get(f"{name}format", "binary").lower()
        if format != "binary":
            found.append(_format(name, format, options, options.get(f"{name}subject")))
    auto = options.get("schema.registry.auto.register", "true").lower()
    if auto not in ("true", "false"):
        raise InvalidOption(f"schema.registry.auto.register={auto}: must be true or false")
    return tuple(each._replace(auto_register=auto == "true") for each in found)


def _read_format(name: str, format: str | None, options: SourceOptions) -> Format | None:
    if format is None:
        return None
    given = options.format_options
    subject = given.get(f"{name}subject")
    if "schema.registry.url" in given and subject is None and f"{name}schema" not in given:
        topics = options.topics or tuple({at.topic for at in options.assigned})
        if len(topics) != 1:
            raise InvalidOption(
                f"{name}Subject is missing: the query reads several topics, so set it to one subject"
            )
        subject = f"{topics[0]}-{name}"
    return _format(name, format, given, subject)


def _format(name: str, format: str, given: Mapping[str, str], subject: str | None) -> Format:
    if format not in FORMATS:
        raise InvalidOption(f"{name}Format={format}: must be binary, {', '.join(FORMATS)}")
    url = given.get("schema.registry.url")
    user, password = given.get("schema.registry.user"), given.get("schema.registry.password")
    registry = None
    if url is not None:
        authorities = given.get("schema.registry.ssl.ca.location")
        registry = Secret(url), user, None if password is None else Secret(password), authorities
    schema, message = given.get(f"{name}schema"), given.get(f"{name}message")
    return Format(name, format, schema, subject, message, registry)


@cache
def _registry_at(url: Secret, user: str | None, password: Secret | None, authorities: str | None) -> Registry:
    """One client for all tasks of a worker, so that each schema is fetched once."""
    return _registry(url, user, password, authorities, latest_ttl_s=0.0)


def _registry(
    url: Secret,
    user: str | None,
    password: Secret | None,
    authorities: str | None,
    latest_ttl_s: float = LATEST_TTL_S,
) -> Registry:
    shown = None if password is None else password.reveal()
    return Registry(
        url.reveal(), user=user, password=shown, ssl_ca_location=authorities, latest_ttl_s=latest_ttl_s
    )
