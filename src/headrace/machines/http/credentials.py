"""The Authorization header: a user with a password (Basic, RFC 7617), or a token (Bearer, RFC 6750)."""

import base64
import binascii
import re
from dataclasses import dataclass, field

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.plain import PlainLogin, read_plain

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


@dataclass(slots=True, frozen=True)
class BearerToken:
    token: str = field(repr=False)


def read_authorization(value: str) -> PlainLogin | BearerToken:
    """LoginRefused if it cannot be read; its text has no part of the header."""
    scheme, _, rest = value.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "basic":
        return _basic(rest)
    if scheme.lower() == "bearer":
        if not _TOKEN.fullmatch(rest):
            raise LoginRefused("the header has no token")
        return BearerToken(rest)
    raise LoginRefused("the scheme is neither Basic nor Bearer")


def _basic(text: str) -> PlainLogin:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginRefused("the header is not base64") from None
    user, colon, password = decoded.partition(b":")
    if not colon:
        raise LoginRefused("the header has no password")
    return read_plain(b"\0" + user + b"\0" + password)  # with the checks of PLAIN: nothing empty, no NUL
