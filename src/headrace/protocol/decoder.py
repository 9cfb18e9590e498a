"""Writes the source of a flat decode function for one message type in one version.

Neighbouring fixed-width fields, together with the length of what follows them, are read by one precompiled
`struct.Struct`; arrays and nested structs become loops and assignments in the same function. Every length is
compared with the bytes left before anything is made from it. The lengths below 128 that compact types nearly
always have cost one byte of the preceding read.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any

from headrace.base.limits import ELEMENTS_PER_REQUEST_MAX
from headrace.protocol.columns import is_flat, layout_of
from headrace.protocol.notation import (
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    Message,
    Primitive,
    Request,
    Response,
    Struct,
)

# A fixed-width read: where the value goes, its struct letter and width.
Read = tuple[str, str, int]


def holds_records(kind: type[Struct], version: int) -> bool:
    """Whether a struct or anything inside it carries `records` in this version."""
    for field in kind.__fields__:
        if version not in field.versions:
            continue
        inner = field.kind.element if isinstance(field.kind, Array) else field.kind
        if inner is RECORDS or (not isinstance(inner, Primitive) and holds_records(inner, version)):
            return True
    return False


def smallest_size(kind: Primitive | Array | type[Struct], version: int, *, flexible: bool) -> int:
    """The fewest bytes that a value of this type can take: what a count is checked with."""
    if isinstance(kind, Array):
        return 1 if flexible else 4
    if isinstance(kind, Primitive):
        if kind.width:
            return kind.width
        return 1 if flexible else (2 if kind is STRING else 4)
    total = 1 if flexible else 0
    for field in kind.__fields__:
        if field.stands_in(version):
            is_nullable_struct = isinstance(field.kind, type) and version in field.nullable
            total += 1 if is_nullable_struct else smallest_size(field.kind, version, flexible=flexible)
    return total


# What is made between two pauses of a decoding in steps: a tenth of a millisecond.
ELEMENTS_PER_STEP = 128


class Decoder:
    """Collects the lines of `decode(b, p=0, trailing=...)` and the constants they use.

    In steps the function is a generator: it yields after so many elements, and returns the message.

    As in Kafka, bytes behind a request or response are ignored, bytes behind any other message are refused.
    """

    def __init__(
        self,
        message: type[Message],
        version: int,
        constants: dict[str, Any],
        *,
        in_steps: bool = False,
        in_columns: bool = False,
    ) -> None:
        self.in_steps = in_steps
        self.in_columns = in_columns
        self.version = version
        self.flexible = version in message.FLEXIBLE
        self.constants = constants
        self.lines: list[str] = []
        self.indent = 1
        self.reads: list[Read] = []
        self.names = 0
        self.name = message.__name__
        self.from_view = holds_records(message, version)
        self._write(message)

    @property
    def source(self) -> str:
        return "\n".join(self.lines) + "\n"

    def _write(self, message: type[Message]) -> None:
        name = "decode_steps" if self.in_steps else "decode"
        self.lines.append(f"def {name}(b, p=0, trailing={issubclass(message, (Request, Response))}):")
        if self.in_steps:
            self._line("if False: yield")  # also without a list it is a generator
        if self.from_view:
            self._line("if type(b) is not memoryview: b = memoryview(b)")
        else:
            self._line("if type(b) is not bytes: b = bytes(b)")
        self._line("end = len(b)")
        self.counts_elements = issubclass(message, Request)
        if self.counts_elements:
            self._line(f"elements_left = {ELEMENTS_PER_REQUEST_MAX}")
        self._line("try:")
        self.indent += 1
        root = self._struct(message)
        self._flush()
        self._line(f"if p != end and not trailing: raise Malformed('{self.name}: bytes left over')")
        self._line(f"return {root}")
        self.indent -= 1
        self._line("except (struct_error, IndexError, UnicodeDecodeError) as fault:")
        self._line(f"    raise Malformed(f'{self.name}: {{fault}}') from fault")

    # Lines and names

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def _fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def _constant(self, stem: str, value: Any) -> str:
        for name, known in self.constants.items():
            if known is value:
                return name
        name = f"{stem}_{len(self.constants)}"
        self.constants[name] = value
        return name

    # Fixed-width reads

    def _read(self, target: str, code: str, width: int) -> None:
        self.reads.append((target, code, width))

    def _flush(self) -> None:
        """Emits the pending reads as one unpack."""
        if not self.reads:
            return
        targets = ", ".join(target for target, _, _ in self.reads)
        codes = "".join(code for _, code, _ in self.reads)
        width = sum(width for _, _, width in self.reads)
        if codes == "B":
            self._line(f"{targets} = b[p]")
        else:
            name = "unpack_" + codes.replace("?", "o")
            self.constants.setdefault(name, Layout(">" + codes).unpack_from)
            self._line(f"{targets}{',' if len(self.reads) == 1 else ''} = {name}(b, p)")
        self._line(f"p += {width}")
        self.reads.clear()

    def _length(self, what: str, wide: str) -> str:
        """Reads the length or count of `what` into a variable; compact ones are left one too high."""
        count = self._fresh("n")
        if self.flexible:
            self._read(count, "B", 1)
            self._flush()
            self._line(f"if {count} > 127: {count}, p = long_varint(b, p, {count})")
        else:
            self._read(count, wide, 2 if wide == "h" else 4)
            self._flush()
        return count

    # Types

    def _struct(self, kind: type[Struct]) -> str:
        made = self._fresh("m")
        self._line(f"{made} = new({self._constant('type', kind)})")
        for field in kind.__fields__:
            if field.stands_in(self.version):
                self._value(field.kind, f"{made}.{field.name}", field.name, self.version in field.nullable)
            else:
                self._line(f"{made}.{field.name} = {self._default(field)}")
        if self.flexible:
            self._tags(kind, made)
        return made

    def _default(self, field: Field) -> str:
        if field.default is list:
            return "[]"
        if field.is_tagged_null_struct:
            return f"{self._constant('type', field.kind)}()"
        if field.default_factory is not None:
            return f"{self._constant('type', field.default)}()"
        if field.default is None or isinstance(field.default, (int, float)):
            return repr(field.default)
        return self._constant("default", field.default)

    def _value(self, kind: Primitive | Array | type[Struct], target: str, what: str, nullable: bool) -> None:
        if isinstance(kind, Array):
            self._array(kind.element, target, what, nullable)
        elif not isinstance(kind, Primitive):
            self._nested(kind, target, nullable)
        elif kind.width:
            self._read(target, kind.code, kind.width)
        else:
            self._sized(kind, target, what, nullable)

    def _nested(self, kind: type[Struct], target: str, nullable: bool) -> None:
        if not nullable:
            self._line(f"{target} = {self._struct(kind)}")
            return
        present = self._fresh("n")
        self._read(present, "b", 1)
        self._flush()
        self._line(f"if {present} < 0: {target} = None")
        self._line("else:")
        self.indent += 1
        made = self._struct(kind)
        self._flush()
        self._line(f"{target} = {made}")
        self.indent -= 1

    def _sized(self, kind: Primitive, target: str, what: str, nullable: bool) -> None:
        count = self._length(what, "h" if kind is STRING else "i")
        null = f"{count} == 0" if self.flexible else f"{count} < 0"
        self._begin_unless_null(null, target, what, nullable)
        stop = f"p + {count} - 1" if self.flexible else f"p + {count}"
        self._line(f"q = {stop}")
        self._line(f"if q > end: raise Malformed('{self.name}: {what} is longer than the message')")
        copy = "b[p:q].tobytes()" if self.from_view else "b[p:q]"
        if kind is RECORDS:
            self._line(f"{target} = b[p:q]")
        else:
            self._line(f"{target} = {copy}.decode()" if kind is STRING else f"{target} = {copy}")
        self._line("p = q")
        self._end_unless_null(nullable)

    def _begin_unless_null(self, null: str, target: str, what: str, nullable: bool) -> None:
        if nullable:
            self._line(f"if {null}: {target} = None")
            self._line("else:")
            self.indent += 1
        else:
            self._line(f"if {null}: raise Malformed('{self.name}: {what} must not be null')")

    def _end_unless_null(self, nullable: bool) -> None:
        if nullable:
            self.indent -= 1

    def _array(self, element: Primitive | type[Struct], target: str, what: str, nullable: bool) -> None:
        count = self._length(what, "i")
        self._begin_unless_null(f"{count} == 0" if self.flexible else f"{count} < 0", target, what, nullable)
        if self.flexible:
            self._line(f"{count} -= 1")
        size = smallest_size(element, self.version, flexible=self.flexible)
        assert size > 0, f"{self.name}.{what}: elements without bytes cannot be counted"
        self._line(
            f"if {count}{f' * {size}' if size > 1 else ''} > end - p: "
            f"raise Malformed('{self.name}: more {what} announced than bytes are left')"
        )
        if self.counts_elements:
            self._line(f"elements_left -= {count}")
            self._line(f"if elements_left < 0: raise Malformed('{self.name}: too many {what}')")
        if self.in_columns and not isinstance(element, Primitive) and is_flat(element, self.version):
            self._columns(element, target, count)
        elif isinstance(element, Primitive) and element.width:
            self._fixed_elements(element, target, count)
        else:
            items = self._fresh("items")
            self._line(f"{target} = {items} = []")
            self._line(f"for _ in range({count}):")
            self.indent += 1
            if isinstance(element, Primitive):
                item = self._fresh("x")
                self._sized(element, item, what, False)
            else:
                item = self._struct(element)
                self._flush()
            self._line(f"{items}.append({item})")
            if self.in_steps:
                self._line(f"if not len({items}) % {ELEMENTS_PER_STEP}: yield")
            self.indent -= 1
        self._end_unless_null(nullable)

    def _fixed_elements(self, element: Primitive, target: str, count: str) -> None:
        self._line(f"q = p + {count}{f' * {element.width}' if element.width > 1 else ''}")
        if element is UUID:
            self._line(f"{target} = [bytes(b[i:i + 16]) for i in range(p, q, 16)]")
        else:
            self._line(f"{target} = list(unpack_from(f'>{{{count}}}{element.code}', b, p))")
        self._line("p = q")

    def _columns(self, element: type[Struct], target: str, count: str) -> None:
        """A list for each field of a flat struct; those that this version lacks have their default."""
        layout = self._constant("layout", layout_of(element, self.version))
        read = "yield from columns_in_steps" if self.in_steps else "read_columns"
        columns = self._fresh("columns")
        self._line(f"{columns}, p = {read}(b, p, {count}, {layout}, {self.flexible})")
        fields = []
        carried = 0
        for field in element.__fields__:
            if field.stands_in(self.version):
                fields.append(f"{columns}[{carried}]")
                carried += 1
            else:
                fields.append(f"[{self._default(field)}] * {count}")
        self._line(f"{target} = ({', '.join(fields)},)")

    # Tagged fields

    def _tags(self, kind: type[Struct], made: str) -> None:
        count = self._fresh("t")
        self._read(count, "B", 1)
        self._flush()
        tagged = [field for field in kind.__fields__ if field.is_tagged_in(self.version)]
        if not tagged:
            self._line(f"if {count}: p = skip_tags(b, p, {count})")
            return
        last, tag, stop = self._fresh("last"), self._fresh("tag"), self._fresh("stop")
        self._line(f"if {count}:")
        self.indent += 1
        self._line(f"if {count} > 127: {count}, p = long_varint(b, p, {count})")
        self._line(
            f"if {count} * 2 > end - p: "
            f"raise Malformed('{self.name}: more tagged fields announced than bytes are left')"
        )
        self._line(f"{last} = -1")
        self._line(f"for _ in range({count}):")
        self.indent += 1
        self._line(f"{tag}, p = varint(b, p)")
        self._line(f"{stop}, p = varint(b, p)")
        self._line(f"if {tag} <= {last}: raise Malformed('{self.name}: tags are not in ascending order')")
        self._line(f"{last} = {tag}")
        self._line(f"{stop} += p")
        self._line(
            f"if {stop} > end: raise Malformed('{self.name}: a tagged field is longer than the message')"
        )
        word = "if"
        for field in tagged:
            self._line(f"{word} {tag} == {field.tag}:")
            self.indent += 1
            self._tagged(field, f"{made}.{field.name}")
            self._flush()
            self._line(f"if p != {stop}: raise Malformed('{self.name}: {field.name} does not fill its tag')")
            self.indent -= 1
            word = "elif"
        self._line(f"else: p = {stop}")
        self.indent -= 2

    def _tagged(self, field: Field, target: str) -> None:
        if not field.is_tagged_null_struct:
            self._value(field.kind, target, field.name, self.version in field.nullable)
            return
        assert not isinstance(field.kind, (Primitive, Array))
        present = self._fresh("n")
        self._read(present, "B", 1)
        self._flush()
        self._line(f"if not {present}: {target} = None")
        self._line("else:")
        self.indent += 1
        made = self._struct(field.kind)
        self._flush()
        self._line(f"{target} = {made}")
        self.indent -= 1
