"""Avro values as bytes and back, by fastavro."""

import io
import json
from collections.abc import Callable
from typing import Any

from headrace.machines.schemas.schema import Imports
from headrace.schemas.errors import MissingLibrary

try:
    import fastavro
    from fastavro.schema import SchemaParseException
except ImportError as error:
    raise MissingLibrary("fastavro", "Avro") from error


def compiled(text: str, imports: Imports = ()) -> Any:
    """The schema as fastavro wants it, with what it imports in it."""
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
        raise ValueError(f"this is no Avro schema: {error}") from error


def _whole(schema: Any, missing: dict[str, Any]) -> Any:
    """With each missing type where it is first named; those that were put in are missing no more."""
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
    """Reads what was written with one schema as the other says: fields added with their defaults, others
    left out.
    """
    read = fastavro.schemaless_reader
    if wanted == written:
        wanted = None

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = read(stream, written, wanted)
        left = len(data) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes are left over behind the value")
        return value

    return decode
