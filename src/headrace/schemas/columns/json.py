"""JSON as columns, read by Arrow itself; only a batch with a bad row in it is looked at more closely.

Arrow reads a stream of objects and would neither tell which one is wrong nor notice that one is two. So only
values that begin with { and end with } are given to it, with a line's end between: then no two of them can
be taken for one, and one that is two is noticed by the count. A part that fails is halved until the rows to
blame are alone.
"""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from headrace.machines.schemas import json_schema
from headrace.machines.schemas.json_schema import Part
from headrace.machines.schemas.schema import Schema, SchemaType
from headrace.schemas.columns.decoder import Decoded, Failure
from headrace.schemas.columns.rows import assembled, reason_of
from headrace.schemas.errors import SchemaError, UnsupportedSchema
from headrace.schemas.registry import Registry
from headrace.schemas.wire import read_frame

PREFIX_BYTES = 5
SAMPLE_ROWS_MAX = 10_000


class JsonDecoder:
    def __init__(self, kind: pa.StructType, registry: Registry | None = None) -> None:
        self._type = kind
        self._registry = registry
        self._known: set[int] = set()
        # Arrow reads no maps and has no way to read objects as text
        self._is_plain = _is_plain(kind)

    @property
    def type(self) -> pa.StructType:
        return self._type

    def columns(self, values: pa.Array | pa.ChunkedArray, id_headers: pa.Array | None = None) -> Decoded:
        failures: list[Failure] = []
        whole = _whole(values)
        if self._registry is not None:
            whole = self._unframed(whole, id_headers, self._registry, failures)
        if self._is_plain:
            return _Halving(self._type, failures).decoded(whole)
        return _one_by_one(whole, self._type, failures)

    def _unframed(
        self, values: pa.Array, id_headers: pa.Array | None, registry: Registry, failures: list[Failure]
    ) -> pa.Array:
        """The values without the ids in front of them; those without one are failures and null."""
        data = values.to_pylist()
        headers = [None] * len(data) if id_headers is None else id_headers.to_pylist()
        for row, (value, header) in enumerate(zip(data, headers, strict=True)):
            if value is None:
                continue
            try:
                frame = read_frame(value if header is None else header, with_indexes=False)
                self._check(
                    frame.id if frame.id is not None else registry.id_of_guid(frame.guid or ""), registry
                )
                if header is None:
                    data[row] = value[frame.payload_at :]
            except SchemaError as error:
                if error.is_retriable:
                    raise
                failures.append(Failure(row, reason_of(error)))
                data[row] = None
        return pa.array(data, pa.binary())

    def _check(self, id: int, registry: Registry) -> None:
        if id not in self._known:
            written = registry.schema(id)
            if written.type is not SchemaType.JSON:
                raise SchemaError(f"schema {id} is {written.type}, and not JSON")
            self._known.add(id)


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # of no chunk at all
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], pa.binary())
    return values.cast(pa.binary())


# --- Arrow's reader ---------------------------------------------------------------------------------------


class _Halving:
    """Reads runs of objects; what fails is halved."""

    def __init__(self, kind: pa.StructType, failures: list[Failure]) -> None:
        self._kind = kind
        self._failures = failures
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"
        )

    def decoded(self, values: pa.Array) -> Decoded:
        found = self._at_once(values) if not self._failures else None
        return self._by_rows(values) if found is None else Decoded(found, [])

    def _at_once(self, values: pa.Array) -> pa.StructArray | None:
        """All rows, none of them touched by Python; None: one of them needs a closer look."""
        present = values.drop_null()
        if not len(present):
            return pa.nulls(len(values), self._kind)
        looks_right = pc.and_(pc.starts_with(present, "{"), pc.ends_with(present, "}"))
        if not pc.all(looks_right).as_py():
            return None
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(present)], present), b"\n")[0].as_buffer()
        try:
            table = _table(joined, len(present), self._options)
        except (pa.ArrowException, _Miscounted):
            return None
        found = _one_struct(table)
        if len(present) < len(values):
            places = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
            found = found.take(pc.if_else(values.is_valid(), places, pa.scalar(None, pa.int64())))
        return found

    def _by_rows(self, values: pa.Array) -> Decoded:
        rows = objects_in(values, self._failures)
        tables: list[pa.Table] = []
        read: list[int] = []
        self._read(rows, tables, read)
        if not read:
            return Decoded(pa.nulls(len(values), self._kind), sorted(self._failures))
        found = _one_struct(pa.concat_tables(tables))
        if len(read) < len(values):
            places: list[int | None] = [None] * len(values)
            for place, row in enumerate(read):
                places[row] = place
            found = found.take(pa.array(places, pa.int64()))
        return Decoded(found, sorted(self._failures))

    def _read(self, rows: list[tuple[int, bytes]], tables: list[pa.Table], read: list[int]) -> None:
        if not rows:
            return
        try:
            tables.append(_parsed(rows, self._options))
            read += [row for row, _ in rows]
        except (pa.ArrowException, _Miscounted) as error:
            if len(rows) == 1:
                row, value = rows[0]
                self._failures.append(Failure(row, _json_reason(value, error)))
                return
            middle = len(rows) // 2
            self._read(rows[:middle], tables, read)
            self._read(rows[middle:], tables, read)


class _Miscounted(Exception):
    """One value was several objects."""


def _parsed(rows: list[tuple[int, bytes]], options: Any) -> pa.Table:
    return _table(pa.py_buffer(b"\n".join(value for _, value in rows)), len(rows), options)


def _table(objects: pa.Buffer, count: int, options: Any) -> pa.Table:
    # One block, so that line ends inside a value part nothing: the last of them is behind the last value.
    data = objects.to_pybytes() + b"\n"
    table = arrow_json.read_json(
        pa.BufferReader(data), arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1), options
    )
    if table.num_rows != count:
        raise _Miscounted
    return table


def _one_struct(table: pa.Table) -> pa.StructArray:
    found = table.to_struct_array()
    return pa.concat_arrays(found.chunks) if found.num_chunks != 1 else found.chunk(0)


def objects_in(values: pa.Array, failures: list[Failure]) -> list[tuple[int, bytes]]:
    """Rows that may be objects; those that cannot be are failures."""
    rows = []
    for row, value in enumerate(values.to_pylist()):
        if value is None:
            continue
        trimmed = value.strip(b" \t\r\n")
        if trimmed[:1] == b"{" and trimmed[-1:] == b"}":
            rows.append((row, trimmed))
        else:
            failures.append(Failure(row, "there are no bytes" if not value else "it is no JSON object"))
    return rows


def _json_reason(value: bytes, error: Exception) -> str:
    """In Python's words when it is no JSON, in Arrow's when it does not fit the columns."""
    try:
        json.loads(value)
    except (ValueError, RecursionError) as fault:
        return f"it is no JSON: {fault}"
    return f"it does not fit the columns: {error}"


# --- Python's reader, where Arrow's cannot ----------------------------------------------------------------


def _one_by_one(values: pa.Array, kind: pa.StructType, failures: list[Failure]) -> Decoded:
    rows: list[Any] = [None] * len(values)
    for row, value in objects_in(values, failures):
        try:
            rows[row] = _shaped(json.loads(value), kind)
        except (ValueError, RecursionError, TypeError) as error:
            failures.append(Failure(row, f"it is no JSON: {error}"))
    found = assembled(rows, kind, failures)
    return Decoded(found.struct, sorted(found.failures))


def _shaped(value: Any, kind: pa.DataType) -> Any:
    """Objects as pairs where a map is wanted, and as text where text is."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is no object")
        return {each.name: _shaped(value.get(each.name), each.type) for each in kind}
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is no object")
        return [(key, _shaped(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is no list")
        return [_shaped(each, kind.value_type) for each in value]
    if pa.types.is_string(kind) and isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if pa.types.is_timestamp(kind) and isinstance(value, str):
        return pc.cast(pa.scalar(value), kind).as_py()
    return value


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_plain(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type)
    return not pa.types.is_map(kind)


# --- types ------------------------------------------------------------------------------------------------


def inferred_type(sample: pa.Array | pa.ChunkedArray, registry: Registry | None = None) -> pa.StructType:
    """The columns of values seen: what Arrow makes of them, bad ones left out."""
    values = _whole(sample).slice(0, SAMPLE_ROWS_MAX)
    if registry is not None:
        values = JsonDecoder(pa.struct([]), registry)._unframed(values, None, registry, [])
    tables: list[pa.Table] = []
    _infer(objects_in(values, []), tables)
    if not tables:
        raise SchemaError("no value of the sample is a JSON object: give a schema")
    merged = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    return pa.struct([_spark_friendly(field) for field in merged])


def _infer(rows: list[tuple[int, bytes]], tables: list[pa.Table]) -> None:
    if not rows:
        return
    try:
        tables.append(_parsed(rows, arrow_json.ParseOptions()))
    except (pa.ArrowException, _Miscounted):
        if len(rows) > 1:
            middle = len(rows) // 2
            _infer(rows[:middle], tables)
            _infer(rows[middle:], tables)


def _spark_friendly(field: pa.Field) -> pa.Field:
    """A column of nulls only is text: a type must be chosen, and text can hold what comes later."""
    return field.with_type(_known_type(field.type))


def _known_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([_spark_friendly(each) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_known_type(kind.value_type))
    return kind


def type_of_schema(schema: Any, registry: Registry | None = None) -> pa.StructType:
    """Of a JSON schema, or of Arrow's own types."""
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    if isinstance(schema, pa.DataType):
        if not pa.types.is_struct(schema):
            raise UnsupportedSchema("the columns of JSON are a struct")
        return schema
    assert isinstance(schema, Schema)
    imports = () if registry is None else registry.imports(schema)
    found = _type(json_schema.parse(schema.text, imports).root, ())
    if not pa.types.is_struct(found):
        raise UnsupportedSchema("a JSON schema whose values are no objects has no columns")
    return found


_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}


def _type(part: Part, within: tuple[int, ...]) -> pa.DataType:
    part = part.followed()
    if id(part.value) in within:
        raise UnsupportedSchema("the schema contains itself: no column can hold it")
    if isinstance(part.value, dict):
        within = (*within, id(part.value))
    sort = part.sort
    if sort == "combined" and part.combination is not None:
        _, parts = part.combination
        real = [each.followed() for each in parts if each.followed().get("type") != "null"]
        # null or something is that something; anything else is kept as text
        return _type(real[0], within) if len(real) == 1 else pa.string()
    match sort:
        case "object":
            return _object(part, within)
        case "array":
            items = part.get("items")
            return pa.list_(_type(part.inner(items), within) if isinstance(items, dict) else pa.string())
        case "number":
            return pa.int64() if part.get("type") == "integer" else pa.float64()
        case "boolean":
            return pa.bool_()
        case "string":
            return _FORMATS.get(part.get("format", ""), pa.string())
    return pa.string()


def _object(part: Part, within: tuple[int, ...]) -> pa.DataType:
    properties = part.get("properties")
    if properties:
        return pa.struct([(name, _type(part.inner(each), within)) for name, each in properties.items()])
    values = part.get("additionalProperties")
    if isinstance(values, dict) and values:
        return pa.map_(pa.string(), _type(part.inner(values), within))
    return pa.string()
