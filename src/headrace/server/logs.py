"""The operator's log: one line per event, `key=value` or JSON, on stderr.

A line has a time, a level, the name of an event and its facts. Events that a hostile client can cause without
end are logged with `sometimes`, which writes a few lines of one event per period, and then the number of
those that it left out.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FORMATS = ("text", "json")

# Lines of one repeatable event per period; beyond it they are counted, so that a flood fills no disk.
REPEATS_MAX = 10
REPEATS_PERIOD_S = 10.0

DELETE = "\x7f"  # the one control character that JSON leaves as it is

QUOTED = frozenset(' "=\n\r\t\\')


def _to_stderr(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


class Log:
    __slots__ = ("_format", "_repeats", "_threshold", "_write")

    def __init__(
        self, level: str = "info", *, format: str = "text", write: Callable[[str], None] = _to_stderr
    ) -> None:
        self._threshold = LEVELS[level]
        self._format = _as_json if format == "json" else _as_text
        self._write = write
        self._repeats: dict[str, list[float]] = {}  # event → [period's start, lines in it]

    def is_on(self, level: str) -> bool:
        return LEVELS[level] >= self._threshold

    def event(self, level: str, event: str, facts: dict[str, Any]) -> None:
        if LEVELS[level] >= self._threshold:
            self._write(self._format(_moment(), level, event, facts))

    def debug(self, event: str, **facts: Any) -> None:
        self.event("debug", event, facts)

    def info(self, event: str, **facts: Any) -> None:
        self.event("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        self.event("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        self.event("error", event, facts)

    def sometimes(self, mono: float, level: str, event: str, **facts: Any) -> None:
        """Like the others, but at most REPEATS_MAX lines of this event per period."""
        period = self._repeats.setdefault(event, [mono, 0])
        if mono - period[0] >= REPEATS_PERIOD_S:
            held_back = int(period[1]) - REPEATS_MAX
            if held_back > 0:
                self.event(level, event, {"held_back": held_back})
            period[:] = [mono, 0]
        period[1] += 1
        if period[1] <= REPEATS_MAX:
            self.event(level, event, facts)


def _moment() -> str:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1_000_000:03d}Z"


def _as_text(moment: str, level: str, event: str, facts: dict[str, Any]) -> str:
    words = [moment, level.ljust(7), event]
    words.extend(f"{key}={_word(value)}" for key, value in facts.items())
    return " ".join(words) + "\n"


def _word(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    # What clients wrote (client ids, topic names) must not be able to forge a line or move a cursor.
    if text and text.isprintable() and QUOTED.isdisjoint(text):
        return text
    from json import dumps  # not needed to start

    return dumps(text).replace(DELETE, "\\u007f")


def _as_json(moment: str, level: str, event: str, facts: dict[str, Any]) -> str:
    from json import dumps

    text = dumps({"time": moment, "level": level, "event": event, **facts}, default=str)
    return text.replace(DELETE, "\\u007f") + "\n"
