r"""Format strings for records, with kcat's letters: `%t [%p] %o: %k = %s\n`.

    %t topic   %p partition   %o offset    %T timestamp in ms   %I timestamp, ISO 8601 in UTC
    %k key     %s value       %h headers (name=value,…)         %% a percent sign
    %K %S %R   lengths of key, value and headers (-1: null); %R counts headers
    \n \r \t \\ \0 \xNN are escapes

A format is compiled once into pieces; a record is rendered as bytes, since keys and values need not be text.
In a pipe they are exact. A terminal obeys control characters, and anybody may have written the records: there
they are shown as escapes.
"""

import re
from collections.abc import Callable

from headrace.base.moments import iso_time
from headrace.cli.terminal import visible_lines
from headrace.records._messages import Message

Piece = bytes | Callable[[Message], bytes]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_TOKEN = re.compile(r"%(.?)|\\x([0-9a-fA-F]{2})|\\(.?)", re.DOTALL)


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(record: Message) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )


_LETTERS: dict[str, Callable[[Message], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "I": lambda record: iso_time(record.timestamp_ms).encode(),
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "h": _headers,
    "K": lambda record: _length(record.key),
    "S": lambda record: _length(record.value),
    "R": lambda record: b"%d" % len(record.headers),
}


def for_terminal(render: Callable[[Message], bytes]) -> Callable[[Message], bytes]:
    return lambda record: visible_lines(render(record).decode("utf-8", "backslashreplace")).encode()


def compile_format(text: str, *, is_terminal: bool = False) -> Callable[[Message], bytes]:
    """The renderer of one format string; ValueError names a letter without a meaning."""
    pieces: list[Piece] = []
    position = 0
    for token in _TOKEN.finditer(text):
        pieces.append(text[position : token.start()].encode())
        position = token.end()
        letter, hexadecimal, escape = token.groups()
        if hexadecimal is not None:
            pieces.append(bytes.fromhex(hexadecimal))
        elif letter is None:
            if escape not in _ESCAPES:
                raise ValueError(
                    f"\\{escape} is not an escape in a format; use \\n \\r \\t \\0 \\xNN or \\\\"
                )
            pieces.append(_ESCAPES[escape])
        elif letter == "%":
            pieces.append(b"%")
        elif letter in _LETTERS:
            of_record = _LETTERS[letter]
            pieces.append(for_terminal(of_record) if is_terminal else of_record)
        else:
            raise ValueError(f"%{letter} has no meaning in a format; use one of %{' %'.join(_LETTERS)} %%")
    pieces.append(text[position:].encode())
    return _renderer([piece for piece in pieces if piece != b""])


def _renderer(pieces: list[Piece]) -> Callable[[Message], bytes]:
    def render(record: Message) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else piece(record) for piece in pieces])

    return render
