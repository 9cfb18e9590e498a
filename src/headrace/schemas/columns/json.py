"""JSON as columns, read by Arrow itself; what Arrow does not like is looked at more closely, by Python.

Arrow reads a stream of objects and would neither tell which one is wrong nor notice that one is two. So only
values that begin with { and end with } are given to it, with a line's end between: then no two of them can
be taken for one, and one that is two is noticed by the count. A part that fails is halved until it is small
enough for Python, which reads whatever Arrow does, and says what is wrong with the rest.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from headrace.machines.schemas.schema import SchemaType
from headrace.schemas.columns.decoder import Decoded, Failure
from headrace.schemas.columns.json_types import shown_field
from headrace.schemas.columns.json_values import JsonValues
from headrace.schemas.columns.rows import assembled, reason_of
from headrace.schemas.errors import RegistryTrouble, SchemaError
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
        """The texts of those that may be objects; all others are null."""
        return self._objects(values, None, [])

    def _objects(
        self, given: pa.Array | pa.ChunkedArray, id_headers: pa.Array | None, failures: list[Failure]
    ) -> pa.Array:
        """As texts without ids and space around them; what cannot be an object is a failure and null."""
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
        """`first` is the row that the values begin with."""
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
        """All rows, none of them touched by Python; None: one of them needs a closer look."""
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
        """The values without the ids in front of them; those without one are failures and null."""
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
        """Why bytes that begin so cannot be read; None: they can."""
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
                raise SchemaError(f"schema {id} is {written.type}, and not JSON")
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
    """With texts where dates are wanted."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_texts(kind.value_type))
    return pa.string() if pa.types.is_date(kind) else kind


class _Miscounted(Exception):
    """One value was several objects."""


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
    """The columns of values seen: what Arrow makes of them, bad ones left out."""
    values = _whole(sample).slice(0, SAMPLE_ROWS_MAX)
    tables: list[pa.Table] = []
    _infer(JsonDecoder(pa.struct([]), registry).objects_in(values).drop_null(), tables)
    if not tables:
        raise SchemaError("no value of the sample is a JSON object: give a schema")
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
