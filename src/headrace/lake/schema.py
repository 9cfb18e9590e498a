"""How the columns of a table change when rows with other columns arrive.

Columns are added; int32 fits into int64 and float into double; a column that the rows lack is null. Anything
else would lose or reinterpret data and is refused.
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


def joined_schema(table: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """Return the table's columns and then the new ones; raise WrongTable if the rows do not fit."""
    known = {field.name: field for field in table}
    for field in rows:
        held = known.get(field.name)
        if held is not None and not fits(field.type, held.type):
            raise WrongTable(
                f"column {field.name} of the rows is {field.type}, that of the table is {held.type}: "
                "cast it, or give it another name"
            )
    by_lower = {name.lower(): name for name in known}
    new = [field for field in rows if field.name not in known]
    for field in new:
        if (other := by_lower.get(field.name.lower())) is not None:
            raise WrongTable(
                f"column {field.name} differs from the table's {other} only in its case: rename it"
            )
    return pa.schema([*table, *(field.with_nullable(True) for field in new)])


def fits(rows: pa.DataType, table: pa.DataType) -> bool:
    """Whether every value of a type can be stored in a column without a loss."""
    if rows == table or table in _FITS.get(rows, ()):
        return True
    if pa.types.is_list(rows) and pa.types.is_list(table):
        return fits(rows.value_type, table.value_type)
    if pa.types.is_map(rows) and pa.types.is_map(table):
        return fits(rows.key_type, table.key_type) and fits(rows.item_type, table.item_type)
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        names = [field.name for field in rows] == [field.name for field in table]
        return names and all(fits(one.type, other.type) for one, other in zip(rows, table))
    return False
