"""Random logins: SASL messages and tokens that were good, mutated from a seed, and the checks that they pass.

A case of a login is a number that chooses the mechanism, and the messages behind their sizes. Whatever they
are, the node answers or hangs up, and the client is not somebody else than it could prove.
"""

from __future__ import annotations

import random
import struct
from base64 import b64encode
from typing import Any

from harness.mutated_frames import mutated
from harness.tokens import Key, base64url, claims_at, key_set, token_of
from headrace.machines.security.bearer_tokens import check_bearer, check_unsigned_bearer
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.oauthbearer import ClaimRules
from headrace.machines.security.scram import SHA_256, SHA_512, salt_password
from headrace.machines.security.signing_keys import read_key_set
from headrace.node.effects import Report
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.simulator.manual_host import ManualHost

NOW = 1_700_000_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092",
    "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.login.plain.sasl.jaas.config": f'{MODULE} user_alice="secret";',
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
    "delegation.token.secret.key": "key",
}
KEY = Key("k1", "EdDSA")
OTHERS = [Key("k2", "ES256"), Key("k3", "RS256")]
KEYS = read_key_set(key_set(KEY.public(), *(key.public() for key in OTHERS)))
RULES = ClaimRules()
NOBODY_AND_ALICE = {"User:ANONYMOUS", "User:alice"}


# --- tokens alone ----------------------------------------------------------------------------------------


def token(rng: random.Random) -> bytes:
    """A good one, or one whose parts were changed before or after they were signed."""
    header: dict[str, Any] = {"alg": rng.choice(("EdDSA", "RS256", "ES256", "none", "HS256")), "kid": "k1"}
    claims = claims_at(NOW, aud=rng.choice((None, "x", ["x"])), scope=rng.choice((None, "a b", ["a"])))
    match rng.randrange(5):
        case 0:
            made = KEY.sign(claims)
        case 1:
            made = rng.choice(OTHERS).sign(claims, kid=rng.choice(("k1", "k2", "k3", None)))
        case 2:
            parts = [mutated(text.encode(), rng) for text in (str(header).replace("'", '"'), '{"sub": "x"}')]
            made = ".".join(base64url(part) for part in parts) + "." + base64url(rng.randbytes(64))
        case 3:  # signed, whatever it says
            said = base64url(mutated(b'{"alg": "EdDSA", "kid": "k1"}', rng))
            body = base64url(mutated(b'{"sub": "alice", "iat": 1700000000, "exp": 1700003600}', rng))
            made = f"{said}.{body}.{base64url(KEY.private.sign(f'{said}.{body}'.encode()))}"
        case _:
            made = token_of(header, claims, rng.randbytes(64))
    data = made.encode()
    return mutated(data, rng) if rng.randrange(3) else data


def check_token(data: bytes) -> None:
    """It is refused for a short reason, or valid: nothing else happens."""
    text = data.decode("latin-1")
    for check in (
        lambda: check_bearer(text, KEYS, RULES, NOW * 1000),
        lambda: check_unsigned_bearer(text, RULES, NOW * 1000),
    ):
        reason = ""
        try:
            bearer = check()
        except LoginRefused as refusal:
            reason = str(refusal)
        else:
            assert bearer.name.encode()
            assert bearer.expires_ms > (NOW - 31) * 1000
        assert len(reason) < 200


# --- whole logins ----------------------------------------------------------------------------------------


class LoginCases:
    """One node for all cases."""

    def __init__(self) -> None:
        self.host = ManualHost(SETTINGS)
        self.host.hand_in(key_set(KEY.public()))
        for mechanism in (SHA_256, SHA_512):
            salted = salt_password(mechanism, "secret", b"salt", 4096)
            upsertion = ScramCredentialUpsertion(
                name="alice", mechanism=mechanism.id, iterations=4096, salt=b"salt", salted_password=salted
            )
            connection = self.host.connect("PLAINTEXT")
            self.host.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0, connection)

    def check(self, data: bytes) -> None:
        host = self.host
        host.effects.clear()
        connection = host.connect("LOGIN")
        mechanism = MECHANISMS[data[0] % len(MECHANISMS)] if data else ""
        host.send(connection, SaslHandshakeRequest(mechanism=mechanism), 1)
        position = 1
        while position + 2 <= len(data):
            (size,) = struct.unpack_from(">H", data, position)
            message = data[position + 2 : position + 2 + size]
            position += 2 + size
            host.send(connection, SaslAuthenticateRequest(auth_bytes=message), 1)
        while host.fetches:
            host.hand_in(key_set(KEY.public()))
        host.advance(0.2)
        assert connection.principal in NOBODY_AND_ALICE or mechanism == "OAUTHBEARER"
        for effect in host.effects:
            assert not isinstance(effect, Report) or effect.event in ("login_refused", "signing_keys_fetched")
        if connection.id not in host.closed:
            host.node.disconnected(host.clock.now(), connection)
        host.answers[connection.id].clear()
        assert not connection.pending


def login(rng: random.Random) -> bytes:
    kind = rng.randrange(len(MECHANISMS))
    bearer = rng.choice((token(rng), KEY.sign(claims_at(NOW)).encode()))
    messages = {
        "PLAIN": [b"\0alice\0secret"],
        "OAUTHBEARER": [
            rng.choice((b"n,,", b"n,a=alice,", b"y,,"))
            + b"\x01auth=Bearer "
            + bearer
            + rng.choice((b"", b"\x01traceId=1"))
            + b"\x01\x01",
            b"\x01",
        ],
    }.get(
        MECHANISMS[kind],
        [
            rng.choice((b"n,,n=alice,r=abc", b"n,a=alice,n=alice,r=abc", b"n,,n=id,r=abc,tokenauth=true")),
            b"c=biws,r=abc,p=" + b64encode(rng.randbytes(rng.choice((32, 64)))),
        ],
    )
    chosen = [mutated(one, rng) if rng.randrange(4) else one for one in messages]
    if not rng.randrange(5):
        rng.shuffle(chosen)
    return bytes([kind]) + b"".join(struct.pack(">H", len(one)) + one for one in chosen)
