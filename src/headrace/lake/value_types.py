"""The columns that hold the fields of decoded values in a lake table.

Whole numbers are stored as int64 and floats as double. So a field that its producers widen later needs no
change of the table, and no reader meets two types of one column. A Delta table has no times of day and no
durations; they are stored as microseconds. Timestamps without a time zone are stored as text, because as
moments they would mean something else.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.errors import WrongTable
from headrace.lake.schema import joined_schema

# Of column names in a Delta table without column mapping.
_FORBIDDEN = frozenset(" ,;{}()\n\t=")


class Unstorable(ValueError):
    """Values of this schema cannot be rows of the table; the message says why."""


def stored_schema(fields: pa.StructType, own: pa.Schema) -> pa.Schema:
    """Return the columns for the fields of values; `own` are the table's columns for the record itself."""
    taken = {name.lower(): name for name in own.names}
    columns = []
    for field in fields:
        other = taken.get(field.name.lower())
        if other is not None:
            raise Unstorable(f"field {field.name} has the name of another column, {other}")
        if _FORBIDDEN & set(field.name) or not field.name:
            raise Unstorable(f"field {field.name!r} has a name that a column cannot have")
        taken[field.name.lower()] = field.name
        columns.append(pa.field(field.name, stored_type(field.type, field.name)))
    return pa.schema(columns)


def stored_type(kind: pa.DataType, path: str) -> pa.DataType:
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise Unstorable(f"{path} is a structure without fields")
        return pa.struct(
            [pa.field(each.name, stored_type(each.type, f"{path}.{each.name}")) for each in kind]
        )
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type, path)))
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type, path), stored_type(kind.item_type, path))
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.string() if kind.tz is None else pa.timestamp("us", "UTC")
    if pa.types.is_null(kind):
        return pa.string()
    if (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal128(kind)
    ):
        return kind
    raise Unstorable(f"{path} is of type {kind}, which a table cannot have")


def stored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert decoded values to the type of their column."""
    found = column.type
    if found == kind:
        return column
    if pa.types.is_struct(found):
        children = [
            stored(child, kind.field(place).type)
            for place, child in enumerate(column.flatten())  # with the nulls of the structure
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(found) or pa.types.is_map(found):
        return _stored_elements(column, kind)
    if pa.types.is_time(found):
        return column.cast(pa.time64("us")).cast(pa.int64())
    if pa.types.is_duration(found):
        return column.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_timestamp(found) and found.tz is None:
        return pc.strftime(column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
    return column.cast(kind)


def _stored_elements(column: pa.Array, kind: pa.DataType) -> pa.Array:
    # the bounds of each row, as if the array began at its own first element
    sizes = pc.list_value_length(column) if pa.types.is_list(column.type) else _map_sizes(column)
    bounds = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(sizes.fill_null(0)).cast(pa.int32())]
    )
    starts = pc.if_else(column.is_valid(), bounds.slice(0, len(column)), pa.scalar(None, pa.int32()))
    places = pa.concat_arrays([starts, bounds.slice(len(column))])  # a null start is a null row
    if pa.types.is_map(column.type):
        first = column.offsets[0].as_py() if len(column) else 0
        last = column.offsets[-1].as_py() if len(column) else 0
        keys = stored(column.keys.slice(first, last - first), kind.key_type)
        items = stored(column.items.slice(first, last - first), kind.item_type)
        return pa.MapArray.from_arrays(places, keys, items, type=kind)
    return pa.ListArray.from_arrays(places, stored(column.flatten(), kind.value_type), type=kind)


def _map_sizes(column: pa.Array) -> pa.Array:
    offsets = column.offsets
    return pc.subtract(offsets.slice(1), offsets.slice(0, len(column)))


def joined_or_reason(table: pa.Schema, rows: pa.Schema) -> pa.Schema | str:
    """Return the table's columns with those of the rows, or why the rows do not fit."""
    try:
        return joined_schema(table, rows)
    except WrongTable as error:
        return str(error)
