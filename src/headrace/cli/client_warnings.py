"""Warnings of a command, and those that the client logs meanwhile: a line each on stderr, JSON with --json.

`logging` is loaded here and nowhere else in the command: `headrace serve` and `headrace up` do not wait for
it.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.cli.terminal import say

EARLY_S = 20.0  # commands that do not end by themselves have ended with an error by then


def warn(text: str, *, as_json: bool) -> None:
    """Prints a warning. Unlike a hint, it also appears when stderr is not a terminal."""
    shown = json.dumps({"warning": text}, ensure_ascii=False) if as_json else f"Warning: {text}"
    say(shown, err=True)


@contextmanager
def shown_warnings(*, as_json: bool) -> Iterator[None]:
    logger = logging.getLogger("headrace")
    handler = _Warnings(as_json)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Warnings(logging.Handler):
    def __init__(self, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        if self._as_json and _is_early_outage_warning(record):
            return
        warn(record.getMessage(), as_json=self._as_json)


def _is_early_outage_warning(record: logging.LogRecord) -> bool:
    """The first warning that a broker cannot be reached. A script does not need it: the command soon ends
    with an error that says the same. A command that continues for long does print warnings.
    """
    if record.name != "headrace.connections" or not isinstance(record.args, tuple):
        return False
    return any(isinstance(seconds, float) and seconds < EARLY_S for seconds in record.args)
