"""Where each socket of this process was opened. The garbage collector warns about one that nobody closed in
whichever test runs then; the report of that test says whose it was.
"""

from __future__ import annotations

import re
import socket
import sys
import traceback
from typing import Any

FRAMES_MAX = 20
UNCLOSED = re.compile(r"unclosed <socket\.socket fd=(\d+)|Exception ignored in: <socket\.socket fd=(\d+)")

_opened: dict[int, traceback.StackSummary] = {}  # by descriptor: the newest
_init = socket.socket.__init__


def _note(self: Any, *given: Any, **named: Any) -> None:
    _init(self, *given, **named)
    stack = traceback.walk_stack(sys._getframe(1))
    _opened[self.fileno()] = traceback.StackSummary.extract(stack, limit=FRAMES_MAX, lookup_lines=False)


def watch() -> None:
    socket.socket.__init__ = _note  # type: ignore[method-assign]


def origin_of(report: str) -> str | None:
    """Where the socket that a failure complains about was opened."""
    found = UNCLOSED.search(report)
    stack = _opened.get(int(found[1] or found[2])) if found is not None else None
    return "".join(reversed(stack.format())) if stack is not None else None
