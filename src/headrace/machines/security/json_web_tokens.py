"""JSON Web Tokens (RFC 7519) in the compact form: three parts of base64url, the third signs the others.

    read_token(text) → SignedToken: what its header says about the signature, and what is signed
    read_claims(token) → its claims, once `signing_keys.py` has checked the signature

Until then only the header is parsed, which is short: whoever has no good token has no long work done.

A text that two readers could understand in two ways is refused: base64 with unused bits, JSON with a key
twice. Keys that a token brings along (`jwk`, `jku`, `x5u`, `x5c`) are not looked at.
"""

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any, NoReturn

from headrace.machines.security.errors import LoginRefused

# Before anything is parsed. Tokens have some kilobytes; those that list many groups some dozens.
TOKEN_BYTES_MAX = 64 * 1024

# Parsed for everybody. Some providers put a chain of certificates there.
HEADER_CHARACTERS_MAX = 8 * 1024

UNSIGNED = "none"

_PART = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(slots=True, frozen=True)
class SignedToken:
    algorithm: str  # as the token says: it must fit the key
    key_id: str | None
    payload: bytes = field(repr=False)  # the claims, in JSON
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def read_token(text: str) -> SignedToken:
    """LoginRefused if it cannot be read."""
    if len(text) > TOKEN_BYTES_MAX:
        raise LoginRefused(f"a token of {len(text)} bytes")
    parts = text.split(".")
    if len(parts) != 3:
        raise LoginRefused(f"a token of {len(parts)} parts instead of three")
    if len(parts[0]) > HEADER_CHARACTERS_MAX:
        raise LoginRefused(f"a token with a header of {len(parts[0])} characters")
    header = _json_object(_decoded(parts[0]), "header")
    if "crit" in header:  # RFC 7515 §4.1.11: what is not understood must be refused
        raise LoginRefused("the token's header has crit, and no extension of it is known here")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise LoginRefused("the token's header has no alg")
    if key_id is not None and not isinstance(key_id, str):
        raise LoginRefused("the token's kid is not a text")
    payload, signature = _decoded(parts[1]), _decoded(parts[2])
    return SignedToken(algorithm, key_id, payload, f"{parts[0]}.{parts[1]}".encode("ascii"), signature)


def read_claims(token: SignedToken) -> dict[str, Any]:
    """LoginRefused if they cannot be read."""
    return _json_object(token.payload, "claims")


def _decoded(part: str) -> bytes:
    data = decode_base64url(part)
    if data is None:
        raise LoginRefused("a part of the token is not base64url")
    return data


def decode_base64url(text: str) -> bytes | None:
    """Without padding; None if it is something else, or not the only text of these bytes."""
    if not _PART.fullmatch(text):
        return None
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if urlsafe_b64encode(data).rstrip(b"=") == text.encode("ascii") else None


def _json_object(data: bytes, what: str) -> dict[str, Any]:
    try:
        return json_object(data)
    except ValueError as error:
        raise LoginRefused(f"the token's {what} cannot be read: {error}") from None


def json_object(data: bytes) -> dict[str, Any]:
    """ValueError if it is not an object in JSON, or not an unambiguous one; the text has nothing of it."""
    try:
        read = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(read, dict):
        raise ValueError("it is not an object")
    return read


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("it has a key twice")
    return read


def _no_constant(name: str) -> NoReturn:
    raise ValueError("it has a number that is not finite")
