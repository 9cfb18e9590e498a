"""Decoding of a topic's values to the typed columns of its lake table.

Each value is decoded with the schema that its producer used: the one that the table declares, or the one of
the id in the value. The columns of the table are those of all schemas that were seen. So which row a record
becomes depends on nothing but the record, and a new schema adds columns without changing older rows. A value
that cannot be decoded, or whose fields do not fit the columns, gets a reason. Errors of the registry itself
are raised: no record is their cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.errors import WrongTable
from headrace.lake.rows import OFFSET, TOMBSTONE, fitted, own_schema
from headrace.lake.value_types import Unstorable, joined_or_reason, stored, stored_schema
from headrace.schema_formats.schema import InvalidSchema, SchemaType
from headrace.schemas import Decoder, Registry, RegistryTrouble, SchemaError, decoder_for
from headrace.schemas.columns.rows import reason_of
from headrace.schemas.errors import MissingLibrary, SchemaUnknown
from headrace.schemas.wire import ID_MAGIC, PREFIX_BYTES, read_frame

FORMAT, SCHEMA, MESSAGE, KEEPS = (
    "headrace.value.format",
    "headrace.value.schema",
    "headrace.value.message",
    "headrace.value.keep",
)
REGISTRY = "registry"
FORMATS = ("json", "avro", "protobuf", REGISTRY)
_ID_HEADER = "__value_schema_id"


class ValueFormat(NamedTuple):
    """What the values of a topic are; a property of its table."""

    format: str  # one of FORMATS
    schema: str | None = None  # text; None: each value begins with the id of its schema
    message: str | None = None  # of a Protobuf schema with several
    keeps_value: bool = False  # the table also has the bytes

    def properties(self) -> dict[str, str]:
        found = {FORMAT: self.format, SCHEMA: self.schema, MESSAGE: self.message}
        return {name: text for name, text in found.items() if text} | {KEEPS: str(self.keeps_value).lower()}

    @property
    def own_schema(self) -> pa.Schema:
        """The columns of the record itself, beside those of its value's fields."""
        return own_schema(keeps_value=self.keeps_value)


def format_in(properties: Mapping[str, str | None]) -> ValueFormat | None:
    """Return the format that a table's properties name; None: the table has the bytes only."""
    format = properties.get(FORMAT)
    if not format:
        return None
    keeps = properties.get(KEEPS) == "true"
    return ValueFormat(format, properties.get(SCHEMA), properties.get(MESSAGE), keeps)


class DecodedRows(NamedTuple):
    rows: pa.Table  # those that could be decoded, with the columns of the table and then the new ones
    reasons: dict[int, str]  # why the others could not; by offset


class ValueDecoder:
    """Decoders are kept, so that each schema is fetched and compiled once."""

    def __init__(self, format: ValueFormat, registry: Registry | None = None) -> None:
        if format.format == REGISTRY and registry is None:
            raise WrongTable("the values have ids of schemas in a registry: name the registry's address")
        self._format = format
        self._registry = registry if format.format == REGISTRY else None
        self._decoders: dict[object, Decoder | str] = {}  # by what identifies a schema; a str: why not
        if format.format != REGISTRY:
            decoder = decoder_for(format.format, schema=format.schema, message=format.message)
            try:
                stored_schema(decoder.type, format.own_schema)
            except Unstorable as error:
                raise WrongTable(f"the schema cannot be that of a table: {error}") from error
            self._decoders[None] = decoder

    def declared_columns(self) -> pa.Schema:
        """Return the columns that are known before any record; of a registry's schemas there are none."""
        own = self._format.own_schema
        decoder = self._decoders.get(None)
        if decoder is None or isinstance(decoder, str):
            return own
        return pa.schema([*own, *stored_schema(decoder.type, own)])

    def decode(self, raw: pa.Table, schema: pa.Schema) -> DecodedRows:
        """Decode records of one partition for a table with these columns."""
        values = raw["_value"].combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # of no chunk
            values = pa.array([], pa.binary())
        headers = _id_headers(raw) if self._registry is not None else None
        failures: dict[int, str] = {}
        groups: list[tuple[pa.Array, pa.Schema, list[pa.Array]]] = []
        target = schema
        for key, rows in self._groups(values, headers, failures).items():
            decoder = self._decoder(key)
            if isinstance(decoder, str):
                failures |= dict.fromkeys(rows.to_pylist(), decoder)
                continue
            columns = stored_schema(decoder.type, self._format.own_schema)
            joined = joined_or_reason(target, columns)
            if isinstance(joined, str):
                failures |= dict.fromkeys(rows.to_pylist(), joined)
                continue
            found = decoder.columns(values.take(rows), None if headers is None else headers.take(rows))
            places = rows.to_pylist()
            failures |= {places[row]: reason for row, reason in found.failures}
            arrays = [stored(one, kind.type) for one, kind in zip(found.struct.flatten(), columns)]
            groups.append((rows, columns, arrays))
            target = joined
        return self._assembled(raw, target, groups, failures)

    def _assembled(
        self,
        raw: pa.Table,
        target: pa.Schema,
        groups: list[tuple[pa.Array, pa.Schema, list[pa.Array]]],
        failures: Mapping[int, str],
    ) -> DecodedRows:
        own = raw.append_column(
            TOMBSTONE, pc.if_else(raw["_value"].is_null(), True, pa.scalar(None, pa.bool_()))
        )
        if not self._format.keeps_value:
            own = own.drop_columns(["_value"])
        parts = []
        order = []
        is_tombstone = raw["_value"].is_null()
        if pc.any(is_tombstone).as_py():
            rows = pc.indices_nonzero(is_tombstone)
            parts.append(fitted(own.take(rows), target))
            order.append(rows.cast(pa.int64()))
        for rows, columns, arrays in groups:
            part = own.take(rows)
            for field, array in zip(columns, arrays):
                part = part.append_column(field, array)
            parts.append(fitted(part, target))
            order.append(rows.cast(pa.int64()))
        table = pa.concat_tables(parts) if parts else target.empty_table()
        places = pa.concat_arrays(order) if order else pa.array([], pa.int64())
        if len(parts) > 1:
            sorted_places = pc.sort_indices(places)
            table, places = table.take(sorted_places), places.take(sorted_places)
        if failures:
            table = table.filter(pc.invert(pc.is_in(places, pa.array(list(failures), pa.int64()))))
        offsets = raw[OFFSET]
        return DecodedRows(table, {offsets[row].as_py(): text for row, text in sorted(failures.items())})

    # --- which schema wrote a value ----------------------------------------------------------------------

    def _groups(
        self, values: pa.Array, headers: pa.Array | None, failures: dict[int, str]
    ) -> dict[object, pa.Array]:
        """Return the rows of each schema, in their order; tombstones are in none."""
        present = pc.indices_nonzero(values.is_valid())
        if self._registry is None:
            return {None: present} if len(present) else {}
        is_protobuf = _AskedOnce(self._registry)
        prefixes = pc.binary_slice(values, 0, PREFIX_BYTES).unique().drop_null().to_pylist()
        if headers is None and len(prefixes) == 1 and prefixes[0][:1] == bytes([ID_MAGIC]):
            id = int.from_bytes(prefixes[0][1:], "big")
            if len(prefixes[0]) == PREFIX_BYTES and not is_protobuf(id):
                return {id: present}  # one schema wrote them all
        found: dict[object, list[int]] = {}
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            header = None if headers is None else headers[row].as_py()
            try:
                key = self._key(value if header is None else header, is_protobuf)
                found.setdefault(key, []).append(row)
            except RegistryTrouble:
                raise
            except SchemaError as error:
                failures[row] = reason_of(error)
        return {key: pa.array(rows, pa.uint64()) for key, rows in found.items()}

    def _key(self, framed: bytes, is_protobuf: _AskedOnce) -> object:
        """The id; of a Protobuf schema also which of its messages."""
        assert self._registry is not None
        frame = read_frame(framed, with_indexes=False)
        id = frame.id if frame.id is not None else self._registry.id_of_guid(frame.guid or "")
        return (id, read_frame(framed, with_indexes=True).indexes) if is_protobuf(id) else id

    def _decoder(self, key: object) -> Decoder | str:
        """Return the decoder of a schema, or why there is none."""
        found = self._decoders.get(key)
        if found is None:
            try:
                found = self._new_decoder(key)
                stored_schema(found.type, self._format.own_schema)
            except (RegistryTrouble, MissingLibrary):
                raise
            except (SchemaError, InvalidSchema, Unstorable) as error:
                return reason_of(error)  # not kept: a schema that is unknown now may be registered soon
            self._decoders[key] = found
        return found

    def _new_decoder(self, key: object) -> Decoder:
        assert self._registry is not None
        id, indexes = key if isinstance(key, tuple) else (key, None)
        schema = self._registry.schema(id)
        message = None
        if indexes is not None:
            from headrace.schemas.protobuf import ProtobufFile

            file = ProtobufFile(schema.text, self._registry.imports(schema))
            message = file.at(indexes, self._format.message).full_name
        return decoder_for(schema.type.value, schema=schema, registry=self._registry, message=message)


def _id_headers(raw: pa.Table) -> pa.Array | None:
    """Return each record's header with a schema id; None if no record has one (the usual case)."""
    headers = raw["_headers"]
    if not any(len(chunk.values) for chunk in headers.chunks):
        return None
    found = [
        next((header["value"] for header in row or () if header["key"] == _ID_HEADER), None)
        for row in headers.to_pylist()
    ]
    return pa.array(found, pa.binary()) if any(found) else None


class _AskedOnce:
    """Whether a schema is one of Protobuf; no batch asks the registry twice for an id that it lacks."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[int, bool] = {}

    def __call__(self, id: int) -> bool:
        """False for an unknown schema too, whose reason comes later."""
        if id not in self._known:
            try:
                self._known[id] = self._registry.schema(id).type is SchemaType.PROTOBUF
            except SchemaUnknown:
                self._known[id] = False
        return self._known[id]
