"""Encoding and decoding of files as google.protobuf.FileDescriptorProto.

Custom options are left out, as are services and extensions: they need their own definitions to be encoded.
"""

from headrace.schema_formats.protobuf.model import SCALARS, Enum, Field, File, Import, Message, Option
from headrace.schema_formats.protobuf.tokens import quoted, unquoted
from headrace.schema_formats.protobuf.wire import fields, message, number, signed, sized, text, whole
from headrace.schema_formats.schema import InvalidSchema

LABELS = {"": 1, "optional": 1, "required": 2, "repeated": 3}
TYPE_MESSAGE, TYPE_ENUM = 11, 14
_SCALAR_NAMES = {code: name for name, code in SCALARS.items()}
NESTING_MAX = 64

# Tags of google.protobuf.FileOptions, with whether they are texts.
_FILE_OPTIONS = {
    "java_package": (1, True),
    "java_outer_classname": (8, True),
    "java_multiple_files": (10, False),
    "go_package": (11, True),
    "objc_class_prefix": (36, True),
    "csharp_namespace": (37, True),
    "swift_prefix": (39, True),
    "php_namespace": (41, True),
    "ruby_package": (45, True),
}
_FILE_OPTIONS_BY_TAG = {tag: (name, is_text) for name, (tag, is_text) in _FILE_OPTIONS.items()}
_FIELD_FLAGS = {"packed": 2, "deprecated": 3}


# --- writing ----------------------------------------------------------------------------------------------


def encode(file: File, name: str, known: dict[str, Message | Enum]) -> bytes:
    """The descriptor of a file whose type names are absolute; `known` are all types it can name."""
    parts = [sized(1, name)]
    if file.package:
        parts.append(sized(2, file.package))
    parts += [sized(3, each.path) for each in file.imports]
    scope = f".{file.package}" if file.package else ""
    parts += [sized(4, _message(each, scope, file, known)) for each in file.messages]
    parts += [sized(5, _enum(each)) for each in file.enums]
    options = b"".join(
        sized(tag, unquoted(option.value)) if is_text else number(tag, option.value == "true")
        for option in file.options
        if option.name in _FILE_OPTIONS
        for tag, is_text in (_FILE_OPTIONS[option.name],)
    )
    if options:
        parts.append(sized(8, options))
    for tag, modifier in ((10, "public"), (11, "weak")):
        parts += [number(tag, at) for at, each in enumerate(file.imports) if each.modifier == modifier]
    if file.syntax != "proto2":
        parts.append(sized(12, file.syntax))
    return b"".join(parts)


def _message(declared: Message, scope: str, file: File, known: dict[str, Message | Enum]) -> bytes:
    scope = f"{scope}.{declared.name}"
    parts = [sized(1, declared.name)]
    oneofs = list(declared.oneofs)
    for field in declared.fields:
        synthetic = None
        if field.label == "optional" and file.syntax == "proto3":
            synthetic = len(oneofs)
            oneofs.append(f"_{field.name}")
        oneof_index = oneofs.index(field.oneof) if field.oneof else synthetic
        parts.append(sized(2, _field(field, scope, known, oneof_index, is_optional=synthetic is not None)))
    for nested in declared.nested():
        if isinstance(nested, Field):
            parts.append(sized(3, _map_entry(nested, known)))
        else:
            parts.append(sized(3, _message(nested, scope, file, known)))
    parts += [sized(4, _enum(each)) for each in declared.enums]
    parts += [sized(8, sized(1, name)) for name in oneofs]
    return b"".join(parts)


def _field(
    field: Field,
    scope: str,
    known: dict[str, Message | Enum],
    oneof_index: int | None = None,
    *,
    is_optional: bool = False,
) -> bytes:
    parts = [sized(1, field.name), number(3, field.number)]
    if field.is_map:
        entry = f"{scope}.{entry_name(field.name)}"
        parts += [number(4, LABELS["repeated"]), number(5, TYPE_MESSAGE), sized(6, entry)]
    else:
        parts += [number(4, LABELS[field.label]), *_type(field.type, known)]
    flags = b""
    for name, value in field.options:
        if name == "default":
            parts.append(sized(7, unquoted(value) if value[0] in "\"'" else value.replace(" ", "")))
        elif name == "json_name":
            parts.append(sized(10, unquoted(value)))
        elif name in _FIELD_FLAGS:
            flags += number(_FIELD_FLAGS[name], value == "true")
    if flags:
        parts.append(sized(8, flags))
    if oneof_index is not None:
        parts.append(number(9, oneof_index))
    if is_optional:
        parts.append(number(17, 1))
    return b"".join(parts)


def _type(name: str, known: dict[str, Message | Enum]) -> list[bytes]:
    if name in SCALARS:
        return [number(5, SCALARS[name])]
    is_enum = isinstance(known.get(name.lstrip(".")), Enum)
    return [number(5, TYPE_ENUM if is_enum else TYPE_MESSAGE), sized(6, name)]


def _map_entry(field: Field, known: dict[str, Message | Enum]) -> bytes:
    key = _field(Field("key", 1, field.key_type), "", known)
    value = _field(Field("value", 2, field.type), "", known)
    name = entry_name(field.name)
    return b"".join([sized(1, name), sized(2, key), sized(2, value), sized(7, number(7, 1))])


def entry_name(field: str) -> str:
    """Protobuf's name for the message that a map's entries are: `my_map` has MyMapEntry."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _enum(declared: Enum) -> bytes:
    parts = [sized(1, declared.name)]
    parts += [sized(2, sized(1, name) + number(2, value)) for name, value in declared.values]
    if any(option.name == "allow_alias" and option.value == "true" for option in declared.options):
        parts.append(sized(3, number(2, 1)))
    return b"".join(parts)


# --- reading ----------------------------------------------------------------------------------------------


def decode(data: bytes) -> tuple[str, File]:
    """The file's name and what it says."""
    name = ""
    file = File()
    modifiers: dict[int, str] = {}
    messages: list[bytes] = []
    for tag, value in fields(data):
        match tag:
            case 1:
                name = text(value)
            case 2:
                file.package = text(value)
            case 3:
                file.imports.append(Import(text(value)))
            case 4:
                messages.append(message(value))
            case 5:
                file.enums.append(_read_enum(message(value)))
            case 8:
                file.options = _read_file_options(message(value))
            case 10 | 11:
                modifiers[whole(value)] = "public" if tag == 10 else "weak"
            case 12:
                file.syntax = text(value)
            case 14:
                raise InvalidSchema("editions are not supported: use proto2 or proto3")
    for at, modifier in modifiers.items():
        if at < len(file.imports):
            file.imports[at] = file.imports[at]._replace(modifier=modifier)
    file.messages = [_read_message(each, file.syntax)[0] for each in messages]
    return name, file


def _read_file_options(data: bytes) -> list[Option]:
    options = []
    for tag, value in fields(data):
        if tag in _FILE_OPTIONS_BY_TAG:
            name, is_text = _FILE_OPTIONS_BY_TAG[tag]
            options.append(Option(name, quoted(text(value)) if is_text else _flag(whole(value))))
    return options


def _read_message(data: bytes, syntax: str, depth: int = 0) -> tuple[Message, bool]:
    """The message, and whether it is only what the entries of a map are."""
    if depth > NESTING_MAX:
        raise InvalidSchema("messages are nested too deeply")
    declared = Message("")
    is_entry = False
    members: list[bytes] = []
    inner: list[Message] = []
    entries: dict[str, tuple[Message, int]] = {}  # and how many messages are before them
    for tag, value in fields(data):
        match tag:
            case 1:
                declared.name = text(value)
            case 2:
                members.append(message(value))
            case 3:
                nested, is_map = _read_message(message(value), syntax, depth + 1)
                if is_map:
                    entries[nested.name] = nested, len(inner)
                else:
                    inner.append(nested)
            case 4:
                declared.enums.append(_read_enum(message(value)))
            case 7:
                is_entry = any(tag == 7 and flag for tag, flag in fields(message(value)))
            case 8:
                declared.oneofs += [text(each) for tag, each in fields(message(value)) if tag == 1]
    declared.messages = inner
    synthetic: set[str] = set()
    for member in members:
        field, oneof_index, is_optional = _read_field(member, syntax)
        if oneof_index is not None:
            if oneof_index >= len(declared.oneofs):
                raise InvalidSchema(f"{declared.name}.{field.name} is in a oneof that does not exist")
            if is_optional:
                field.label = "optional"
                synthetic.add(declared.oneofs[oneof_index])
            else:
                field.oneof, field.label = declared.oneofs[oneof_index], ""
        entry, behind = entries.get(field.type.rpartition(".")[2], (None, 0))
        if entry is not None and field.label == "repeated":
            by_name = {each.name: each for each in entry.fields}
            if by_name.keys() != {"key", "value"}:
                raise InvalidSchema(f"{entry.name} is not a map entry")
            field.label, field.key_type, field.type = "", by_name["key"].type, by_name["value"].type
            field.behind = behind
        declared.fields.append(field)
    declared.oneofs = [name for name in declared.oneofs if name not in synthetic]
    return declared, is_entry


def _read_field(data: bytes, syntax: str) -> tuple[Field, int | None, bool]:
    field = Field("", 0, "")
    code = label = 0
    oneof_index: int | None = None
    is_optional = False
    for tag, value in fields(data):
        match tag:
            case 1:
                field.name = text(value)
            case 3:
                field.number = signed(whole(value))
            case 4:
                label = whole(value)
            case 5:
                code = whole(value)
            case 6:
                field.type = text(value)
            case 7:
                field.options.append(Option("default", text(value)))
            case 8:
                flags = dict(fields(message(value)))
                for name, at in _FIELD_FLAGS.items():
                    if at in flags:
                        field.options.append(Option(name, _flag(whole(flags[at]))))
            case 9:
                oneof_index = whole(value)
            case 10:
                if text(value) != json_name(field.name):
                    field.options.append(Option("json_name", quoted(text(value))))
            case 17:
                is_optional = bool(value)
    field.type = field.type or _SCALAR_NAMES.get(code, "")
    if not field.type:
        raise InvalidSchema(f"field {field.name} has an unknown type {code}")
    if code in (SCALARS["string"], SCALARS["bytes"]):
        field.options = [
            Option("default", quoted(option.value)) if option.name == "default" else option
            for option in field.options
        ]
    field.label = {2: "required", 3: "repeated"}.get(label, "optional" if syntax != "proto3" else "")
    return field, oneof_index, is_optional


def _read_enum(data: bytes) -> Enum:
    declared = Enum("")
    for tag, value in fields(data):
        if tag == 1:
            declared.name = text(value)
        elif tag == 2:
            name, at = "", 0
            for inner, each in fields(message(value)):
                if inner == 1:
                    name = text(each)
                elif inner == 2:
                    at = signed(whole(each))
            declared.values.append((name, at))
        elif tag == 3 and any(inner == 2 and flag for inner, flag in fields(message(value))):
            declared.options.append(Option("allow_alias", "true"))
    return declared


def _flag(value: int) -> str:
    return "true" if value else "false"


def json_name(name: str) -> str:
    """What protobuf's JSON calls a field: my_field is myField."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
