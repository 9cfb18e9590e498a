"""Lines from stdin or files as they arrive: while a slow pipe has no input, the reader yields None, so that
the lines before it can be sent.
"""

import os
import select
import stat
from collections.abc import Iterator

READ_BYTES = 256 * 1024
# The longest line that is accepted as a record. Input with longer lines is most likely not text.
LINE_BYTES_MAX = 64 * 1024 * 1024


class LineTooLong(ValueError):
    """The input has no line end where one was expected."""


def read_lines(descriptor: int, pause_s: float) -> Iterator[bytes | None]:
    """Lines without their ends; None each time the input has nothing for `pause_s`.

    A last line without an end counts too. Only LF ends a line: a CR before it belongs to the record.
    """
    waits = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    begun: list[bytes] = []
    begun_bytes = 0
    while True:
        if waits and not select.select([descriptor], [], [], pause_s)[0]:
            yield None
            select.select([descriptor], [], [])
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        first, *others = data.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > LINE_BYTES_MAX:
            raise LineTooLong(
                f"the line has more than {LINE_BYTES_MAX} bytes; --whole-file sends a file as one record"
            )
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun, begun_bytes = [others[-1]], len(others[-1])
    if begun_bytes:
        yield b"".join(begun)
