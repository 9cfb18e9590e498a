"""The message of `format("headrace")` inside an error of Spark, which wraps it in two tracebacks."""

import re
import traceback

_LAST_LINE = re.compile(r"^headrace\.(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)  # of a worker's traceback
_ADVICE = {"Unreachable": "Is a broker running there? `headrace up --sample clicks` starts one."}


def sentence_of(error: BaseException) -> str | None:
    """None for errors that are not ours: their tracebacks are worth reading."""
    said = _LAST_LINE.findall(str(error))
    if not said:
        return None
    kind, text = said[-1]  # those before it are what it was raised from
    sentence = text if text.endswith((".", "?", "!")) else text + "."
    return f"{sentence} {_ADVICE[kind]}" if kind in _ADVICE else sentence


def line_of(error: BaseException, filename: str) -> int | None:
    """Where in this file it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == filename), None)
