"""Decoding of JSON to columns by Arrow; Python decodes rows that Arrow rejects.

Arrow reads a stream of objects. It does not say which object is wrong, and does not notice that one value has
two objects. So Arrow gets only values that begin with { and end with }, separated by newlines: then it cannot
read two values as one, and the count shows if one value has two objects. A part that fails is halved until it
is small enough for Python, which reads everything that Arrow reads, and says what is wrong with other rows.

The types of the columns come from a schema or from a sample of values.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from headrace.schema_formats import json_schema
from headrace.schema_formats.json_schema import Part
from headrace.schema_formats.schema import Schema, SchemaType
from headrace.schemas.columns.decoder import Decoded, Failure
from headrace.schemas.columns.json_values import JsonValues
from headrace.schemas.columns.rows import assembled, reason_of
from headrace.schemas.errors import RegistryTrouble, SchemaError, UnsupportedSchema
from headrace.schemas.registry import Registry
from headrace.schemas.wire import GUID_MAGIC, GUID_PREFIX_BYTES, ID_MAGIC, PREFIX_BYTES, Frame, read_frame

SAMPLE_ROWS_MAX = 10_000
_SPACE = " \t\r\n"
_END = 2**31 - 1  # behind every value: without an end Arrow miscounts what it needs
# Below this Python is as quick as halving on.
HALVED_ROWS_MIN = 64


class JsonDecoder:
    def __init__(self, kind: pa.StructType, registry: Registry | None = None) -> None:
        self._type = kind
        self._registry = registry
        self._known: set[int] = set()
        self._values = JsonValues(kind)
        # Arrow reads neither maps nor base64; dates it takes for numbers, so they are read as texts
        self._is_plain = _is_plain(kind)
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema(list(_with_texts(kind))), unexpected_field_behavior="ignore"
        )

    @property
    def type(self) -> pa.StructType:
        return self._type

    def columns(self, values: pa.Array | pa.ChunkedArray, id_headers: pa.Array | None = None) -> Decoded:
        failures: list[Failure] = []
        structs: list[pa.StructArray] = []
        self._read(self._objects(values, id_headers, failures), 0, structs, failures)
        found = structs[0] if len(structs) == 1 else pa.concat_arrays(structs)
        return Decoded(found, sorted(failures))

    def objects_in(self, values: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The values that may be objects, as text; all others are null."""
        return self._objects(values, None, [])

    def _objects(
        self, given: pa.Array | pa.ChunkedArray, id_headers: pa.Array | None, failures: list[Failure]
    ) -> pa.Array:
        """The values as text without ids and surrounding whitespace; others are null, with a failure."""
        values = _whole(given)
        if self._registry is not None:
            values = self._unframed(values, id_headers, self._registry, failures)
        try:
            texts = values.cast(pa.string())  # a check, too: Arrow's reader accepts bytes that are not text
        except pa.ArrowInvalid:
            is_text = pa.array([value is None or _is_text(value) for value in values.to_pylist()])
            self._blame(values, is_text, failures)
            texts = pc.if_else(is_text, values, None).cast(pa.string())
        if pc.all(_in_braces(texts)).as_py():
            return texts
        texts = pc.ascii_trim(texts, _SPACE)
        are_right = _in_braces(texts)
        self._blame(values, are_right, failures)
        return pc.if_else(are_right, texts, None)

    def _blame(self, values: pa.Array, are_right: pa.Array, failures: list[Failure]) -> None:
        for row in pc.indices_nonzero(pc.invert(are_right)).to_pylist():
            try:
                self._values.read(values[row].as_py())
            except (ValueError, RecursionError) as error:
                failures.append(Failure(row, str(error)))

    def _read(
        self, values: pa.Array, first: int, structs: list[pa.StructArray], failures: list[Failure]
    ) -> None:
        """Decodes values; `first` is the row number of the first."""
        found = self._at_once(values) if self._is_plain else None
        if found is not None:
            structs.append(found)
        elif self._is_plain and len(values) >= 2 * HALVED_ROWS_MIN:
            middle = len(values) // 2
            self._read(values.slice(0, middle), first, structs, failures)
            self._read(values.slice(middle), first + middle, structs, failures)
        else:
            decoded = self._one_by_one(values)
            structs.append(decoded.struct)
            failures += [Failure(first + row, reason) for row, reason in decoded.failures]

    def _at_once(self, values: pa.Array) -> pa.StructArray | None:
        """All rows, decoded by Arrow; None if Arrow rejects one of them."""
        present = values.drop_null()
        if not len(present):
            return pa.nulls(len(values), self._type)
        try:
            found = _one_struct(_table(present, self._options)).cast(self._type)
        except (pa.ArrowException, _Miscounted):
            return None
        if len(present) < len(values):
            places = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
            found = found.take(pc.if_else(values.is_valid(), places, pa.scalar(None, pa.int64())))
        return found

    def _one_by_one(self, values: pa.Array) -> Decoded:
        rows: list[Any] = [None] * len(values)
        failures = []
        for row, value in enumerate(values.to_pylist()):
            if value is not None:
                try:
                    rows[row] = self._values.read(value.encode())
                except (ValueError, RecursionError) as error:
                    failures.append(Failure(row, str(error) or reason_of(error)))
        return assembled(rows, self._type, failures)

    def _unframed(
        self, values: pa.Array, id_headers: pa.Array | None, registry: Registry, failures: list[Failure]
    ) -> pa.Array:
        """The values without the ids in front of them; values without an id are null, with a failure."""
        reasons: dict[bytes, str | None] = {}  # of ids: each is judged once
        prefixes = pc.binary_slice(values, 0, PREFIX_BYTES).unique().drop_null().to_pylist()
        if id_headers is None and len(prefixes) == 1 and prefixes[0][:1] == bytes([ID_MAGIC]):
            reasons[prefixes[0]] = self._reason_against(prefixes[0], registry)
            if reasons[prefixes[0]] is None:  # one schema wrote them all
                return pc.binary_slice(values, PREFIX_BYTES, _END)
        data = values.to_pylist()
        headers = [None] * len(data) if id_headers is None else id_headers.to_pylist()
        for row, (value, header) in enumerate(zip(data, headers, strict=True)):
            if value is None:
                continue
            if header is None:
                start = value[: GUID_PREFIX_BYTES if value[:1] == bytes([GUID_MAGIC]) else PREFIX_BYTES]
                data[row] = value[len(start) :]
            else:
                start = header
            if start not in reasons:
                reasons[start] = self._reason_against(start, registry)
            if (reason := reasons[start]) is not None:
                failures.append(Failure(row, reason))
                data[row] = None
        return pa.array(data, pa.binary())

    def _reason_against(self, framed: bytes, registry: Registry) -> str | None:
        """Why values that begin with these bytes cannot be read; None: they can."""
        try:
            self._check(read_frame(framed, with_indexes=False), registry)
        except RegistryTrouble:
            raise
        except SchemaError as error:
            return reason_of(error)
        return None

    def _check(self, frame: Frame, registry: Registry) -> None:
        id = frame.id if frame.id is not None else registry.id_of_guid(frame.guid or "")
        if id not in self._known:
            written = registry.schema(id)
            if written.type is not SchemaType.JSON:
                raise SchemaError(f"schema {id} is of type {written.type}, not JSON")
            self._known.add(id)


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # of no chunk at all
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], pa.binary())
    return values.cast(pa.binary())


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_plain(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type)
    return not pa.types.is_map(kind) and not pa.types.is_binary(kind)


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """The type with text in place of dates."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_texts(kind.value_type))
    return pa.string() if pa.types.is_date(kind) else kind


class _Miscounted(Exception):
    """One value has several objects."""


def _in_braces(texts: pa.Array) -> pa.Array:
    return pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}")).fill_null(True)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _table(objects: pa.Array, options: Any) -> pa.Table:
    """Of texts in braces."""
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(objects)], objects), "\n")[0].as_buffer()
    # One block, so that line ends inside a value part nothing: the last of them is behind the last value.
    data = joined.to_pybytes() + b"\n"
    table = arrow_json.read_json(
        pa.BufferReader(data), arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1), options
    )
    if table.num_rows != len(objects):
        raise _Miscounted
    return table


def _one_struct(table: pa.Table) -> pa.StructArray:
    found = table.to_struct_array()
    return pa.concat_arrays(found.chunks) if found.num_chunks != 1 else found.chunk(0)


# --- learning ---------------------------------------------------------------------------------------------


def inferred_type(sample: pa.Array | pa.ChunkedArray, registry: Registry | None = None) -> pa.StructType:
    """The columns that Arrow infers from a sample of values, without those that are not valid."""
    values = _whole(sample).slice(0, SAMPLE_ROWS_MAX)
    tables: list[pa.Table] = []
    _infer(JsonDecoder(pa.struct([]), registry).objects_in(values).drop_null(), tables)
    if not tables:
        raise SchemaError("no value of the sample is a JSON object: pass a schema instead")
    merged = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    return pa.struct([shown_field(field) for field in merged])


def _infer(values: pa.Array, tables: list[pa.Table]) -> None:
    if not len(values):
        return
    try:
        tables.append(_table(values, arrow_json.ParseOptions()))
    except (pa.ArrowException, _Miscounted):
        if len(values) > 1:
            middle = len(values) // 2
            _infer(values.slice(0, middle), tables)
            _infer(values.slice(middle), tables)


def shown_field(field: pa.Field) -> pa.Field:
    """The field with text for a column of only nulls: it needs a type, and text accepts any later value."""
    return field.with_type(_known_type(field.type))


def _known_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([shown_field(each) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_known_type(kind.value_type))
    return kind


def type_of_schema(schema: Any, registry: Registry | None = None) -> pa.StructType:
    """Of a JSON schema, or of Arrow's own types."""
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    if isinstance(schema, pa.DataType):
        if not pa.types.is_struct(schema):
            raise UnsupportedSchema("the Arrow type of JSON values must be a struct")
        return schema
    assert isinstance(schema, Schema)
    imports = () if registry is None else registry.imports(schema)
    found = _type(json_schema.parse(schema.text, imports).root, ())
    if not pa.types.is_struct(found):
        raise UnsupportedSchema("a JSON schema whose values are not objects has no columns")
    return found


_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}


def _type(part: Part, within: tuple[int, ...]) -> pa.DataType:
    part = part.followed()
    if id(part.value) in within:
        raise UnsupportedSchema("the schema is recursive; recursive schemas cannot be converted to columns")
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
            if part.get("contentEncoding") == "base64":
                return pa.binary()
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
