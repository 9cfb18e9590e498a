"""`headrace token`: delegation tokens, with which a program logs in as somebody for a limited time."""

import base64
import os
from pathlib import Path
from typing import Any

import click

from headrace.base.moments import iso_time
from headrace.cli.acl_options import PRINCIPAL
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import users as complete_users
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.options import Seconds
from headrace.cli.suggestions import closest
from headrace.cli.terminal import note, print_json, print_table, say
from headrace.client.admin.users import AT_ONCE, BROKERS_CHOICE, DelegationToken
from headrace.client.errors import InvalidInput
from headrace.client.threads.admin import Admin

_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@click.group("token")
def command() -> None:
    """Create, list, renew and expire delegation tokens.

    A token lets a program log in as its owner for a limited time, without the owner's password. Requests
    about tokens need a login by SASL or a client certificate, and not by a token.
    """


# --- create ----------------------------------------------------------------------------------------------


@command.command()
@click.option(
    "--owner", type=PRINCIPAL, help="For another user than yourself.", shell_complete=complete_users
)
@click.option(
    "--renewer",
    "renewers",
    type=PRINCIPAL,
    multiple=True,
    help="May renew the token; may be repeated. The owner always may.",
    shell_complete=complete_users,
)
@click.option(
    "--lifetime",
    type=Seconds(1),
    metavar="DURATION",
    help="The longest time with all renewals.  [default: the broker's]",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a new file of client settings that log in with the token, and do not print the secret.",
)
@broker_options
def create(
    owner: str | None,
    renewers: tuple[str, ...],
    lifetime: float | None,
    write: Path | None,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Create a token, and print its id and its secret (HMAC).

    Example: headrace token create --lifetime 1d --renewer scheduler --write job.properties
    """
    file = None if write is None else open(write, "x", opener=_for_owner)  # noqa: SIM115
    try:
        with administer(bootstrap, timeout) as admin:
            token = admin.create_token(
                owner=owner,
                renewers=renewers,
                lifetime_ms=BROKERS_CHOICE if lifetime is None else round(lifetime * 1000),
            )
        if file is not None:
            file.write(_client_settings(token))
            file.close()
    except BaseException:
        if file is not None and write is not None:
            write.unlink()
            file.close()
        raise
    if as_json:
        print_json(_as_json(token, with_secret=write is None) | ({"file": str(write)} if write else {}))
        return
    say(f"id       {token.token_id}")
    if write is None:
        say(f"secret   {_secret(token)}")
    else:
        say(f"file     {write}")
    say(f"owner    {token.owner}")
    say(f"expires  {iso_time(token.expires_ms)}, at the latest {iso_time(token.expires_ms_max)}")


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _client_settings(token: DelegationToken) -> str:
    return (
        "# add security.protocol, bootstrap.servers and the settings of TLS of your cluster\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={_MODULE} required username="{token.token_id}" password="{_secret(token)}" '
        'tokenauth="true";\n'
    )


def _secret(token: DelegationToken) -> str:
    return base64.b64encode(token.hmac).decode()


def _as_json(token: DelegationToken, *, with_secret: bool) -> dict[str, Any]:
    told = token._asdict()
    told["hmac"] = _secret(token) if with_secret else None
    return told


# --- list ------------------------------------------------------------------------------------------------


@command.command("list")
@click.option(
    "--owner",
    "owners",
    type=PRINCIPAL,
    multiple=True,
    help="Only tokens of this owner; may be repeated.",
    shell_complete=complete_users,
)
@click.option("--secrets", is_flag=True, help="With --json: show the secrets (HMAC), too.")
@broker_options
def list_tokens(
    owners: tuple[str, ...], secrets: bool, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """List the tokens that you may see: yours, those that you may renew, and those that rules let you see."""
    if secrets and not as_json:
        raise click.UsageError("--secrets works only with --json.")
    with administer(bootstrap, timeout) as admin:
        tokens = sorted(admin.describe_tokens(owners or None), key=lambda one: (one.owner, one.issued_ms))
    if as_json:
        print_json([_as_json(token, with_secret=secrets) for token in tokens])
    elif tokens:
        rows = [
            (
                token.token_id,
                token.owner,
                ", ".join(token.renewers) or "-",
                iso_time(token.issued_ms),
                iso_time(token.expires_ms),
                iso_time(token.expires_ms_max),
            )
            for token in tokens
        ]
        print_table(("TOKEN", "OWNER", "RENEWERS", "ISSUED", "EXPIRES", "AT THE LATEST"), rows)
    else:
        note("no tokens")


# --- renew and expire --------------------------------------------------------------------------------------


@command.command()
@click.argument("token_id")
@click.option(
    "--for", "period", type=Seconds(1), metavar="DURATION", help="From now on.  [default: the broker's]"
)
@broker_options
def renew(token_id: str, period: float | None, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Renew a token, as its owner or one of its renewers."""
    with administer(bootstrap, timeout) as admin:
        token = _find(admin, token_id)
        period_ms = BROKERS_CHOICE if period is None else round(period * 1000)
        expires_ms = admin.renew_token(token.hmac, period_ms)
    _tell(token_id, expires_ms, "renewed", as_json=as_json)


@command.command()
@click.argument("token_id")
@click.option("--after", type=Seconds(0), metavar="DURATION", help="Later.  [default: at once]")
@yes_option
@broker_options
def expire(
    token_id: str, after: float | None, yes: bool, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """End a token, as its owner or one of its renewers: at once, or after a time."""
    with administer(bootstrap, timeout) as admin:
        token = _find(admin, token_id)
        confirm(f"End token {token_id} of {token.owner}?", yes=yes)
        expires_ms = admin.expire_token(token.hmac, AT_ONCE if after is None else round(after * 1000))
    _tell(token_id, expires_ms, "ended" if after is None else "changed", as_json=as_json)


def _find(admin: Admin, token_id: str) -> DelegationToken:
    """Requests name a token by its secret, which a list tells to those who may renew it."""
    tokens = {token.token_id: token for token in admin.describe_tokens()}
    if token_id in tokens:
        return tokens[token_id]
    error = InvalidInput(f"there is no token {token_id!r} that you may see")
    meant = closest(token_id, tokens)
    error.advice = (f"Did you mean {meant}? " if meant else "") + "`headrace token list` shows all."
    raise error


def _tell(token_id: str, expires_ms: int, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"token_id": token_id, "expires_ms": expires_ms})
    else:
        say(f"{done} {token_id}; it expires {iso_time(expires_ms)}")
