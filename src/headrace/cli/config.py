"""`headrace config`: settings of topics, brokers and groups, with where each value comes from."""

import click

from headrace.base.quantities import setting_text
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import resource_keys, resource_settings, resources
from headrace.cli.options import KEY_VALUE, SETTING
from headrace.cli.suggestions import closest, suggesting_topics
from headrace.cli.terminal import count_text, note, print_json, print_table, say
from headrace.client.admin.configs import Append, Resource, ResourceKind, Setting, Subtract
from headrace.client.errors import InvalidInput

KIND = click.Choice(["topic", "broker", "group"])


@click.group("config")
def command() -> None:
    """Show and change settings of topics, brokers and groups."""


def _resource(kind: str, name: str) -> Resource:
    """`broker all` means the value that every broker without its own takes."""
    if kind == "broker" and name == "all":
        return Resource.all_brokers()
    return Resource(ResourceKind[kind.upper()], name)


@command.command()
@click.argument("kind", type=KIND)
@click.argument("name", shell_complete=resources)
@click.argument("keys", nargs=-1, shell_complete=resource_keys)
@click.option(
    "--all", "show_all", is_flag=True, help="Show defaults too, not only settings that differ from them."
)
@click.option("--docs", is_flag=True, help="Show a description of each setting.")
@broker_options
def get(
    kind: str,
    name: str,
    keys: tuple[str, ...],
    show_all: bool,
    docs: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Show settings of `topic NAME`, `broker ID` or `group NAME`.

    Without --all and KEYS it shows only settings that differ from their defaults.

    Example: headrace config get topic orders retention.ms
    """
    with administer(bootstrap, timeout) as admin:
        resource = _resource(kind, name)
        with suggesting_topics(admin, [name]):
            described = admin.describe_config(resource)
        settings = _chosen(described, keys, str(resource)) if keys else list(described.values())
    hidden = 0
    if not keys and not show_all:
        chosen = [setting for setting in settings if setting.source != "default"]
        hidden, settings = len(settings) - len(chosen), chosen
    if as_json:
        print_json([_as_json(setting) for setting in settings])
        return
    if settings:
        print_table(("KEY", "VALUE", "SOURCE", "DEFAULT"), [_row(setting) for setting in settings])
    if docs:
        for setting in settings:
            say()
            say(setting.name)
            say(f"    {setting.documentation or 'The broker sent no description.'}")
    if hidden:
        note(f"{count_text(hidden, 'setting')} with default values are hidden; --all shows them")


def _chosen(described: dict[str, Setting], keys: tuple[str, ...], what: str) -> list[Setting]:
    for key in keys:
        if key not in described:
            meant = closest(key, described)
            hint = f"; did you mean {meant}?" if meant else ""
            raise InvalidInput(f"{what} has no setting {key!r}{hint}")
    return [described[key] for key in sorted(set(keys))]


def _row(setting: Setting) -> tuple[str, str, str, str]:
    value = "(secret)" if setting.is_secret else _text(setting.name, setting.value)
    source = setting.source + (", read-only" if setting.is_read_only else "")
    return setting.name, value, source, _text(setting.name, setting.default) if setting.is_override else ""


def _text(key: str, value: str | None) -> str:
    return "-" if value is None else setting_text(key, value) or '""'


def _as_json(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source,
        "default": setting.default,
        "read_only": setting.is_read_only,
        "secret": setting.is_secret,
        "documentation": setting.documentation,
    }


@command.command("set")
@click.argument("kind", type=KIND)
@click.argument("name", shell_complete=resources)
@click.argument("assignments", type=SETTING, nargs=-1, shell_complete=resource_settings)
@click.option(
    "--unset",
    "-u",
    multiple=True,
    metavar="KEY",
    help="Reset a setting to its default.",
    shell_complete=resource_keys,
)
@click.option("--append", "-a", "appended", type=KEY_VALUE, multiple=True, help="Add a value to a list.")
@click.option(
    "--subtract", "-s", "subtracted", type=KEY_VALUE, multiple=True, help="Remove a value from a list."
)
@click.option("--dry-run", is_flag=True, help="Only check whether the broker would accept the change.")
@broker_options
def set_values(
    kind: str,
    name: str,
    assignments: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    appended: tuple[tuple[str, str], ...],
    subtracted: tuple[tuple[str, str], ...],
    dry_run: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Change settings of `topic NAME`, `broker ID`, `broker all` or `group NAME`; others keep their values.

    Example: headrace config set topic orders retention.ms=7d
    """
    changes: dict[str, object] = dict(assignments)
    changes |= {key: Append(value) for key, value in appended}
    changes |= {key: Subtract(value) for key, value in subtracted}
    changes |= dict.fromkeys(unset)
    if not changes:
        raise click.UsageError("Nothing to change: give key=value, --unset, --append or --subtract.")
    resource = _resource(kind, name)
    with administer(bootstrap, timeout) as admin, suggesting_topics(admin, [name]):
        admin.alter_config(resource, changes, validate_only=dry_run)
    if as_json:
        print_json({"resource": [kind, name], "changed": sorted(changes), "dry_run": dry_run})
    else:
        say(f"{'would change' if dry_run else 'changed'} {', '.join(sorted(changes))} of {resource}")
