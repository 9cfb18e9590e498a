"""PLAIN (RFC 4616): reading the client's message, and checking the password.

The password comes in the clear, so a listener offers PLAIN over TLS or on loopback only. It is compared with
the `user_<name>` options of the listener's login module, or with the user's SCRAM credential. Neither check
tells the client whether the user or the password was wrong, by its result or by its time.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.scram import (
    Credential,
    Mechanism,
    client_key,
    decoy_credential,
    salt_password,
    stored_key,
)

# The RFC asks for 255 bytes of each part. Some systems put a token of some kilobytes into the password.
MESSAGE_BYTES_MAX = 16 * 1024

# What Kafka tells a client; the same whether the user or the password was wrong.
WRONG_PASSWORD = "Authentication failed: Invalid username or password"  # nosec B105

USER_OPTION = "user_"  # of Kafka's PlainLoginModule: user_alice="her password"


@dataclass(slots=True, frozen=True)
class PlainLogin:
    user: str
    password: str = field(repr=False)


def read_plain(message: bytes) -> PlainLogin:
    """LoginRefused if it cannot be read, or asks to act for another user (CVE-2017-12610)."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise LoginRefused(f"a message of {len(message)} bytes")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise LoginRefused("a message that is not text") from None
    if len(parts) != 3:
        raise LoginRefused(f"a message of {len(parts)} parts instead of 3")
    authzid, user, password = parts
    if not user:
        raise LoginRefused("the user is empty", told="Authentication failed: username not specified")
    if not password:
        raise LoginRefused("the password is empty", told="Authentication failed: password not specified")
    if authzid not in ("", user):
        told = "Authentication failed: Client requested an authorization id that is different from username"
        raise LoginRefused("the client asks to act for another user", told=told)
    return PlainLogin(user, password)


def passwords_from_options(options: Mapping[str, str]) -> dict[str, str]:
    """Users and passwords from the options of a login module; others, as `username`, are not for clients."""
    return {
        key.removeprefix(USER_OPTION): value
        for key, value in options.items()
        if key.startswith(USER_OPTION) and key != USER_OPTION
    }


def check_password(login: PlainLogin, passwords: Mapping[str, str], secret: bytes) -> None:
    """Raises LoginRefused unless it is the user's password.

    The digests are of one length, so that the comparison takes the same time whatever the passwords are.
    """
    known = passwords.get(login.user)
    expected = hmac.digest(secret, (known or "").encode(), "sha256")
    given = hmac.digest(secret, login.password.encode(), "sha256")
    if not hmac.compare_digest(expected, given) or not known:
        raise _refused(known is not None)


def check_scram_password(
    login: PlainLogin,
    mechanism: Mechanism,
    credential: Credential | None,
    secret: bytes,
    like: Credential | None = None,
) -> None:
    """The same with the user's SCRAM credential; None if there is none.

    PBKDF2 takes milliseconds, for users that do not exist too. `secret` and `like` as in `decoy_credential`.
    """
    decoy = decoy_credential(mechanism, secret, login.user, like)
    used = decoy if credential is None else credential
    salted = salt_password(mechanism, login.password, used.salt, used.iterations)
    is_equal = hmac.compare_digest(stored_key(mechanism, client_key(mechanism, salted)), used.stored_key)
    if not is_equal or credential is None:
        raise _refused(credential is not None)


def _refused(is_known: bool) -> LoginRefused:
    return LoginRefused("the password is wrong" if is_known else "no such user", told=WRONG_PASSWORD)
