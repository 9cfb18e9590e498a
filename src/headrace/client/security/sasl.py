"""SASL: the login at a broker (KIP-43, KIP-152), and the mechanisms PLAIN and SCRAM.

    begin --mechanism accepted--> exchange --the broker has shown all it had to--> over

A broker that refuses ends it with `AuthenticationFailed`: another try would be refused, too.

PLAIN (RFC 4616) sends user and password in the clear, and is meant for TLS. In SCRAM (RFC 5802, RFC 7677)
both sides show that they know the password without sending it:

    first message --salt and iterations--> proof --signature--> done

The client checks the broker's signature: a broker that does not know the password cannot make it. The
iterations are bounded: too few would let it guess the password from our proof, too many keep us busy. As in
Kafka there is no channel binding, and names and passwords are sent as they are, without SASLprep.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.base.randomness import Randomness
from headrace.client.errors import AuthenticationFailed
from headrace.machines.security import scram
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@dataclass(slots=True, frozen=True)
class Token:
    """What a bearer shows (RFC 6750): usually a JWT from an identity provider."""

    value: str = field(repr=False)
    lifetime_s: float | None = None  # from when it was handed out; None: not known, so it is used once
    extensions: Mapping[str, str] = field(default_factory=dict)


class Exchange(Protocol):
    """One conversation of a mechanism, from the client's side."""

    def first(self) -> bytes:
        """What the client opens with."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What to say next; None when the broker has shown all it had to. AuthenticationFailed if it
        cannot.
        """
        ...


class Mechanism(Protocol):
    """A way to prove who we are, with what it takes to do so."""

    @property
    def name(self) -> str: ...

    @property
    def needs_token(self) -> bool:
        """Whether `exchange` must be given a token."""
        ...

    @property
    def user(self) -> str:
        """The user for error messages; empty if only the token contains it."""
        ...

    def exchange(self, rng: Randomness, token: Token | None) -> Exchange: ...


@dataclass(slots=True, frozen=True)
class Plain:
    user: str
    password: str = field(repr=False)
    name: str = field(default="PLAIN", init=False)
    needs_token: bool = field(default=False, init=False)

    def exchange(self, rng: Randomness, token: Token | None) -> "PlainExchange":
        return PlainExchange(self.user, self.password)


class PlainExchange:
    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()  # no other identity to act for

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise AuthenticationFailed("the broker sent a challenge, which PLAIN does not have")
        return None


ITERATIONS_MIN = scram.ITERATIONS_MIN
# Kafka stores passwords with at most 16,384; sixteen times as many still take well below a second.
ITERATIONS_MAX = 262_144

_HEADER = "n,,"  # no channel binding, nobody to act for


@dataclass(slots=True, frozen=True)
class Scram:
    name: str  # one of scram.MECHANISMS
    user: str
    password: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    needs_token: bool = field(default=False, init=False)

    def exchange(self, rng: Randomness, token: Token | None) -> "ScramExchange":
        mechanism = scram.MECHANISMS[self.name]
        return ScramExchange(mechanism, self.user, self.password, scram.new_nonce(rng), self.extensions)


class ScramExchange:
    def __init__(
        self,
        mechanism: scram.Mechanism,
        user: str,
        password: str,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        more = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._first_bare = f"n={scram.escape_name(user)},r={nonce}{more}"
        self._signature: bytes | None = None  # what the broker must show, once we have sent our proof

    def first(self) -> bytes:
        return (_HEADER + self._first_bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
        except UnicodeDecodeError as error:
            raise AuthenticationFailed("the broker's SCRAM message is not text") from error
        if self._signature is None:
            return self._proof(text)
        self._check_signature(text)
        return None

    def _proof(self, server_first: str) -> bytes:
        nonce, salt, iterations = self._read_first(server_first)
        mechanism = self._mechanism
        salted = scram.salt_password(mechanism, self._password, salt, iterations)
        key = scram.client_key(mechanism, salted)
        final_bare = f"c={b64encode(_HEADER.encode()).decode()},r={nonce}"
        said = f"{self._first_bare},{server_first},{final_bare}".encode()
        proof = scram.combine(key, scram.sign(mechanism, scram.stored_key(mechanism, key), said))
        self._signature = scram.sign(mechanism, scram.server_key(mechanism, salted), said)
        return f"{final_bare},p={b64encode(proof).decode()}".encode()

    def _read_first(self, text: str) -> tuple[str, bytes, int]:
        """Nonce, salt and iterations."""
        fields = text.split(",")
        if text.startswith("m="):
            raise AuthenticationFailed("the broker requires an unknown SCRAM extension")
        if len(fields) < 3 or [part[:2] for part in fields[:3]] != ["r=", "s=", "i="]:
            raise AuthenticationFailed("the broker's first SCRAM message cannot be read")
        nonce, salt_text, count_text = (part[2:] for part in fields[:3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the broker's SCRAM nonce does not continue ours")
        salt = scram.decode_base64(salt_text)
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
        signature = scram.decode_base64(first[2:]) if first.startswith("v=") else None
        if signature is None or not hmac.compare_digest(signature, self._signature):
            raise AuthenticationFailed(
                "the broker could not prove that it knows the password",
                advice="It may be an impostor: check the address, and use SASL_SSL.",
            )


class Login:
    def __init__(self, mechanism: Mechanism, rng: Randomness, token: Token | None) -> None:
        self._mechanism = mechanism
        self._exchange = mechanism.exchange(rng, token)
        self.session_lifetime_ms = 0  # as the broker said last; 0: no end

    def begin(self) -> SaslHandshakeRequest:
        return SaslHandshakeRequest(mechanism=self._mechanism.name)

    def accepted(self, answer: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """The broker's word on the mechanism; what to send next."""
        match answer.error_code:
            case 0:
                return SaslAuthenticateRequest(auth_bytes=self._exchange.first())
            case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offered = ", ".join(answer.mechanisms[:20]) or "none"
                raise AuthenticationFailed(
                    f"the broker does not support mechanism {self._mechanism.name}; it supports {offered}",
                    code=answer.error_code,
                    advice="Set sasl.mechanism to one that it supports.",
                )
            case ErrorCode.ILLEGAL_SASL_STATE:
                raise without_sasl()
            case code:
                raise AuthenticationFailed("the broker refused SaslHandshake", code=code)

    def continued(self, answer: SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """The broker's next words; what to send next, or None when we are logged in."""
        if answer.error_code:
            raise self._refused(answer)
        self.session_lifetime_ms = answer.session_lifetime_ms
        reply = self._exchange.answer(bytes(answer.auth_bytes))
        return None if reply is None else SaslAuthenticateRequest(auth_bytes=reply)

    def _refused(self, answer: SaslAuthenticateResponse) -> AuthenticationFailed:
        mechanism = self._mechanism
        who = f"user {mechanism.user}" if mechanism.user else "the token"
        reason = f": {answer.error_message}" if answer.error_message else ""
        advice = (
            "Check that the token is for this broker and still valid."
            if mechanism.needs_token
            else f"Check user and password, and that the broker knows the user for {mechanism.name}."
        )
        return AuthenticationFailed(
            f"the broker refused {who} with {mechanism.name}{reason}", code=answer.error_code, advice=advice
        )


def without_sasl() -> AuthenticationFailed:
    """The error of a listener without SASL."""
    return AuthenticationFailed(
        "the broker's listener does not use SASL",
        code=ErrorCode.ILLEGAL_SASL_STATE,
        advice="Set security.protocol to PLAINTEXT or SSL, or use the address of a SASL listener.",
    )
