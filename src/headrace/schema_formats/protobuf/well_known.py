"""Well-known types, which every Protobuf implementation has and nobody registers."""

from headrace.schema_formats.protobuf.model import Enum, Message

_MESSAGES = {
    "google/protobuf/any.proto": "Any",
    "google/protobuf/duration.proto": "Duration",
    "google/protobuf/empty.proto": "Empty",
    "google/protobuf/field_mask.proto": "FieldMask",
    "google/protobuf/struct.proto": "Struct Value ListValue",
    "google/protobuf/timestamp.proto": "Timestamp",
    "google/protobuf/wrappers.proto": (
        "DoubleValue FloatValue Int64Value UInt64Value Int32Value UInt32Value "
        "BoolValue StringValue BytesValue"
    ),
    "google/protobuf/descriptor.proto": "FileOptions MessageOptions FieldOptions EnumOptions",
}


def types_of(path: str) -> dict[str, Message | Enum] | None:
    """Types of a well-known file by their full names, their fields left out; None: it is not one."""
    if path not in _MESSAGES:
        return None
    found: dict[str, Message | Enum] = {
        f"google.protobuf.{name}": Message(name) for name in _MESSAGES[path].split()
    }
    if path == "google/protobuf/struct.proto":
        found["google.protobuf.NullValue"] = Enum("NullValue", [("NULL_VALUE", 0)])
    return found
