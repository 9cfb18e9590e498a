"""Writes the source of a flat encode function for one message type in one version.

The function gathers pieces in a list and joins them once. Neighbouring fixed-width fields, together with
the length of what follows them, become one precompiled pack. `encode_parts` differs only at `records`: the
value is handed on untouched as a part of its own, so it may be a view of the log or a span of a file nobody
has read yet.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any

from headrace.protocol.columns import is_flat, layout_of
from headrace.protocol.notation import RECORDS, STRING, UUID, Array, Field, Message, Primitive, Struct
from headrace.protocol.varint import encode_varint


class Encoder:
    """Collects the lines of `encode(m)` or `encode_parts(m)` and the constants they use."""

    def __init__(
        self,
        message: type[Message],
        version: int,
        constants: dict[str, Any],
        *,
        in_parts: bool,
        in_columns: bool = False,
    ) -> None:
        self.in_columns = in_columns
        self.version = version
        self.flexible = version in message.FLEXIBLE
        self.constants = constants
        self.in_parts = in_parts
        self.name = message.__name__
        self.lines: list[str] = []
        self.indent = 1
        self.packs: list[tuple[str, str]] = []  # struct letter and expression; "x" is a zero byte without one
        self.pieces: list[str] = []  # expressions of bytes that await one extension of the list
        self.sink = "out"
        self.names = 0
        self._write(message)

    @property
    def source(self) -> str:
        return "\n".join(self.lines) + "\n"

    def _write(self, message: type[Message]) -> None:
        self.lines.append(f"def {'encode_parts' if self.in_parts else 'encode'}(m):")
        self._line("try:")
        self.indent += 1
        if self.in_parts:
            self._line("parts = []")
        self._line("out = []")
        self._struct(message, "m")
        self._flush()
        if self.in_parts:
            self._line("if out: parts.append(join(out))")
            self._line("return parts")
        else:
            self._line("return join(out)")
        self.indent -= 1
        self._line("except (struct_error, AttributeError, TypeError, UnicodeEncodeError) as fault:")
        self._line(f"    raise Unencodable(f'{self.name} version {self.version}: {{fault}}') from fault")

    # Lines, names and pieces

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def _fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def _pack(self, code: str, expression: str) -> None:
        self.packs.append((code, expression))

    def _packed(self, packs: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in packs)
        if not codes.strip("x"):
            return repr(bytes(len(codes)))
        name = "pack_" + codes.replace("?", "o")
        self.constants.setdefault(name, Layout(">" + codes).pack)
        return f"{name}({', '.join(expression for _, expression in packs if expression)})"

    def _flush_packs(self) -> None:
        if self.packs:
            self.pieces.append(self._packed(self.packs))
            self.packs = []

    def _flush(self) -> None:
        """Emits what is pending; needed before any line that branches or loops."""
        self._flush_packs()
        if len(self.pieces) == 1:
            self._line(f"{self.sink}.append({self.pieces[0]})")
        elif self.pieces:
            self._line(f"{self.sink} += ({', '.join(self.pieces)})")
        self.pieces = []

    def _length(self, count: str, wide: str) -> None:
        """Adds the length in variable `count`, which for compact types is already one higher."""
        if not self.flexible:
            self._pack(wide, count)
            return
        if self.packs:
            before = self.packs
            self.packs = []
            short = self._packed([*before, ("B", count)])
            self.pieces.append(f"{short} if {count} < 128 else {self._packed(before)} + varint({count})")
        else:
            self.pieces.append(f"ONE_BYTE[{count}] if {count} < 128 else varint({count})")

    # Types

    def _struct(self, kind: type[Struct], source: str) -> None:
        for field in kind.__fields__:
            if field.stands_in(self.version):
                self._value(field.kind, f"{source}.{field.name}", self.version in field.nullable)
            elif not field.ignorable and not field.is_tagged_in(self.version):
                self._line(
                    f"if {differs(field, f'{source}.{field.name}')}: raise Unencodable("
                    f"'{kind.__name__}.{field.name} cannot be sent in version {self.version} of {self.name}')"
                )
        if self.flexible:
            self._tags(kind, source)

    def _value(self, kind: Primitive | Array | type[Struct], source: str, nullable: bool) -> None:
        if isinstance(kind, Array):
            self._array(kind.element, source, nullable)
        elif not isinstance(kind, Primitive):
            self._nested(kind, source, nullable)
        elif kind is UUID:
            self._pack("16s", f"uuid({source})")
        elif kind.width:
            self._pack(kind.code, source)
        elif kind is RECORDS:
            self._records(source, nullable)
        else:
            self._sized(kind, source, nullable)

    def _nested(self, kind: type[Struct], source: str, nullable: bool) -> None:
        value = self._fresh("v")
        self._line(f"{value} = {source}")
        if not nullable:
            self._struct(kind, value)
            return
        self._flush()
        self._line(f"if {value} is None: {self.sink}.append(b'\\xff')")
        self._line("else:")
        self.indent += 1
        self._pack("b", "1")
        self._struct(kind, value)
        self._flush()
        self.indent -= 1

    def _sized(self, kind: Primitive, source: str, nullable: bool) -> None:
        data, count = self._fresh("d"), self._fresh("n")
        plain = f"{source}.encode()" if kind is STRING else source
        one = " + 1" if self.flexible else ""
        if nullable:
            self._line(f"{data} = {source}")
            null = "0" if self.flexible else "-1"
            self._line(f"if {data} is None: {data} = b''; {count} = {null}")
            again = f"{data} = {data}.encode(); " if kind is STRING else ""
            self._line(f"else: {again}{count} = len({data}){one}")
        else:
            self._line(f"{data} = {plain}")
            self._line(f"{count} = len({data}){one}")
        self._length(count, "h" if kind is STRING else "i")
        self._flush_packs()
        self.pieces.append(data)

    def _records(self, source: str, nullable: bool) -> None:
        data, count = self._fresh("d"), self._fresh("n")
        self._line(f"{data} = {source}")
        null = "0" if self.flexible else "-1"
        one = " + 1" if self.flexible else ""
        if nullable:
            self._line(f"if {data} is None: {data} = b''; {count} = {null}")
            self._line(
                f"else: {count} = (len({data}) if type({data}) in BUFFERS else part_size({data})){one}"
            )
        else:
            self._line(f"{count} = (len({data}) if type({data}) in BUFFERS else part_size({data})){one}")
        self._length(count, "i")
        self._flush()
        if self.in_parts:
            self._line(f"if {count} > {1 if self.flexible else 0}:")
            self._line("    parts.append(join(out))")
            self._line("    out.clear()")
            self._line(f"    if type({data}) is list: parts += {data}")
            self._line(f"    else: parts.append({data})")
        else:
            self._line(f"if type({data}) is list: out += {data}")
            self._line(f"else: out.append({data})")

    def _array(self, element: Primitive | type[Struct], source: str, nullable: bool) -> None:
        items, count = self._fresh("items"), self._fresh("n")
        self._line(f"{items} = {source}")
        one = " + 1" if self.flexible else ""
        if self.in_columns and not isinstance(element, Primitive) and is_flat(element, self.version):
            assert not nullable
            self._line(f"{count} = len({items}[0]){one}")
            self._length(count, "i")
            self._columns(element, items)
            return
        if nullable:
            null = "0" if self.flexible else "-1"
            self._line(f"if {items} is None: {items} = (); {count} = {null}")
            self._line(f"else: {count} = len({items}){one}")
        else:
            self._line(f"{count} = len({items}){one}")
        self._length(count, "i")
        if isinstance(element, Primitive) and element.width:
            self._flush_packs()
            if element is UUID:
                self.pieces.append(f"join([uuid(x) for x in {items}])")
            else:
                self.pieces.append(f"pack(f'>{{len({items})}}{element.code}', *{items})")
            return
        self._flush()
        item = self._fresh("x")
        self._line(f"for {item} in {items}:")
        self.indent += 1
        if isinstance(element, Primitive):
            self._value(element, item, False)
        else:
            self._struct(element, item)
        self._flush()
        self.indent -= 1

    def _columns(self, element: type[Struct], items: str) -> None:
        """Columns of numbers, which is what responses have."""
        layout = layout_of(element, self.version)
        assert not layout.strip(b"hi"), f"{self.name}: columns of {layout!r} are only read"
        self._flush_packs()
        self.pieces.append(f"write_columns({items}, {layout!r}, {self.flexible})")

    # Tagged fields

    def _tags(self, kind: type[Struct], source: str) -> None:
        tagged = sorted(
            (field for field in kind.__fields__ if field.is_tagged_in(self.version)),
            key=lambda field: field.tag or 0,
        )
        if not tagged:
            self._pack("x", "")
            return
        self._flush()
        outer, count, bodies = self.sink, self._fresh("t"), self._fresh("tags")
        tests = [differs(field, f"{source}.{field.name}") for field in tagged]
        self._line(f"if {' or '.join(tests)}:")
        self.indent += 1
        self._line(f"{count} = 0; {bodies} = []")
        for field, test in zip(tagged, tests):
            self._line(f"if {test}:")
            self.indent += 1
            if isinstance(field.kind, Primitive) and field.kind.width and field.kind is not UUID:
                # tag, size and value in one piece
                value = (field.kind.code, f"{source}.{field.name}")
                piece = self._packed([("B", str(field.tag)), ("B", str(field.kind.width)), value])
                self._line(f"{count} += 1; {bodies}.append({piece})")
                self.indent -= 1
                continue
            self.sink = self._fresh("body")
            self._line(f"{self.sink} = []")
            self._tagged(field, f"{source}.{field.name}")
            self._flush()
            body = self.sink
            self._line(f"{body} = join({body})")
            self._line(
                f"{count} += 1; {bodies} += ({encode_varint(field.tag or 0)!r}, varint(len({body})), {body})"
            )
            self.sink = outer
            self.indent -= 1
        self._line(f"{outer}.append(varint({count})); {outer} += {bodies}")
        self.indent -= 1
        self._line(f"else: {outer}.append(b'\\0')")

    def _tagged(self, field: Field, source: str) -> None:
        if not field.is_tagged_null_struct:
            self._value(field.kind, source, self.version in field.nullable)
            return
        assert not isinstance(field.kind, (Primitive, Array))
        self._line(f"if {source} is None: {self.sink}.append(b'\\0')")
        self._line("else:")
        self.indent += 1
        self._pack("b", "1")
        self._struct(field.kind, source)
        self._flush()
        self.indent -= 1


def differs(field: Field, source: str) -> str:
    """The expression that says a field's value is not its default."""
    kind, default = field.kind, field.default
    if isinstance(kind, Array) and default is list:
        return f"{source} != []" if field.nullable.first <= field.nullable.last else source
    if isinstance(kind, (Primitive, Array)):
        if default is None:
            return f"{source} is not None"
        return f"{source} != {default!r}"
    if default is None and field.tag is None:
        return f"{source} is not None"
    inner = " or ".join(differs(sub, f"{source}.{sub.name}") for sub in kind.__fields__)
    if field.is_tagged_null_struct:
        return f"({source} is None or {inner})"
    return f"({source} is not None and ({inner}))"
