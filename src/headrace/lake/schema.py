"""How the columns of a table change when rows with other columns arrive.

Columns are added, also inside structures; int32 fits into int64 and float into double; a column that the rows
lack is null. A table of results may also get wider columns. Anything else would lose or reinterpret data and
is refused.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.lake.errors import WrongTable

# type of the rows → types of a table's column that have room for all of its values
_FITS: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.float32(): (pa.float64(),),
}


class _Unlike(Exception):
    """Two types have no common one; the message says where."""


def joined_schema(table: pa.Schema, rows: pa.Schema, *, widens: bool = False) -> pa.Schema:
    """Return the table's columns and then the new ones; raise WrongTable if the rows do not fit.

    `widens`: a column of the table may become wider.
    """
    try:
        return pa.schema(_joined_fields(list(table), list(rows), "", widens))
    except _Unlike as error:
        raise WrongTable(str(error)) from None


def _joined_fields(table: list[pa.Field], rows: list[pa.Field], path: str, widens: bool) -> list[pa.Field]:
    given = {field.name: field for field in rows}
    joined = []
    for held in table:
        field = given.get(held.name)
        name = path + held.name
        joined.append(
            held if field is None else held.with_type(_joined_type(held.type, field.type, name, widens))
        )
    names = {held.name for held in table}
    by_lower = {held.name.lower(): held.name for held in table}
    for field in rows:
        if field.name in names:
            continue
        if (other := by_lower.get(field.name.lower())) is not None:
            raise _Unlike(
                f"column {path}{field.name} differs from the table's {path}{other} only in its case: "
                "rename it"
            )
        joined.append(field.with_nullable(True))
    return joined


def _joined_type(table: pa.DataType, rows: pa.DataType, path: str, widens: bool) -> pa.DataType:
    if rows == table or table in _FITS.get(rows, ()):
        return table
    if widens and rows in _FITS.get(table, ()):
        return rows
    if pa.types.is_list(rows) and pa.types.is_list(table):
        element = _joined_type(table.value_type, rows.value_type, f"{path}.element", widens)
        return pa.list_(table.value_field.with_type(element))
    if pa.types.is_map(rows) and pa.types.is_map(table):
        key = _joined_type(table.key_type, rows.key_type, f"{path}.key", widens)
        item = _joined_type(table.item_type, rows.item_type, f"{path}.value", widens)
        is_same = (key, item) == (table.key_type, table.item_type)
        return table if is_same else pa.map_(key, item)
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        return pa.struct(_joined_fields(list(table), list(rows), f"{path}.", widens))
    raise _Unlike(
        f"column {path} of the rows is {rows}, that of the table is {table}: cast it, or give it another name"
    )


def fits(rows: pa.DataType, table: pa.DataType) -> bool:
    """Whether every value of a type can be stored in a column without a loss."""
    try:
        return bool(_joined_type(table, rows, "", False) == table)
    except _Unlike:
        return False
