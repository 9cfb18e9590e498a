"""Tokens of a .proto file."""

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from headrace.schema_formats.schema import InvalidSchema

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<name>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}\[\]()<>;=,:+\-/])""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    kind: str  # name, number, text, mark, end
    text: str
    position: int
    line: int


def tokens(text: str) -> Iterator[Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidSchema(f"line {line}: syntax error at {text[position : position + 20]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            yield Token(kind, match.group(), position, line)
        line += match.group().count("\n")
        position = match.end()
    yield Token("end", "", position, line)


_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)


def unquoted(literal: str) -> str:
    """The text that a quoted literal means."""

    def meant(match: re.Match[str]) -> str:
        hexadecimal, octal, short, long, other = match.groups()
        if hexadecimal or short or long:
            number = int(hexadecimal or short or long, 16)
            if number > sys.maxunicode or 0xD800 <= number <= 0xDFFF:
                raise InvalidSchema(f"{match.group()} is not a Unicode character")
            return chr(number)
        if octal:
            return chr(int(octal, 8))
        if other not in _ESCAPES:
            raise InvalidSchema(f"\\{other} is not an escape sequence")
        return chr(_ESCAPES[other])

    return _ESCAPE.sub(meant, literal[1:-1])


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
