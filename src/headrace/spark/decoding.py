"""Decoding of records that are read: typed columns, NOT NULL checks and dead letters.

A record that cannot be decoded, or lacks a field that the query declares NOT NULL, fails the query unless
`mode` says otherwise, as with Spark's own formats: PERMISSIVE gives nulls, DROPMALFORMED skips the row. With
`deadLetterTopic` such records are written there, with the reason and their origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.base.secret import Secret
from headrace.client.errors import ClientError
from headrace.client.settings.keys import producer_keys
from headrace.client.threads.producer import Producer
from headrace.schemas import Decoder
from headrace.schemas.dead_letters import dead_letter
from headrace.spark.errors import DEAD_LETTERS, InvalidOption, Undecodable, without_frames
from headrace.spark.formats import HEADERS, Format, Formats

if TYPE_CHECKING:
    import pyarrow as pa


class RowDecoder:
    """Runs in a task: turns a table of Kafka's columns into one of the query's columns."""

    def __init__(self, formats: Formats, schema: pa.Schema, settings: Mapping[str, str | Secret]) -> None:
        self._formats = formats
        self._required = required_fields(schema)
        self._decoders: dict[str, tuple[Decoder, bool]] = {}  # with: headers may hold schema ids
        for format in (formats.key, formats.value):
            if format is not None:
                wanted = _wanted(formats, format, schema)
                if not len(wanted):
                    continue  # the query uses none of its fields
                if formats.mode == "permissive":
                    _check_nullable(wanted)
                decoder = format.decoder(wanted=_all_nullable(wanted))
                self._decoders[format.name] = decoder, format.registry is not None
                _check_columns(format, decoder, wanted)
        self._dead_letters = (
            None if formats.dead_letter_topic is None else DeadLetters(formats.dead_letter_topic, settings)
        )

    def decode(self, table: pa.Table) -> pa.Table:
        """Return the fields of the values, then Kafka's columns by the query's names."""
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
        decoded = pa.table(columns)
        reasons = rows_with_missing(decoded, self._required) | reasons
        if reasons:
            self._report_failures(table, reasons)
        if reasons and self._formats.mode != "permissive":
            keep = pa.array([row not in reasons for row in range(table.num_rows)])
            decoded = decoded.filter(keep)
        return decoded

    def _report_failures(self, table: pa.Table, reasons: Mapping[int, str]) -> None:
        if self._dead_letters is not None:
            self._dead_letters.send(table, reasons)
        elif self._formats.mode == "failfast":
            row, reason = min(reasons.items())
            one = {name: table[name][row].as_py() for name in ("topic", "partition", "offset")}
            raise Undecodable(
                f"the record at offset {one['offset']} of partition {one['topic']}-{one['partition']} cannot "
                f"be decoded: {reason}. Set deadLetterTopic to write such records to another topic, or mode "
                "to PERMISSIVE (nulls) or DROPMALFORMED (skip)."
            )

    def close(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.close()


def _wanted(formats: Formats, format: Format, schema: pa.Schema) -> pa.StructType:
    """Return the fields of the key or of the value that the query's schema contains."""
    import pyarrow as pa

    if format.name == "value":
        kafka = formats.kafka_names(includes_headers=True)
        return pa.struct([field for field in schema if field.name not in kafka])
    index = schema.get_field_index(formats.prefix + "key")
    if index < 0:
        return pa.struct([])
    kind = schema.field(index).type
    if not pa.types.is_struct(kind):
        raise InvalidOption(
            f"the query's schema declares the key as {kind}: with keyFormat it must be a struct"
        )
    return kind


def _check_columns(format: Format, decoder: Decoder, wanted: pa.StructType) -> None:
    known = {field.name for field in decoder.type}
    missing = [field.name for field in wanted if field.name not in known]
    if missing:
        raise InvalidOption(
            f"the schema of the {format.name}s has no field {missing[0]}; it has {', '.join(sorted(known))}"
        )


def _id_headers(table: pa.Table, name: str) -> pa.Array | None:
    """Return each row's header with a schema id; None if no row has one (the usual case)."""
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


# --- NOT NULL --------------------------------------------------------------------------------------------


# Decoders give null for a missing field, and Spark trusts the declaration, so it is checked here.


def _all_nullable(kind: pa.DataType) -> pa.DataType:
    """Return the type without NOT NULL, which Arrow's JSON reader would check by rules of its own."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _all_nullable(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_all_nullable(kind.value_type))
    return kind


def required_fields(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that are NOT NULL, or have a field that is."""
    return [field for field in schema if _is_required(field)]


def _is_required(field: pa.Field) -> bool:
    import pyarrow as pa

    inner = field.type if pa.types.is_struct(field.type) else ()
    return not field.nullable or any(map(_is_required, inner))


def rows_with_missing(table: pa.Table, required: list[pa.Field]) -> dict[int, str]:
    """Return the rows that lack a required column, each with the first one that it lacks."""
    rows: dict[int, str] = {}
    for field in required:
        column = table[field.name].combine_chunks()
        for row, path in _missing(column, field, column.is_null(), field.name):
            rows.setdefault(row, f"{path} is missing, but declared NOT NULL")
    return rows


def _missing(
    column: pa.Array, field: pa.Field, is_null: pa.BooleanArray, path: str
) -> Iterator[tuple[int, str]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not field.nullable and column.null_count:
        for row in pc.indices_nonzero(is_null).to_pylist():
            yield row, path
    if pa.types.is_struct(field.type):
        for child in field.type:
            inner = pc.struct_field(column, child.name)
            lacks = pc.and_not(inner.is_null(), column.is_null())  # a missing struct has no missing fields
            yield from _missing(inner, child, lacks, f"{path}.{child.name}")


def _check_nullable(wanted: pa.StructType) -> None:
    """PERMISSIVE needs columns that can be null."""
    for field in wanted:
        if not field.nullable:
            raise InvalidOption(
                f"column {field.name} is declared NOT NULL, but mode PERMISSIVE gives nulls for records that "
                "cannot be decoded: declare it nullable, or use another mode"
            )


# --- dead letters ----------------------------------------------------------------------------------------


class DeadLetters:
    """Written at least once: a retried task writes them again. Their headers name the origin."""

    def __init__(self, topic: str, settings: Mapping[str, str | Secret]) -> None:
        self._topic = topic
        known = producer_keys()
        self._settings: dict[str, object] = {name: text for name, text in settings.items() if name in known}
        self._producer: Producer | None = None

    def send(self, table: pa.Table, reasons: Mapping[int, str]) -> None:
        """Write these rows with their reasons; return when the broker has acknowledged them."""
        try:
            self._send(table, reasons)
        except ClientError as error:
            raise without_frames(error, DEAD_LETTERS) from None

    def _send(self, table: pa.Table, reasons: Mapping[int, str]) -> None:
        if self._producer is None:
            self._producer = Producer(self._settings)
        rows = sorted(reasons)
        deliveries = []
        for row, one in zip(rows, table.take(rows).to_pylist(), strict=True):
            letter = dead_letter(
                reasons[row],
                topic=one["topic"],
                partition=one["partition"],
                offset=one["offset"],
                timestamp_ms=-1 if one["timestamp"] is None else round(one["timestamp"].timestamp() * 1000),
                key=one["key"],
                value=one["value"],
                headers=[(header["key"], header["value"]) for header in one["headers"]],
            )
            deliveries.append(
                self._producer.send(self._topic, letter.value, letter.key, headers=letter.record_headers())
            )
        for delivery in deliveries:
            delivery.get()  # raises if it failed, since the row would be lost

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
