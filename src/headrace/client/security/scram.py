"""SCRAM (RFC 5802, RFC 7677): both sides show that they know the password without saying it.

    first message --salt and iterations--> proof --signature--> done

The broker's signature is checked too: one that only pretends to know us cannot make it. What it asks for is
bounded: too few iterations would let it guess the password from our proof, too many keep us busy. As in Kafka
there is no channel binding, and names and passwords are taken as they are, without SASLprep.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.base.dice import Dice
from headrace.client.errors import AuthenticationFailed
from headrace.client.security.mechanism import Token

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

NONCE_BYTES = 18  # 24 characters of text
ITERATIONS_MIN = 4096  # RFC 7677 §4
# Kafka stores passwords with at most 16,384; sixteen times as many still take well below a second.
ITERATIONS_MAX = 262_144

_HEADER = "n,,"  # no channel binding, nobody to act for


@dataclass(slots=True, frozen=True)
class Scram:
    name: str  # one of HASHES
    user: str
    password: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    needs_token: bool = field(default=False, init=False)

    def exchange(self, dice: Dice, token: Token | None) -> "ScramExchange":
        nonce = b64encode(dice.randbytes(NONCE_BYTES)).decode()
        return ScramExchange(HASHES[self.name], self.user, self.password, nonce, self.extensions)


class ScramExchange:
    def __init__(
        self,
        hash_name: str,
        user: str,
        password: str,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce
        more = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._first_bare = f"n={_escaped(user)},r={nonce}{more}"
        self._signature: bytes | None = None  # what the broker must show, once we have sent our proof

    def first(self) -> bytes:
        return (_HEADER + self._first_bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
        except UnicodeDecodeError as error:
            raise AuthenticationFailed("the broker's SCRAM message is no text") from error
        if self._signature is None:
            return self._proof(text)
        self._check_signature(text)
        return None

    def _proof(self, server_first: str) -> bytes:
        nonce, salt, iterations = self._read_first(server_first)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        final_bare = f"c={b64encode(_HEADER.encode()).decode()},r={nonce}"
        said = f"{self._first_bare},{server_first},{final_bare}".encode()
        proof = bytes(a ^ b for a, b in zip(client_key, self._hmac(stored_key, said), strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), said)
        return f"{final_bare},p={b64encode(proof).decode()}".encode()

    def _read_first(self, text: str) -> tuple[str, bytes, int]:
        """Nonce, salt and iterations."""
        fields = text.split(",")
        if text.startswith("m="):
            raise AuthenticationFailed("the broker demands a SCRAM extension that does not exist")
        if len(fields) < 3 or [part[:2] for part in fields[:3]] != ["r=", "s=", "i="]:
            raise AuthenticationFailed("the broker's first SCRAM message cannot be read")
        nonce, salt_text, count_text = (part[2:] for part in fields[:3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the broker's SCRAM nonce does not continue ours")
        salt = _decoded(salt_text)
        # the length is looked at first: int() of many digits is slow
        is_number = count_text.isascii() and count_text.isdigit() and len(count_text) <= 10
        if not salt or not is_number:
            raise AuthenticationFailed("the broker's first SCRAM message cannot be read")
        iterations = int(count_text)
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the broker asks for {iterations} SCRAM iterations; "
                f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted",
                advice="Store the user's password again with an iteration count within these bounds.",
            )
        return nonce, salt, iterations

    def _check_signature(self, server_final: str) -> None:
        assert self._signature is not None
        first = server_final.split(",")[0]
        if first.startswith("e="):
            raise AuthenticationFailed(f"the broker refused the login: {first[2:]}")
        signature = _decoded(first[2:]) if first.startswith("v=") else None
        if signature is None or not hmac.compare_digest(signature, self._signature):
            raise AuthenticationFailed(
                "the broker could not show that it knows the password",
                advice="It may be an impostor: check the address, and use SASL_SSL.",
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
