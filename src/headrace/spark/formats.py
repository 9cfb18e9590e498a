"""Keys and values that are JSON, Avro or Protobuf, as typed columns; how sinks write them is in rows.

With `valueFormat` the fields of a value are columns of their own, and Kafka's columns get an underscore in
front (`_offset`), since a field may well be called `timestamp`. With `keyFormat` the key is a struct.
Schemas are declared (`valueSchema`, or Spark's own `.schema(...)` for JSON), come from a registry
(`schema.registry.url`), or are learned from the first records of a JSON topic.

What cannot be decoded fails the query, unless `mode` says otherwise, as with Spark's own formats:
PERMISSIVE shows nulls, DROPMALFORMED leaves the row out. With `deadLetterTopic` such rows go there, with the
reason and where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.schemas import Decoder, Encoder, Registry, Schema, decoder_for, encoder_for
from headrace.spark.columns import HEADERS, KAFKA_COLUMNS
from headrace.spark.dead_letters import DeadLetters
from headrace.spark.errors import InvalidOption, Undecodable
from headrace.spark.required import check_nullable, missing, relaxed, required

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.options import SourceOptions

PREFIX = "_"
FORMATS = ("json", "avro", "protobuf")
MODES = ("failfast", "permissive", "dropmalformed")


class Part(NamedTuple):
    """How the keys or the values of a query are written."""

    name: str  # key or value
    format: str
    schema: str | Schema | None  # as text, or as the registry has it
    subject: str | None
    message: str | None
    registry: tuple[str, str | None, str | None] | None  # url, user, password
    auto_register: bool = True  # of what is written

    def decoder(self, *, wanted: pa.StructType | None = None, sample: pa.Array | None = None) -> Decoder:
        """`wanted` are the columns that a query declares: of JSON nothing else need be read."""
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

    def as_of_now(self) -> Part:
        """With the subject's newest schema; of JSON, whose columns say all, none is needed."""
        if self.registry is None or self.schema is not None or self.format == "json":
            return self
        assert self.subject is not None
        url, user, password = self.registry
        newest = Registry(url, user=user, password=password).latest(self.subject)
        return self._replace(schema=newest.schema)

    def encoder(self, kind: pa.DataType, topic: str) -> Encoder:
        """For rows of this type that go to the topic."""
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
        """What can be known without a registry: whether rows of this type can be written so."""
        can_derive = self.format != "protobuf" and (self.registry is None or self.auto_register)
        if self.schema is not None or can_derive:
            self._replace(registry=None).encoder(kind, "")
        elif self.registry is None:
            raise InvalidOption(f"{self.name}Schema must be given: {self.format} has none of its own")

    @property
    def is_learned(self) -> bool:
        """Whether nobody says what the columns are."""
        return self.format == "json" and self.schema is None and self.registry is None


class Formats(NamedTuple):
    key: Part | None
    value: Part | None
    mode: str
    dead_letter_topic: str | None

    def as_of_now(self) -> Formats:
        """For a query that begins: what it shows does not change under it."""
        key, value = (None if part is None else part.as_of_now() for part in (self.key, self.value))
        return self._replace(key=key, value=value)

    @property
    def is_raw(self) -> bool:
        return self.key is None and self.value is None

    @property
    def prefix(self) -> str:
        """Of Kafka's own columns."""
        return PREFIX if self.value is not None else ""

    def kafka_names(self, *, includes_headers: bool) -> dict[str, str]:
        """Kafka's columns as this query calls them → as Kafka does."""
        names = [name for name in KAFKA_COLUMNS if includes_headers or name != HEADERS]
        return {self.prefix + name: name for name in names if name != "value" or self.value is None}


def read_formats(options: SourceOptions) -> Formats:
    others = options.others
    mode = others.get("mode", "failfast").lower()
    if mode not in MODES:
        raise InvalidOption(f"mode is one of {', '.join(MODES)}, not {mode}")
    return Formats(
        _read_part("key", options.key_format, options),
        _read_part("value", options.value_format, options),
        mode,
        others.get("deadlettertopic"),
    )


def written_parts(options: Mapping[str, str]) -> tuple[Part, ...]:
    """Of a sink's options; each topic's subject is its own unless one is named."""
    found = []
    for name in ("key", "value"):
        format = options.get(f"{name}format", "binary").lower()
        if format != "binary":
            found.append(_part(name, format, options, options.get(f"{name}subject")))
    auto = options.get("schema.registry.auto.register", "true").lower()
    if auto not in ("true", "false"):
        raise InvalidOption(f"schema.registry.auto.register is true or false, not {auto}")
    return tuple(part._replace(auto_register=auto == "true") for part in found)


def _read_part(name: str, format: str | None, options: SourceOptions) -> Part | None:
    if format is None:
        return None
    others = options.others
    subject = others.get(f"{name}subject")
    if "schema.registry.url" in others and subject is None and f"{name}schema" not in others:
        topics = options.topics or tuple({at.topic for at in options.assigned})
        if len(topics) != 1:
            raise InvalidOption(f"{name}Subject must be given: the query reads several topics")
        subject = f"{topics[0]}-{name}"
    return _part(name, format, others, subject)


def _part(name: str, format: str, others: Mapping[str, str], subject: str | None) -> Part:
    if format not in FORMATS:
        raise InvalidOption(f"{name}Format is binary, {', '.join(FORMATS)}, not {format}")
    url = others.get("schema.registry.url")
    login = others.get("schema.registry.user"), others.get("schema.registry.password")
    schema, message = others.get(f"{name}schema"), others.get(f"{name}message")
    return Part(name, format, schema, subject, message, None if url is None else (url, *login))


@cache
def _registry_at(url: str, user: str | None, password: str | None) -> Registry:
    """One for all tasks that a worker runs: what an id means is asked for once."""
    return Registry(url, user=user, password=password, latest_ttl_s=0.0)


class Decoding:
    """On an executor: a table of Kafka's columns becomes one of the query's."""

    def __init__(self, formats: Formats, schema: pa.Schema, settings: Mapping[str, str]) -> None:
        self._formats = formats
        self._required = required(schema)
        self._decoders: dict[str, tuple[Decoder, bool]] = {}  # and whether headers may name schemas
        for part in (formats.key, formats.value):
            if part is not None:
                wanted = _wanted(formats, part, schema)
                if not len(wanted):
                    continue  # the query wants nothing of it
                if formats.mode == "permissive":
                    check_nullable(wanted)
                decoder = part.decoder(wanted=relaxed(wanted))
                self._decoders[part.name] = decoder, part.registry is not None
                _check_columns(part, decoder, wanted)
        self._dead_letters = (
            None if formats.dead_letter_topic is None else DeadLetters(formats.dead_letter_topic, settings)
        )

    def decoded(self, table: pa.Table) -> pa.Table:
        """Fields of values first, then Kafka's columns by the query's names."""
        import pyarrow as pa

        reasons: dict[int, str] = {}
        structs: dict[str, pa.StructArray] = {}
        for name, (decoder, has_registry) in self._decoders.items():
            found = decoder.columns(table[name], _id_headers(table, name) if has_registry else None)
            structs[name] = found.struct
            reasons |= {row: f"{name}: {reason}" for row, reason in found.failures if row not in reasons}
        columns: dict[str, Any] = {}
        if "value" in structs:
            value = structs["value"]
            columns |= {field.name: array for field, array in zip(value.type, value.flatten())}
        for own, kafka in self._formats.kafka_names(includes_headers=True).items():
            columns.setdefault(own, structs.get(kafka, table[kafka]))
        shown = pa.table(columns)
        reasons = missing(shown, self._required) | reasons
        if reasons:
            self._judge(table, reasons)
        if reasons and self._formats.mode != "permissive":
            keep = pa.array([row not in reasons for row in range(table.num_rows)])
            shown = shown.filter(keep)
        return shown

    def _judge(self, table: pa.Table, reasons: Mapping[int, str]) -> None:
        if self._dead_letters is not None:
            self._dead_letters.send(table, reasons)
        elif self._formats.mode == "failfast":
            row, reason = min(reasons.items())
            one = {name: table[name][row].as_py() for name in ("topic", "partition", "offset")}
            raise Undecodable(
                f"the record at offset {one['offset']} of partition {one['topic']}-{one['partition']} cannot "
                f"be decoded: {reason}. Set deadLetterTopic to put such records aside, or mode to PERMISSIVE "
                "(nulls) or DROPMALFORMED."
            )

    def close(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.close()


def _wanted(formats: Formats, part: Part, schema: pa.Schema) -> pa.StructType:
    """What the query's schema says about a part."""
    import pyarrow as pa

    if part.name == "value":
        kafka = formats.kafka_names(includes_headers=True)
        return pa.struct([field for field in schema if field.name not in kafka])
    index = schema.get_field_index(formats.prefix + "key")
    if index < 0:
        return pa.struct([])
    kind = schema.field(index).type
    if not pa.types.is_struct(kind):
        raise InvalidOption(f"with keyFormat the key is a struct, and the query's schema says {kind}")
    return kind


def _check_columns(part: Part, decoder: Decoder, wanted: pa.StructType) -> None:
    there = {field.name for field in decoder.type}
    missing = [field.name for field in wanted if field.name not in there]
    if missing:
        raise InvalidOption(f"{part.name}s have no field {missing[0]}; they have {', '.join(sorted(there))}")


def _id_headers(table: pa.Table, name: str) -> pa.Array | None:
    """For each row its header with a schema's id; None if no row has one (the usual case)."""
    import pyarrow as pa

    headers = table[HEADERS].combine_chunks()
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.chunk(0) if headers.num_chunks else pa.array([], headers.type)
    if not len(headers.values):
        return None
    wanted = f"__{name}_schema_id"
    found = [
        next((header["value"] for header in row if header["key"] == wanted), None)
        for row in headers.to_pylist()
    ]
    return pa.array(found, pa.binary()) if any(found) else None
