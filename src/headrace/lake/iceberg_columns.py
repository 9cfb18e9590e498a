"""The columns of an Iceberg table as Arrow's, with the ids by which Iceberg finds them in files.

Headrace reads files by the names of their columns, Iceberg by ids. Both agree as long as a name has had one
id, and an id one name, in all schemas of the table; a table in which they differ is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from headrace.lake.errors import WrongTable
from headrace.lake.rows import PARTITION

# Iceberg's readers have columns of their own with these names, and refuse tables that use one.
RESERVED = frozenset(
    ("_partition", "_file", "_pos", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number")
)
# In a table of a topic: its name in files and in Headrace → that in the table. Readers go by ids.
RENAMED = {PARTITION: "_topic_partition"}
_ID = b"PARQUET:field_id"


def arrow_columns(schema: Schema, *, of_topic: bool) -> pa.Schema:
    """Return the columns with their ids; files that are written with them have the ids too."""
    names = {new: old for old, new in RENAMED.items()} if of_topic else {}
    fields = [_plain(field) for field in schema_to_pyarrow(schema)]
    return pa.schema([field.with_name(names.get(field.name, field.name)) for field in fields])


def iceberg_columns(schema: pa.Schema, *, of_topic: bool) -> pa.Schema:
    """Return the columns by their names in the table, without ids; raise WrongTable if one is reserved."""
    names = RENAMED if of_topic else {}
    fields = [_bare(field.with_name(names.get(field.name, field.name))) for field in schema]
    found = [field.name for field in fields]
    for name in found:
        if name in RESERVED or found.count(name) > 1:
            raise WrongTable(f"column {name} has a name that Iceberg reserves: rename it")
    return pa.schema(fields)


def _plain(field: pa.Field) -> pa.Field:
    """pyiceberg gives types with 64-bit places, which files and the rest of Headrace do not have."""
    kind = field.type
    if pa.types.is_large_string(kind):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(kind):
        return field.with_type(pa.binary())
    if pa.types.is_large_list(kind):
        return field.with_type(pa.list_(_plain(kind.value_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_plain(each) for each in kind]))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_plain(kind.key_field), _plain(kind.item_field)))
    return field


def _bare(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_bare(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_bare(each) for each in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_bare(kind.key_field), _bare(kind.item_field))
    return pa.field(field.name, kind, field.nullable)


def column_ids(schema: pa.Schema) -> dict[str, tuple[int | None, pa.DataType | None]]:
    """Return the id and the type of each column and each field inside; a type that has fields is None."""
    return {path: (id, kind) for path, id, kind in _walk(schema, "")}


def _walk(fields: Iterable[pa.Field], path: str) -> Iterator[tuple[str, int | None, pa.DataType | None]]:
    for field in fields:
        name = f"{path}{field.name}"
        kind = field.type
        id = (field.metadata or {}).get(_ID)
        inner: Iterable[pa.Field] = ()
        if pa.types.is_struct(kind):
            inner = kind
        elif pa.types.is_list(kind):
            inner = [kind.value_field.with_name("element")]
        elif pa.types.is_map(kind):
            inner = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
        yield name, None if id is None else int(id), kind if inner == () else None
        yield from _walk(inner, f"{name}.")


def file_problem(file: pa.Schema, table: pa.Schema) -> str | None:
    """Return why a file cannot be one of a table; None if it can. A file may lack columns."""
    known = column_ids(table)
    for path, (id, kind) in column_ids(file).items():
        if path not in known:
            return f"column {path} is missing in the table"
        if known[path] != (id, kind):
            own_id, own_kind = known[path]
            return f"column {path} has id {id} and type {kind}, that of the table {own_id} and {own_kind}"
    return None


def renamed_column(schemas: Iterable[Schema]) -> str | None:
    """Return what has happened to a column that had two names, or to a name that had two columns."""
    names: dict[int, str] = {}
    ids: dict[str, int] = {}
    for schema in schemas:
        for path, (id, _) in column_ids(arrow_columns(schema, of_topic=False)).items():
            assert id is not None, "columns of a table have ids"
            if (other := names.setdefault(id, path)) != path:
                return f"column {other} was renamed to {path}"
            if ids.setdefault(path, id) != id:
                return f"column {path} was removed and added again"
    return None
