"""`headrace quota`: limits of users, client ids and addresses, and which one holds for a client."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.base.quantities import NotAQuantity, parse_size
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import quota_keys, quota_values
from headrace.cli.completers import users as complete_users
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.options import KEY_VALUE
from headrace.cli.suggestions import closest
from headrace.cli.terminal import bytes_text, note, print_json, print_table, say
from headrace.client.admin.users import EVERYBODY_ELSE, QuotaEntity
from headrace.client.errors import InvalidInput
from headrace.machines.security import quotas as machine
from headrace.machines.security.acl_rules import host_text

F = TypeVar("F", bound=Callable[..., Any])
Quotas = dict[QuotaEntity, dict[str, float]]

# of users and client ids, and of addresses
CLIENT_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_KEYS = ("connection_creation_rate",)
LEVELS = (
    "user and client id",
    "user, each client id",
    "user",
    "each user, client id",
    "each user, each client id",
    "each user",
    "client id",
    "each client id",
)


@click.group("quota")
def command() -> None:
    """List, set and remove quotas; explain which one holds for a client.

    A quota is for each broker, as in Kafka: with three brokers, a client can have three times as much.
    """


def entity_options(function: F) -> F:
    """--user, --client-id, --ip and their defaults; the command gets one argument `entity`."""

    def made(*arguments: Any, **values: Any) -> Any:
        entity = QuotaEntity(
            _name("user", values.pop("user"), values.pop("user_default")),
            _name("client-id", values.pop("client_id"), values.pop("client_default")),
            _name("ip", values.pop("ip"), values.pop("ip_default")),
        )
        if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
            raise click.UsageError("--ip stands alone: quotas of addresses know no users and client ids.")
        return function(*arguments, entity=entity, **values)

    made.__name__, made.__doc__ = function.__name__, function.__doc__
    made.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--ip-default", is_flag=True, help="Each address without a quota of its own."),
        click.option("--ip", metavar="ADDRESS", help="Connections from an address."),
        click.option("--client-default", is_flag=True, help="Each client id without a quota of its own."),
        click.option("--client-id", metavar="ID", help="Clients with this client id."),
        click.option("--user-default", is_flag=True, help="Each user without a quota of its own."),
        click.option("--user", metavar="NAME", help="Clients of this user.", shell_complete=complete_users),
    ):
        made = option(made)
    return made  # type: ignore[return-value]


def _name(kind: str, given: str | None, is_default: bool) -> str | None:
    if given is not None and is_default:
        raise click.UsageError(f"Give only one of --{kind} and --{kind.removesuffix('-id')}-default.")
    if given == "":
        raise click.UsageError(
            f"--{kind}: the name is empty. --{kind.removesuffix('-id')}-default is for all."
        )
    return EVERYBODY_ELSE if is_default else given


# --- list ------------------------------------------------------------------------------------------------


@command.command("list")
@entity_options
@broker_options
def list_quotas(entity: QuotaEntity, bootstrap: str, timeout: float, as_json: bool) -> None:
    """List quotas: all, or those that are set for a user, a client id or an address."""
    with administer(bootstrap, timeout) as admin:
        found = admin.describe_quotas()
    parts = entity.parts().items()
    chosen = {
        one: values for one, values in sorted(found.items(), key=_order) if parts <= one.parts().items()
    }
    if as_json:
        print_json([_as_json(one, values) for one, values in chosen.items()])
    elif chosen:
        rows = [
            (entity_text(one), key, value_text(key, value))
            for one, values in chosen.items()
            for key, value in sorted(values.items())
        ]
        print_table(("FOR", "QUOTA", "VALUE"), rows)
    else:
        note("no quotas")


def _order(item: tuple[QuotaEntity, object]) -> tuple[str, ...]:
    return tuple("" if part is None else f"-{part}" for part in item[0])


def _as_json(entity: QuotaEntity, values: dict[str, float]) -> dict[str, object]:
    """A default is an empty name; what does not matter is null."""
    return {**entity._asdict(), "quotas": dict(sorted(values.items()))}


def entity_text(entity: QuotaEntity) -> str:
    words = {"user": "user", "client-id": "client id", "ip": "address"}
    return ", ".join(
        f"{words[kind]} {name}" if name else f"each {words[kind]}" for kind, name in entity.parts().items()
    )


def value_text(key: str, value: float) -> str:
    if key.endswith("_byte_rate"):
        return f"{_as_given(value)}/s"
    if key == "request_percentage":
        return f"{value:g} %"
    if key in ("controller_mutation_rate", "connection_creation_rate"):
        return f"{value:g}/s"
    return f"{value:g}"


def _as_given(value: float) -> str:
    """10MB is told as 10 MB, not as 9.5 MiB."""
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if value >= size and value % size == 0:
            return f"{value / size:,g} {unit}"
    return bytes_text(value)


# --- set and remove --------------------------------------------------------------------------------------


@command.command("set")
@click.argument("assignments", type=KEY_VALUE, nargs=-1, required=True, shell_complete=quota_values)
@entity_options
@click.option("--dry-run", is_flag=True, help="Only check whether the broker would accept the change.")
@broker_options
def set_quotas(
    assignments: tuple[tuple[str, str], ...],
    entity: QuotaEntity,
    dry_run: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Set quotas: producer_byte_rate, consumer_byte_rate, request_percentage and controller_mutation_rate of
    users and client ids, connection_creation_rate of addresses.

    \b
    headrace quota set --user alice producer_byte_rate=10MB consumer_byte_rate=20MB
    headrace quota set --user-default --client-id batch request_percentage=50
    headrace quota set --ip 10.0.0.7 connection_creation_rate=5
    """
    _check_entity(entity)
    values = {key: parse_quota(key, text, entity) for key, text in assignments}
    with administer(bootstrap, timeout) as admin:
        admin.alter_quotas({entity: values}, validate_only=dry_run)
    if as_json:
        print_json(_as_json(entity, values) | {"dry_run": dry_run})
        return
    for key, value in sorted(values.items()):
        say(f"{'would set' if dry_run else 'set'} {key}={value_text(key, value)} for {entity_text(entity)}")


def _check_entity(entity: QuotaEntity) -> None:
    if not entity.parts():
        raise click.UsageError("Nobody is named: give --user, --client-id, both, --ip, or a default of them.")


def parse_quota(key: str, text: str, entity: QuotaEntity) -> float:
    _check_key(key, entity)
    try:
        value = float(parse_size(text)) if key.endswith("_byte_rate") else float(text)
    except (NotAQuantity, ValueError) as error:
        reason = error if isinstance(error, NotAQuantity) else f"{text!r} is not a number"
        raise click.UsageError(f"{key}={text}: {reason}.") from None
    if not 0 < value < float("inf"):
        raise click.UsageError(f"{key}={text}: must be greater than 0. `headrace quota remove` removes it.")
    return value


def _check_key(key: str, entity: QuotaEntity) -> None:
    possible = IP_KEYS if entity.ip is not None else CLIENT_KEYS
    if key in possible:
        return
    meant = closest(key, possible)
    hint = f"Did you mean {meant}?" if meant else f"Possible are {', '.join(possible)}."
    raise click.UsageError(f"{key}: not a quota of {entity_text(entity)}. {hint}")


@command.command()
@click.argument("keys", nargs=-1, shell_complete=quota_keys)
@entity_options
@yes_option
@broker_options
def remove(
    keys: tuple[str, ...], entity: QuotaEntity, yes: bool, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """Remove quotas: all that are set for exactly this user, client id or address, or those of the KEYS."""
    _check_entity(entity)
    with administer(bootstrap, timeout) as admin:
        found = admin.describe_quotas(entity).get(entity, {})
        for key in keys:
            if key not in found:
                raise InvalidInput(f"{entity_text(entity)} has no quota {key}")
        gone = sorted(set(keys) or found)
        if not gone:
            raise InvalidInput(f"no quota is set for exactly {entity_text(entity)}")
        confirm(f"Remove {', '.join(gone)} of {entity_text(entity)}?", yes=yes)
        admin.alter_quotas({entity: dict.fromkeys(gone)})
    if as_json:
        print_json({**entity._asdict(), "removed": gone})
    else:
        say(f"removed {', '.join(gone)} of {entity_text(entity)}")


# --- explain ---------------------------------------------------------------------------------------------


@command.command()
@entity_options
@broker_options
def explain(entity: QuotaEntity, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show which quotas hold for a client of a user with a client id, or for an address.

    Kafka has eight levels of quotas for users and client ids; the first level that has one decides. A client
    without a login is the user ANONYMOUS.

    Example: headrace quota explain --user alice --client-id batch
    """
    _check_entity(entity)
    if EVERYBODY_ELSE in entity.parts().values():
        raise click.UsageError("A question is about one client: give names, not defaults.")
    with administer(bootstrap, timeout) as admin:
        found = admin.describe_quotas()
    answers = _of_address(found, entity.ip) if entity.ip is not None else _of_client(found, entity)
    if as_json:
        print_json(answers)
        return
    rows = [
        (
            one["quota"],
            "no limit" if one["value"] is None else value_text(str(one["quota"]), float(str(one["value"]))),
            "-" if one["level"] is None else f"{one['level']} ({one['level_name']})",
            one["set_for"] or "-",
        )
        for one in answers
    ]
    print_table(("QUOTA", "VALUE", "LEVEL", "SET FOR"), rows)
    if any(one["value"] is not None for one in answers):
        note("For each broker.")


def _of_client(found: Quotas, entity: QuotaEntity) -> list[dict[str, object]]:
    user, client_id = entity.user or "", entity.client_id or ""
    answers = []
    for key in CLIENT_KEYS:
        table = machine.byte_rates()  # what holds is the same for every kind
        for one, values in found.items():
            if one.ip is None and key in values:
                table.change(machine.QuotaEntity(one.user, one.client_id), values[key])
        holds = table.find(user, client_id)
        if holds is None:
            answers.append(_holds(key, None, None, None))
            continue
        which, bound = holds
        level = machine.levels(user, client_id).index(which)
        answers.append(_holds(key, bound, level, QuotaEntity(which.user, which.client_id)))
    return answers


def _of_address(found: Quotas, address: str) -> list[dict[str, object]]:
    """Its own quota, or the default; addresses are compared in their one form."""
    answers = []
    for key in IP_KEYS:
        bounds = {
            host_text(one.ip): values[key]
            for one, values in found.items()
            if one.ip is not None and key in values
        }
        name = host_text(address)
        if name in bounds:
            answers.append(_holds(key, bounds[name], None, QuotaEntity(ip=name)))
        elif EVERYBODY_ELSE in bounds:
            answers.append(_holds(key, bounds[EVERYBODY_ELSE], None, QuotaEntity(ip=EVERYBODY_ELSE)))
        else:
            answers.append(_holds(key, None, None, None))
    return answers


def _holds(key: str, value: float | None, level: int | None, entity: QuotaEntity | None) -> dict[str, object]:
    return {
        "quota": key,
        "value": value,
        "level": None if level is None else level + 1,
        "level_name": None if level is None else LEVELS[level],
        "set_for": None if entity is None else entity_text(entity),
        "entity": None if entity is None else entity._asdict(),
    }
