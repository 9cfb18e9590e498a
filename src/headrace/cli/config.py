"""`headrace config`: settings of topics, brokers and groups, with where each value comes from."""

import click

from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.options import KEY_VALUE
from headrace.cli.terminal import count_text, note, print_json, print_table
from headrace.client.administration.configs import Append, Resource, ResourceKind, Setting, Subtract

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
@click.argument("name")
@click.argument("keys", nargs=-1)
@click.option("--all", "show_all", is_flag=True, help="Defaults too, not only what somebody has set.")
@click.option("--docs", is_flag=True, help="What each setting means.")
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
    """Show settings: of `topic NAME`, `broker ID` or `group NAME`; all of them, or the KEYS.

    Without --all and KEYS only what differs from the defaults.

    Example: headrace config get topic orders retention.ms
    """
    with administer(bootstrap, timeout) as admin:
        settings = list(admin.describe_config(_resource(kind, name), keys or None).values())
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
            click.echo(f"\n{setting.name}\n    {setting.documentation or 'The broker does not say.'}")
    if hidden:
        note(f"{count_text(hidden, 'setting')} at the default; --all shows them")


def _row(setting: Setting) -> tuple[str, str, str, str]:
    value = "(secret)" if setting.is_secret else _text(setting.value)
    source = setting.source + (", read-only" if setting.is_read_only else "")
    return setting.name, value, source, _text(setting.default) if setting.is_override else ""


def _text(value: str | None) -> str:
    return "-" if value is None else value or '""'


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
@click.argument("name")
@click.argument("assignments", type=KEY_VALUE, nargs=-1)
@click.option("--unset", "-u", multiple=True, metavar="KEY", help="Put a setting back to its default.")
@click.option("--append", "-a", "appended", type=KEY_VALUE, multiple=True, help="Add to a list.")
@click.option("--subtract", "-s", "subtracted", type=KEY_VALUE, multiple=True, help="Take out of a list.")
@click.option("--dry-run", is_flag=True, help="Only check whether the broker would take it.")
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

    Example: headrace config set topic orders retention.ms=86400000
    """
    changes: dict[str, object] = dict(assignments)
    changes |= {key: Append(value) for key, value in appended}
    changes |= {key: Subtract(value) for key, value in subtracted}
    changes |= dict.fromkeys(unset)
    if not changes:
        raise click.UsageError("Nothing to change: give key=value or --unset KEY.")
    resource = _resource(kind, name)
    with administer(bootstrap, timeout) as admin:
        admin.alter_config(resource, changes, validate_only=dry_run)
    if as_json:
        print_json({"resource": [kind, name], "changed": sorted(changes), "dry_run": dry_run})
    else:
        click.echo(f"{'would change' if dry_run else 'changed'} {', '.join(sorted(changes))} of {resource}")
