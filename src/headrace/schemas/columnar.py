"""The formats that columns are read from and written as, by their names."""

from headrace.machines.schemas.schema import SchemaType
from headrace.schemas.errors import MissingLibrary, SchemaError


def columnar_format(name: str) -> SchemaType:
    """Which one it is; columns need pyarrow, and where that is missing it is told here."""
    try:
        kind = SchemaType(name.upper())
    except ValueError:
        raise SchemaError(f"{name!r} is none of json, avro and protobuf") from None
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingLibrary("pyarrow", "reading and writing columns") from error
    return kind
