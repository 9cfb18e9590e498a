"""`headrace user`: users with SCRAM passwords, in a running cluster or before its first start."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click

from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import users as complete_users
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.options import OneOf
from headrace.cli.passwords import password_options, read_password
from headrace.cli.suggestions import closest
from headrace.cli.terminal import note, print_json, print_table, printed_even_if_it_fails, say
from headrace.client.admin.users import ITERATIONS, ScramCredential
from headrace.client.errors import InvalidInput
from headrace.client.threads.admin import Admin
from headrace.machines.security import scram

MECHANISMS = tuple(scram.MECHANISMS)
Users = Mapping[str, list[ScramCredential]]


@click.group("user")
def command() -> None:
    """List, add and remove users with SCRAM passwords; change passwords."""


mechanism_option = click.option(
    "--mechanism",
    "-m",
    "mechanisms",
    type=OneOf(*MECHANISMS),
    multiple=True,
    help="Only for this mechanism; may be repeated.",
)
iterations_option = click.option(
    "--iterations",
    type=click.IntRange(scram.ITERATIONS_MIN, scram.ITERATIONS_MAX),
    default=ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)


# --- list ------------------------------------------------------------------------------------------------


@command.command("list")
@broker_options
def list_users(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List users that have passwords. In a pipe it prints one name per line."""
    with administer(bootstrap, timeout) as admin:
        users = dict(sorted(admin.describe_users().items()))
    if as_json:
        print_json([_as_json(name, credentials) for name, credentials in users.items()])
    elif not sys.stdout.isatty():
        for name in users:
            say(name)
    else:
        rows = [(name, one.mechanism, one.iterations) for name, many in users.items() for one in many]
        print_table(("USER", "MECHANISM", "ITERATIONS"), rows, right=("ITERATIONS",))


def _as_json(name: str, credentials: Iterable[ScramCredential]) -> dict[str, object]:
    return {"user": name, "credentials": [one._asdict() for one in credentials]}


# --- add and password ------------------------------------------------------------------------------------


@command.command()
@click.argument("name")
@mechanism_option
@iterations_option
@password_options
@click.option("--if-not-exists", is_flag=True, help="Succeed when the user exists already; it stays.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Of a cluster that has never been started: its first start makes the user known. DIR is --data of "
    "`headrace up`, or log.dirs of a controller.",
)
@broker_options
def add(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_stdin: bool,
    password_file: Path | None,
    if_not_exists: bool,
    data: Path | None,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Add a user with a password, which the command asks for.

    The password counts for SCRAM-SHA-256 and SCRAM-SHA-512, and for PLAIN where brokers check that by SCRAM
    credentials.

    Example: headrace user add alice
    """
    _check_name(name)

    def ask() -> str:
        return read_password(name, from_stdin=password_stdin, file=password_file, as_json=as_json)

    if data is not None:
        _add_before_first_start(data, name, ask, mechanisms or MECHANISMS, iterations, if_not_exists, as_json)
        return
    with administer(bootstrap, timeout) as admin:
        if name in (users := admin.describe_users()):
            if not if_not_exists:
                raise InvalidInput(
                    f"user {name!r} exists already. `headrace user password` sets another password"
                )
            _tell(name, users[name], is_new=False, as_json=as_json)
            return
        _set_passwords(admin, name, ask(), mechanisms or MECHANISMS, iterations)
        _tell(name, admin.describe_users([name])[name], is_new=True, as_json=as_json)


def _add_before_first_start(
    data: Path,
    name: str,
    ask: Callable[[], str],
    mechanisms: Iterable[str],
    iterations: int,
    if_not_exists: bool,
    as_json: bool,
) -> None:
    from headrace.cli.bootstrap_users import BootstrapUsers

    with BootstrapUsers(data.absolute()) as users:
        is_new = not users.has(name)
        if not is_new and not if_not_exists:
            raise InvalidInput(f"user {name!r} exists already in {data}")
        if is_new:
            users.put(name, ask(), mechanisms, iterations)
            users.save()
    if as_json:
        print_json({"user": name, "created": is_new, "data": str(data)})
    else:
        done = "added" if is_new else "exists already:"
        say(f"{done} {name}, who is known from the first start of {data} on")


@command.command()
@click.argument("name", shell_complete=complete_users)
@mechanism_option
@iterations_option
@password_options
@broker_options
def password(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_stdin: bool,
    password_file: Path | None,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Change the password of a user, for all mechanisms for which there is one.

    Clients that are logged in stay so until their session ends (connections.max.reauth.ms).
    """
    with administer(bootstrap, timeout) as admin:
        has = [one.mechanism for one in _existing(admin, [name])[name]]
        new = read_password(name, from_stdin=password_stdin, file=password_file, as_json=as_json)
        chosen = mechanisms or [one for one in has if one in MECHANISMS]
        _set_passwords(admin, name, new, chosen, iterations)
        credentials = admin.describe_users([name])[name]
    if as_json:
        print_json(_as_json(name, credentials) | {"changed": sorted(chosen)})
    else:
        say(f"changed the password of {name} for {' and '.join(sorted(chosen))}")


def _check_name(name: str) -> None:
    if not name:
        raise click.UsageError("The name of the user is empty.")
    if name.startswith("User:"):
        raise click.UsageError(f"NAME is the name alone: {name.removeprefix('User:')!r}, without User:.")


def _set_passwords(
    admin: Admin, name: str, password: str, mechanisms: Iterable[str], iterations: int
) -> None:
    """One request each: brokers take a user only once in a request."""
    for mechanism in dict.fromkeys(mechanisms):
        admin.set_password(name, password, mechanism=mechanism, iterations=iterations)


def _tell(name: str, credentials: Iterable[ScramCredential], *, is_new: bool, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(name, credentials) | {"created": is_new})
        return
    for_these = " and ".join(one.mechanism for one in credentials)
    say(f"{'added' if is_new else 'exists already:'} {name} with a password for {for_these}")


# --- remove ----------------------------------------------------------------------------------------------


@command.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_users)
@mechanism_option
@yes_option
@broker_options
def remove(
    names: tuple[str, ...],
    mechanisms: tuple[str, ...],
    yes: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Remove users: their passwords for all mechanisms, or for some. Rules and quotas for them stay."""
    removed: list[str] = []
    with printed_even_if_it_fails(removed, as_json=as_json), administer(bootstrap, timeout) as admin:
        users = _existing(admin, dict.fromkeys(names))
        wanted = {
            name: [one.mechanism for one in users[name] if not mechanisms or one.mechanism in mechanisms]
            for name in dict.fromkeys(names)
        }
        for name, chosen in wanted.items():
            if not chosen:
                raise InvalidInput(f"user {name!r} has no password for {' and '.join(mechanisms)}")
        what = "passwords of user" if mechanisms else "user"
        confirm(f"Remove {what}{'' if len(wanted) == 1 else 's'} {', '.join(wanted)}?", yes=yes)
        for name, chosen in wanted.items():
            for mechanism in chosen:
                admin.delete_passwords(name, mechanism=mechanism)
            removed.append(name)
            if not as_json:
                say(f"removed {name}" if not mechanisms else f"removed {' and '.join(chosen)} of {name}")
    if not mechanisms and not as_json:
        note("Rules and quotas for them stay: `headrace acl remove --principal NAME` removes rules.")


def _existing(admin: Admin, names: Iterable[str]) -> Users:
    """All users; InvalidInput names the first that is not one."""
    users = admin.describe_users()
    for name in names:
        if name not in users:
            error = InvalidInput(f"there is no user {name!r} with a password")
            meant = closest(name, users)
            hint = f"Did you mean {meant}? " if meant else ""
            error.advice = f"{hint}`headrace user list` shows all."
            raise error
    return users
