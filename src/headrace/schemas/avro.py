"""Encoding and decoding of Avro values with fastavro.

fastavro uses the index of an enum's symbol or of a union's branch as the index of a Python list, where -1 is
the last: damaged bytes would be read as another value. The schemas here have lists that refuse such an index.
"""

import io
import json
from collections.abc import Callable
from typing import Any

from headrace.schema_formats.schema import Imports
from headrace.schemas.errors import MissingLibrary

try:
    import fastavro
    from fastavro.schema import SchemaParseException
except ImportError as error:
    raise MissingLibrary("fastavro", "Avro") from error


def compiled(text: str, imports: Imports = ()) -> Any:
    """The schema in fastavro's form, including the schemas that it imports."""
    names: dict[str, Any] = {}
    try:
        for _, imported in imports:
            fastavro.parse_schema(_json(imported), names)
        imported_names = dict(names)
        parsed = fastavro.parse_schema(_json(text), names)
        if not imported_names:
            return parsed
        return fastavro.parse_schema(_whole(parsed, imported_names))
    except SchemaParseException as error:
        raise ValueError(f"not an Avro schema: {error}") from error


def _whole(schema: Any, missing: dict[str, Any]) -> Any:
    """The schema with each missing type inserted where it is first named."""
    if isinstance(schema, str):
        return _whole(missing.pop(schema), missing) if schema in missing else schema
    if isinstance(schema, list):
        return [_whole(branch, missing) for branch in schema]
    made = {key: value for key, value in schema.items() if not key.startswith("__")}
    for key in ("type", "items", "values"):
        if key in made:
            made[key] = _whole(made[key], missing)
    if "fields" in made:
        made["fields"] = [{**field, "type": _whole(field["type"], missing)} for field in made["fields"]]
    return made


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()  # a bare `string`


def writer(schema: Any) -> Callable[[Any], bytes]:
    write = fastavro.schemaless_writer

    def encode(value: Any) -> bytes:
        out = io.BytesIO()
        write(out, schema, value, strict_allow_default=True)
        return out.getvalue()

    return encode


def reader(written: Any, wanted: Any | None = None) -> Callable[[bytes], Any]:
    """Reads values of the writer's schema as values of the reader's schema: adds fields with their defaults,
    and leaves others out.
    """
    read = fastavro.schemaless_reader
    if wanted == written:
        wanted = None
    is_record = _is_record(written) and (wanted is None or _is_record(wanted))
    if not is_record:
        written, wanted = _wrapped(written), None if wanted is None else _wrapped(wanted)
    written = _strict(written)

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value: Any = read(stream, written, wanted)
        left = len(data) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes are left after the value")
        return value if is_record else value["value"]

    return decode


def _is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "record"


def _wrapped(schema: Any) -> Any:
    """A record with this schema as its only field, which has the same bytes. fastavro uses a record's schema
    as it is, but parses all other schemas again each time.
    """
    fields = [{"name": "value", "type": schema}]
    return fastavro.parse_schema({"type": "record", "name": "headrace.Wrapped", "fields": fields})


def _strict(schema: Any) -> Any:
    """The same schema with lists of symbols and branches that refuse an index out of range."""
    if isinstance(schema, list):
        return _branches([_strict(branch) for branch in schema])
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for key in ("type", "items", "values"):
        if key in made:
            made[key] = _strict(made[key])
    if "fields" in made:
        made["fields"] = [{**field, "type": _strict(field["type"])} for field in made["fields"]]
    if "symbols" in made:
        made["symbols"] = _Numbers(made["symbols"], f"symbols of the enum {made.get('name')}")
    if "__named_schemas" in made:
        made["__named_schemas"] = {name: _strict(named) for name, named in made["__named_schemas"].items()}
    return made


class _Numbers(dict[int, Any]):
    """Symbols or branches by their index."""

    def __init__(self, items: list[Any], what: str) -> None:
        super().__init__(enumerate(items))
        self._what = what

    def __missing__(self, index: int) -> Any:
        raise _no_such_index(index, len(self), self._what)


def _no_such_index(index: int, count: int, what: str) -> ValueError:
    return ValueError(
        f"index {index} is not among the {count} {what}: the bytes are damaged or have another schema"
    )


def _branches(items: list[Any]) -> list[Any]:
    """A union, which must be a list for fastavro. This list looks an index up in a dict. Its length is 0,
    because compiled code adds the length to an index below 0 before the lookup.
    """
    lookup = _Numbers(items, "branches of a union").__getitem__
    made: list[Any] = type("_Branches", (list,), {"__getitem__": lookup, "__len__": lambda _: 0})(items)
    return made
