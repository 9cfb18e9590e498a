"""Options that many commands share, and values as people write them: `key=value`, sizes, durations."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_TIMEOUT_S = 30.0
_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}
_UNITS |= {"ki": 2**10, "kib": 2**10, "mi": 2**20, "mib": 2**20, "gi": 2**30, "gib": 2**30}


def bootstrap_option(function: F, callback: Callable[..., str] | None = None) -> F:
    return click.option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,…",
        help="Brokers to begin with.",
        callback=callback,
    )(function)


def timeout_option(function: F) -> F:
    return click.option(
        "--timeout",
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        type=click.FloatRange(min=0.1),
        metavar="SECONDS",
        help="Give up after this long.",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


class KeyValue(click.ParamType[tuple[str, str]]):
    """`key=value`; the value may be empty and may contain more equals signs."""

    name = "key=value"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not of the form key=value", parameter, context)
        return key.strip(), text


class Size(click.ParamType[int]):
    """A number of things or bytes: 1000000, 1M, 64KiB."""

    name = "size"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        read = re.fullmatch(r"(\d+(?:\.\d+)?|\d*_?\d+)\s*([a-zA-Z]*)", value.replace("_", ""))
        if read is None or read[2].lower() not in _UNITS:
            self.fail(f"{value!r} is no size; write 1000, 1M or 64KiB", parameter, context)
        return int(float(read[1]) * _UNITS[read[2].lower()])


KEY_VALUE = KeyValue()
SIZE = Size()
