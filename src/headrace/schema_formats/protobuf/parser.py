"""Parser of .proto text: proto2 and proto3.

It rejects, with the line, syntax errors, groups (which are obsolete), editions, field numbers out of range,
and duplicate numbers or names.
"""

from headrace.schema_formats.protobuf.model import SCALARS, Enum, Field, File, Import, Message, Option
from headrace.schema_formats.protobuf.tokens import Token, tokens, unquoted
from headrace.schema_formats.schema import InvalidSchema

NUMBER_MAX = 2**29 - 1
RESERVED_BY_PROTOBUF = range(19000, 20000)
MAP_KEYS = frozenset(SCALARS) - {"double", "float", "bytes"}
NESTING_MAX = 64
INTEGER_CHARACTERS_MAX = 23  # of 64 bits in octal, with its leading zero


def parse_file(text: str) -> File:
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._at = 0
        self._depth = 0

    # --- words --------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _is(self, text: str) -> bool:
        return self._now.text == text and self._now.kind in ("name", "mark")

    def _skip(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._skip(text):
            self._fail(f"{text!r} is expected")

    def _fail(self, why: str) -> None:
        token = self._now
        raise InvalidSchema(f"line {token.line}: {why} at {token.text or 'the end'!r}")

    def _name(self) -> str:
        if self._now.kind != "name":
            self._fail("a name is expected")
        return self._take().text

    def _simple_name(self) -> str:
        if "." in self._now.text:
            self._fail("a name without dots is expected")
        return self._name()

    def _string(self) -> str:
        if self._now.kind != "text":
            self._fail("a quoted text is expected")
        parts = []
        while self._now.kind == "text":  # neighbours are one text
            parts.append(unquoted(self._take().text))
        return "".join(parts)

    def _integer(self) -> int:
        sign = -1 if self._skip("-") else 1
        token = self._now
        if len(token.text) > INTEGER_CHARACTERS_MAX:
            self._fail("a whole number of at most 64 bits is expected")
        try:
            value = (
                int(token.text, 0)
                if token.text[:2].lower() == "0x" or token.text == "0"
                else _integer(token.text)
            )
        except ValueError:
            self._fail("a whole number is expected")
            raise
        self._take()
        return sign * value

    # --- the file -----------------------------------------------------------------------------------------

    def file(self) -> File:
        file = File()
        if self._skip("syntax"):
            self._need("=")
            file.syntax = self._string()
            if file.syntax not in ("proto2", "proto3"):
                raise InvalidSchema(f"syntax {file.syntax!r} is neither proto2 nor proto3")
            self._need(";")
        elif self._is("edition"):
            self._fail("editions are not supported: declare the syntax proto2 or proto3")
        while self._now.kind != "end":
            self._declaration(file)
        return file

    def _declaration(self, file: File) -> None:
        if self._skip(";"):
            return
        if self._skip("package"):
            file.package = self._name()
            self._need(";")
        elif self._skip("import"):
            modifier = self._take().text if self._now.text in ("public", "weak") else ""
            file.imports.append(Import(self._string(), modifier))
            self._need(";")
        elif self._skip("option"):
            file.options.append(self._option())
            self._need(";")
        elif self._skip("message"):
            file.messages.append(self._message(file))
        elif self._skip("enum"):
            file.enums.append(self._enum())
        elif self._is("service") or self._is("extend"):
            file.kept.append(self._kept_block())
        else:
            self._fail("a message, enum, service, extend, import, package or option is expected")

    def _kept_block(self) -> str:
        """Text up to the end of its braces, with its spaces evened out."""
        begin = self._at
        while not self._is("{"):
            if self._take().kind == "end":
                self._fail("'{' is expected")
        depth = 0
        while True:
            token = self._take()
            if token.kind == "end":
                self._fail("'}' is expected")
            depth += (token.text == "{") - (token.text == "}") if token.kind == "mark" else 0
            if depth == 0:
                return self._between(begin)

    def _kept_statement(self) -> str:
        begin = self._at
        while not self._skip(";"):
            if self._take().kind == "end":
                self._fail("';' is expected")
        return self._between(begin)

    def _between(self, begin: int) -> str:
        return " ".join(token.text for token in self._tokens[begin : self._at])

    # --- messages -----------------------------------------------------------------------------------------

    def _message(self, file: File) -> Message:
        self._depth += 1
        if self._depth > NESTING_MAX:
            self._fail("messages are nested too deeply")
        message = Message(self._simple_name())
        self._need("{")
        while not self._skip("}"):
            self._member(file, message)
        self._depth -= 1
        check_fields(message)
        return message

    def _member(self, file: File, message: Message) -> None:
        if self._skip(";"):
            return
        following = self._tokens[self._at + 1] if self._now.kind != "end" else self._now
        if self._is("message") and following.kind == "name":
            self._take()
            message.messages.append(self._message(file))
        elif self._is("enum") and following.kind == "name":
            self._take()
            message.enums.append(self._enum())
        elif self._is("oneof") and following.kind == "name":
            self._take()
            self._oneof(file, message)
        elif self._is("option"):
            self._take()
            message.options.append(self._option())
            self._need(";")
        elif self._is("reserved") or self._is("extensions"):
            message.kept.append(self._kept_statement())
        elif self._is("extend") and following.kind == "name":
            message.kept.append(self._kept_block())
        else:
            field = self._field(file)
            field.behind = len(message.messages) if field.is_map else 0
            message.fields.append(field)

    def _oneof(self, file: File, message: Message) -> None:
        name = self._simple_name()
        message.oneofs.append(name)
        self._need("{")
        while not self._skip("}"):
            if self._skip("option"):
                self._option()
                self._need(";")
            elif not self._skip(";"):
                field = self._field(file, oneof=name)
                message.fields.append(field)

    def _field(self, file: File, oneof: str = "") -> Field:
        label = ""
        if self._now.text in ("optional", "required", "repeated") and not oneof:
            label = self._take().text
            if label == "required" and file.syntax == "proto3":
                self._fail("proto3 has no required fields")
        elif not oneof and file.syntax == "proto2" and not self._is("map"):
            self._fail("a field of proto2 is optional, required or repeated")
        if self._is("group"):
            self._fail("groups are not supported")
        key_type = ""
        if self._is("map") and self._tokens[self._at + 1].text == "<":
            if label or oneof:
                self._fail("a map field can neither have a label nor be in a oneof")
            self._take()
            self._need("<")
            key_type = self._name()
            if key_type not in MAP_KEYS:
                self._fail(f"{key_type} cannot be the key of a map")
            self._need(",")
            kind = self._name()
            self._need(">")
        else:
            kind = self._name()
        name = self._simple_name()
        self._need("=")
        number = self._integer()
        if not 1 <= number <= NUMBER_MAX or number in RESERVED_BY_PROTOBUF:
            self._fail(f"{number} cannot be the number of a field")
        options = self._options()
        self._need(";")
        return Field(name, number, kind, label, key_type, oneof, options)

    def _enum(self) -> Enum:
        enum = Enum(self._simple_name())
        self._need("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._is("option"):
                self._take()
                enum.options.append(self._option())
                self._need(";")
            elif self._is("reserved"):
                enum.kept.append(self._kept_statement())
            else:
                name = self._simple_name()
                self._need("=")
                enum.values.append((name, self._integer()))
                self._options()
                self._need(";")
        if not enum.values:
            raise InvalidSchema(f"enum {enum.name} has no values")
        return enum

    # --- options ------------------------------------------------------------------------------------------

    def _options(self) -> list[Option]:
        options: list[Option] = []
        if self._skip("["):
            while True:
                options.append(self._option())
                if self._skip("]"):
                    break
                self._need(",")
        return options

    def _option(self) -> Option:
        name = ""
        while not self._is("="):
            token = self._take()
            if token.kind not in ("name", "mark") or token.text in (";", "{", "}"):
                self._fail("the name of an option is expected")
            name += token.text
        self._need("=")
        begin = self._at
        if self._is("{"):
            depth = 0
            while True:
                token = self._take()
                if token.kind == "end":
                    self._fail("'}' is expected")
                depth += (token.text == "{") - (token.text == "}") if token.kind == "mark" else 0
                if depth == 0:
                    break
        else:
            if not self._skip("-"):
                self._skip("+")
            if self._now.kind not in ("name", "number", "text"):
                self._fail("the value of an option is expected")
            while self._take().kind == "text" and self._now.kind == "text":
                pass
        value = self._between(begin)
        return Option(name, value.replace(" ", "") if value[0] in "+-" else value)


def _integer(text: str) -> int:
    if not text.isascii() or "_" in text:
        raise ValueError(text)  # which Python would understand
    return int(text, 8) if text.startswith("0") and text.isdigit() else int(text)


def check_fields(message: Message) -> None:
    numbers: dict[int, str] = {}
    names: set[str] = set()
    for field in message.fields:
        if field.number in numbers:
            raise InvalidSchema(
                f"{message.name}: {field.name} and {numbers[field.number]} both have number {field.number}"
            )
        if field.name in names:
            raise InvalidSchema(f"{message.name} has two fields {field.name!r}")
        numbers[field.number] = field.name
        names.add(field.name)
