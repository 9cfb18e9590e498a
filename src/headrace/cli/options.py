"""Options that many commands share, and values as people write them: `key=value`, sizes, durations."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.base.quantities import NotAQuantity, parse_duration_ms, parse_size, setting_value

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_REGISTRY = "http://localhost:9644"  # where `headrace up` serves one
DEFAULT_TIMEOUT_S = 30.0


def bootstrap_option(function: F, callback: Callable[..., str] | None = None) -> F:
    return click.option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,…",
        help="Addresses of brokers.",
        callback=callback,
    )(function)


def registry_option(function: F) -> F:
    return _registry_option(DEFAULT_REGISTRY, "Address of the schema registry; may contain user:password@.")(
        function
    )


def optional_registry_option(function: F) -> F:
    return _registry_option(None, "Decode with this schema registry.")(function)


def _registry_option(default: str | None, text: str) -> Callable[[F], F]:
    return click.option(
        "--registry",
        envvar="HEADRACE_REGISTRY",
        default=default,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help=text,
    )


def timeout_option(function: F) -> F:
    return click.option(
        "--timeout",
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        type=Seconds(0.1),
        metavar="SECONDS",
        help="Stop with an error after this long: seconds, or a duration such as 90s or 5m.",
    )(function)


def partitions_option(function: F) -> F:
    return click.option(
        "--partition",
        "-p",
        "partitions",
        type=click.IntRange(min=0),
        multiple=True,
        help="Only this partition; may be repeated.",
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


class BrokerSetting(KeyValue):
    """`key=value` of a broker, topic or group, where a value may be a duration or a size: retention.ms=7d."""

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, str]:
        key, text = super().convert(value, parameter, context)
        try:
            return key, setting_value(key, text)
        except NotAQuantity as error:
            self.fail(str(error), parameter, context)


class Size(click.ParamType[int]):
    """A number of things or bytes: 1000000, 1M, 64KiB."""

    name = "size"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except NotAQuantity as error:
            self.fail(str(error), parameter, context)


class Seconds(click.ParamType[float]):
    """A duration in seconds: 30, 0.5, 90s, 5m."""

    name = "seconds"

    def __init__(self, minimum: float) -> None:
        self.minimum = minimum

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = parse_duration_ms(value) / 1000
            except NotAQuantity as error:
                self.fail(f"{error}, or a number of seconds", parameter, context)
        if not self.minimum <= seconds < float("inf"):
            self.fail(f"{value!r} is too short; use at least {self.minimum:g} s", parameter, context)
        return seconds


class OneOf(click.ParamType[str]):
    """One of a few names; upper and lower case are equal."""

    name = "name"

    def __init__(self, *names: str) -> None:
        self.names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self.names)}]"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        for name in self.names:
            if name.lower() == str(value).lower():
                return name
        from difflib import get_close_matches

        found = get_close_matches(str(value).lower(), [name.lower() for name in self.names], n=1)
        hint = next((f"; did you mean {name}?" for name in self.names if [name.lower()] == found), "")
        self.fail(f"{value!r} is not one of {', '.join(self.names)}{hint}", parameter, context)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[Any]]":
        begun = incomplete.lower()
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in self.names if name.lower().startswith(begun)]


KEY_VALUE = KeyValue()
SETTING = BrokerSetting()
SIZE = Size()
