"""`sasl.jaas.config`: users and passwords as Java writes them down. Client and broker share it.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

That is one login module, a control flag, options as key=value, and a semicolon. Values are in quotes, with
Java's escapes, or bare.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKENS = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<quoted> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<word> [\w.$\-]+ )
    | (?P<sign> [=;] )
    | (?P<wrong> . )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


class InvalidJaas(ValueError):
    """The text cannot be read; the error says why."""


class LoginModule(NamedTuple):
    name: str  # of the class, without its package
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """The only login module in `text`; InvalidJaas says what is wrong with it, without its secrets."""
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[1].text.lower() not in _FLAGS:
        raise InvalidJaas("it must begin with a login module's class and `required`")
    if not tokens[-1].is_sign(";"):
        raise InvalidJaas("it must end with a semicolon")
    given = tokens[2:-1]
    if any(token.is_sign(";") for token in given):
        raise InvalidJaas("it must have exactly one login module")
    keys, signs, values = given[::3], given[1::3], given[2::3]
    is_paired = len(given) % 3 == 0 and all(sign.is_sign("=") for sign in signs)
    if not is_paired or any(token.kind == "sign" for token in keys + values) or not all(k.text for k in keys):
        raise InvalidJaas('options must have the form key="value"')
    options = {key.text: value.text for key, value in zip(keys, values, strict=True)}
    return LoginModule(tokens[0].text.rpartition(".")[2], options)


class _Token(NamedTuple):
    kind: str
    text: str

    def is_sign(self, sign: str) -> bool:
        return self == ("sign", sign)


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKENS.finditer(text):
        match match.lastgroup:
            case "quoted":
                yield _Token("value", _ESCAPES.sub(_unescaped, match[0][1:-1]))
            case "word":
                yield _Token("value", match[0])
            case "sign":
                yield _Token("sign", match[0])
            case "wrong":
                raise InvalidJaas(f"there is a {match[0]!r} outside of quotes at character {match.start()}")


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROLS.get(code, code)
