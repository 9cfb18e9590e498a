"""Compatibility of Avro schemas: whether a reader's schema can read a writer's (Avro's schema resolution)."""

from headrace.schema_formats.avro import MISSING, AvroField, AvroSchema, AvroType
from headrace.schema_formats.schema import Budget

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "bytes": ("string",),
    "string": ("bytes",),
}


def obstacles(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Why the reader's schema cannot read the writer's; empty if it can."""
    return _Comparison().compare(reader.type, writer.type, "")


class _Comparison:
    def __init__(self) -> None:
        self._budget = Budget()
        # pairs compared or being compared: a type may contain itself
        self._known: dict[tuple[int, int], list[str]] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        pair = (id(reader), id(writer))
        known = self._known.get(pair)
        if known is None:
            self._budget.spend()
            self._known[pair] = []
            known = self._known[pair] = self._compare(reader, writer, path)
        return known

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if writer.kind == "union":
            found = []
            for number, branch in enumerate(writer.branches):
                if self.compare(reader, branch, f"{path}/{number}"):
                    found.append(
                        f"MISSING_UNION_BRANCH at {path or '/'}: no {branch.label} in the reader's type"
                    )
            return found if reader.kind == "union" else self._each_branch(reader, writer, path)
        if reader.kind == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.branches):
                return []
            return [f"MISSING_UNION_BRANCH at {path or '/'}: the reader's union has no {writer.label}"]
        if reader.kind != writer.kind:
            if reader.kind in PROMOTIONS.get(writer.kind, ()):
                return []
            return [f"TYPE_MISMATCH at {path or '/'}: {reader.kind} cannot read {writer.kind}"]
        match reader.kind:
            case "array":
                assert reader.items is not None
                assert writer.items is not None
                return self.compare(reader.items, writer.items, f"{path}/items")
            case "map":
                assert reader.items is not None
                assert writer.items is not None
                return self.compare(reader.items, writer.items, f"{path}/values")
            case "fixed":
                return self._names(reader, writer, path) or self._sizes(reader, writer, path)
            case "enum":
                return self._names(reader, writer, path) or self._symbols(reader, writer, path)
            case "record":
                return self._names(reader, writer, path) or self._fields(reader, writer, path)
        return []

    def _each_branch(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        return [
            found
            for number, branch in enumerate(writer.branches)
            for found in self.compare(reader, branch, f"{path}/{number}")
        ]

    @staticmethod
    def _names(reader: AvroType, writer: AvroType, path: str) -> list[str]:
        # the namespace does not count, as in Avro's own check
        if simple(reader.name) == simple(writer.name) or writer.name in reader.aliases:
            return []
        return [f"NAME_MISMATCH at {path}/name: expected {writer.name}, found {reader.name}"]

    @staticmethod
    def _sizes(reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if reader.size == writer.size:
            return []
        return [f"FIXED_SIZE_MISMATCH at {path}/size: expected {writer.size}, found {reader.size}"]

    @staticmethod
    def _symbols(reader: AvroType, writer: AvroType, path: str) -> list[str]:
        missing = sorted(set(writer.symbols) - set(reader.symbols))
        if not missing or reader.default is not None:
            return []
        return [f"MISSING_ENUM_SYMBOLS at {path}/symbols: {', '.join(missing)}"]

    def _fields(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        written = {field.name: field for field in writer.fields}
        found = []
        for number, field in enumerate(reader.fields):
            at = f"{path}/fields/{number}"
            source = _source(field, written)
            if source is not None:
                found += self.compare(field.type, source.type, f"{at}/type")
            elif field.default is MISSING:
                found.append(f"READER_FIELD_MISSING_DEFAULT_VALUE at {at}: {field.name} has no default")
        return found


def _source(field: AvroField, written: dict[str, AvroField]) -> AvroField | None:
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def simple(name: str) -> str:
    return name.rpartition(".")[2]
