"""Client settings of a command, besides the brokers' addresses: TLS, SASL, timeouts.

`--client-config FILE` takes the file of Kafka's own tools (or TOML), `-X key=value` a single setting, which
overrides the file. They are stored in click's context, where the code that makes a client looks them up.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from headrace.cli.options import SETTING, bootstrap_option, json_option, timeout_option

F = TypeVar("F", bound=Callable[..., Any])

CLIENT_ID = "headrace-cli"
_BOOTSTRAP = "bootstrap.servers"
_SAID = "headrace.client_settings"  # in the context's notes


def client_options(function: F) -> F:
    """--bootstrap, --client-config and -X."""
    in_file = click.option(
        "--client-config",
        envvar="HEADRACE_CLIENT_CONFIG",
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Client settings, such as TLS and SASL: a properties file as for Kafka's tools, or TOML.",
        callback=_keep_file,
        expose_value=False,
        is_eager=True,
    )
    single = click.option(
        "--client-set",
        "-X",
        type=SETTING,
        multiple=True,
        help="One client setting; overrides the file.",
        callback=_keep_single,
        expose_value=False,
        is_eager=True,
    )
    return bootstrap_option(in_file(single(function)), callback=_or_from_file)


def broker_options(function: F) -> F:
    """Those, --timeout and --json."""
    return client_options(timeout_option(json_option(function)))


def settings_of(kind: str, bootstrap: str, **own: object) -> dict[str, object]:
    """For a client of this kind: the user's settings that apply to it; the command's own settings win."""
    context = click.get_current_context(silent=True)
    said: dict[str, str] = context.meta.get(_SAID, {}) if context else {}
    known = _keys()[kind]
    return {
        "client.id": CLIENT_ID,
        **{name: value for name, value in said.items() if name in known},
        **{name.replace("_", "."): value for name, value in own.items()},
        _BOOTSTRAP: bootstrap,
    }


def _keep_file(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    from headrace.server.config import WrongSettings, read_values

    try:
        values, lines = read_values(path)
    except WrongSettings as error:
        raise click.ClickException(f"{error}.") from error
    for name, value in values.items():
        _keep(context, name, value, f"{path}:{lines[name]}: ", is_last_word=False)


def use_file(path: Path) -> None:
    """As if --client-config had named it, for clients that this command makes."""
    context = click.get_current_context()
    context.meta.pop(_SAID, None)
    _keep_file(context, context.command.params[0], str(path))


def _keep_single(context: click.Context, _: click.Parameter, given: tuple[tuple[str, str], ...]) -> None:
    for name, value in given:
        _keep(context, name, value, "", is_last_word=True)


def _keep(context: click.Context, name: str, value: str, where: str, *, is_last_word: bool) -> None:
    """`is_last_word`: it wins over what was said before; the order in which options come does not matter."""
    from headrace.client.settings.configuration import InvalidSetting, canonical_name

    known = {key: one for keys in _keys().values() for key, one in keys.items()}
    try:
        name = canonical_name(known, name)
    except InvalidSetting as error:
        raise InvalidSetting(f"{where}{error}") from error
    said = context.meta.setdefault(_SAID, {})
    if is_last_word:
        said[name] = value
    else:
        said.setdefault(name, value)


def _or_from_file(context: click.Context, parameter: click.Parameter, bootstrap: str) -> str:
    """The file may name the brokers too; what was said on the command line or in the environment wins."""
    assert parameter.name is not None
    if context.get_parameter_source(parameter.name) is ParameterSource.DEFAULT:
        said: str = context.meta.get(_SAID, {}).get(_BOOTSTRAP, bootstrap)
        return said
    return bootstrap


def _keys() -> dict[str, dict[str, Any]]:
    from headrace.client.settings.keys import admin_keys, consumer_keys, producer_keys

    return {"admin": admin_keys(), "consumer": consumer_keys(), "producer": producer_keys()}
