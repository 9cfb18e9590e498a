"""An identity provider for tests: its keys, the key set that it publishes, and the tokens that it signs."""

from __future__ import annotations

import json
import time
from base64 import b64decode, urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.algorithms import get_default_algorithms

_CURVES: dict[str, ec.EllipticCurve] = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
}


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def token_of(header: object, claims: object, signature: bytes = b"") -> str:
    """Whatever it says. What is not bytes becomes JSON."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims)]
    return ".".join(base64url(part) for part in (*parts, signature))


class Key:
    def __init__(self, key_id: str | None, algorithm: str, *, curve: str = "Ed25519") -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.private: Any
        if algorithm in _CURVES:
            self.private = ec.generate_private_key(_CURVES[algorithm])
        elif algorithm == "EdDSA":
            ed = ed25519.Ed25519PrivateKey if curve == "Ed25519" else ed448.Ed448PrivateKey
            self.private = ed.generate()
        else:
            self.private = rsa.generate_private_key(65537, 2048)
        self._algorithm: Any = get_default_algorithms()[algorithm]

    def public(self, **members: object) -> dict[str, Any]:
        """As an entry of a key set; None removes a member."""
        entry = self._algorithm.to_jwk(self.private.public_key(), as_dict=True)
        entry.pop("key_ops", None)
        entry |= {"kid": self.key_id, "use": "sig"} | members
        return {name: value for name, value in entry.items() if value is not None}

    def sign_bytes(self, claims: bytes) -> str:
        """Which may be anything."""
        return self.sign(claims)

    def sign(self, claims: object, **header: object) -> str:
        said = {"alg": self.algorithm, "typ": "JWT", "kid": self.key_id} | header
        said = {name: value for name, value in said.items() if value is not None}
        unsigned = token_of(said, claims).removesuffix(".")
        return f"{unsigned}.{base64url(self._algorithm.sign(unsigned.encode(), self.private))}"


def key_set(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


def claims_at(now_s: int, **others: object) -> dict[str, Any]:
    """Of alice, for an hour; None removes a claim."""
    claims = {"sub": "alice", "iat": now_s, "exp": now_s + 3600} | others
    return {name: value for name, value in claims.items() if value is not None}


def hmac_token(secret: bytes, claims: object, **header: object) -> str:
    said = {"alg": "HS256", **header}
    unsigned = token_of(said, claims).removesuffix(".")
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        unsigned.encode(), secret
    )
    return f"{unsigned}.{base64url(signature)}"


class IdentityProvider:
    """A site on this machine with a key set, and with tokens for clients that know the secret."""

    secret = "secret"  # of every client

    def __init__(self, key: Key | None = None, **claims: object) -> None:
        self.keys = [key or Key("key-1", "RS256")]
        self.claims = {"iss": "https://issuer.example", "aud": "headrace", "scope": "records"} | claims
        self.lifetime_s = 300.0
        self.is_closed = False  # gives no tokens
        self.given: list[str] = []  # paths that were asked for
        self.tokens_given = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.given.append(self.path)
                self.reply(key_set(*(key.public() for key in provider.keys)))

            def do_POST(self) -> None:
                """RFC 6749 §4.4, for the client whose id is the user, with the secret."""
                self.rfile.read(int(self.headers["Content-Length"]))
                credentials = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                user, _, secret = credentials.partition(":")
                if secret != provider.secret or provider.is_closed:
                    self.send_error(401)
                    return
                provider.tokens_given += 1
                answer = {
                    "access_token": provider.token(user),
                    "token_type": "Bearer",
                    "expires_in": int(provider.lifetime_s),
                    "scope": "records",
                }
                self.reply(json.dumps(answer).encode())

            def reply(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def said(self, user: str = "alice", **claims: object) -> dict[str, Any]:
        """The claims of a token for so long as the lifetime says."""
        now = time.time()
        return {"sub": user, "iat": int(now), "exp": now + self.lifetime_s} | self.claims | claims

    def token(self, user: str = "alice", **claims: object) -> str:
        """Signed with the newest key."""
        return self.keys[-1].sign(self.said(user, **claims))

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
