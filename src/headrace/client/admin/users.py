"""Users that log in with SCRAM: shown, given passwords, and removed.

A password never travels: what does is made from it with a salt, many times over (RFC 5802), and is of no use
for logging in.
"""

from collections.abc import Iterable
from hashlib import pbkdf2_hmac
from typing import Any, NamedTuple

from headrace.client.admin.asking import (
    ANY,
    CONTROLLER,
    Ask,
    Operation,
    Outcome,
    Sent,
    as_list,
    ask_all,
    ask_one,
    check,
    draw,
    failed,
    settled,
)
from headrace.client.errors import InvalidInput
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

ITERATIONS = 8192  # Kafka takes 4096 to 16384
SALT_BYTES = 24
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NAMES = {number: name for name, number in MECHANISMS.items()}
STRONGEST = "SCRAM-SHA-512"


class ScramCredential(NamedTuple):
    """How a user may log in.

    >>> ScramCredential("SCRAM-SHA-512", 8192).iterations
    8192
    """

    mechanism: str
    iterations: int


def describe_users(names: Iterable[str] | None = None) -> Operation[dict[str, list[ScramCredential]]]:
    """Those users, or all, with the mechanisms for which they have passwords.

    >>> admin.describe_users()  # doctest: +SKIP
    """
    users = None if names is None else [UserName(name=name) for name in as_list(names)]

    def read(answer: Any) -> dict[str, list[ScramCredential]]:
        check(answer.error_code, answer.error_message, subject="users")
        outcome: Outcome[str, list[ScramCredential]] = {}
        for told in answer.results:
            error = failed(told.error_code, told.error_message, subject=f"user {told.user!r}")
            outcome[told.user] = error or sorted(
                ScramCredential(_NAMES.get(one.mechanism, f"unknown {one.mechanism}"), one.iterations)
                for one in told.credential_infos
            )
        return settled(outcome)

    request = DescribeUserScramCredentialsRequest(users=users)
    return (yield from ask_one("describing users", ANY, lambda _: request, read))


def set_password(
    user: str, password: str, *, mechanism: str = STRONGEST, iterations: int = ITERATIONS
) -> Operation[None]:
    """Gives a user a password, or another one.

    >>> admin.set_password("ada", "analytical engine")  # doctest: +SKIP
    """
    number = _mechanism(mechanism)
    salt = yield from draw(SALT_BYTES)
    credential = ScramCredentialUpsertion(
        name=user,
        mechanism=number,
        iterations=iterations,
        salt=salt,
        salted_password=pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations),
    )

    def make(_: list[str], __: int) -> AlterUserScramCredentialsRequest:
        return AlterUserScramCredentialsRequest(upsertions=[credential])

    yield from ask_all(Ask(f"setting a password of {user!r}", {user: CONTROLLER}, make, _altered))


def delete_passwords(users: str | Iterable[str], *, mechanism: str = STRONGEST) -> Operation[None]:
    """Users lose their passwords for one mechanism.

    >>> admin.delete_passwords(["ada"])  # doctest: +SKIP
    """
    number = _mechanism(mechanism)

    def make(names: list[str], _: int) -> AlterUserScramCredentialsRequest:
        return AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=name, mechanism=number) for name in names]
        )

    places = dict.fromkeys(as_list(users), CONTROLLER)
    yield from ask_all(Ask("deleting passwords", places, make, _altered))


def _altered(answer: Any, _: Sent[str]) -> Outcome[str, bool]:
    return {
        told.user: failed(told.error_code, told.error_message, subject=f"user {told.user!r}") or True
        for told in answer.results
    }


def _mechanism(name: str) -> int:
    if name not in MECHANISMS:
        raise InvalidInput(f"a mechanism is one of {', '.join(MECHANISMS)}, not {name!r}")
    return MECHANISMS[name]
