"""SCRAM beside the RFC's example, against a broker written from the RFC, and against hostile ones."""

from __future__ import annotations

import hashlib
import hmac
import random
from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.errors import AuthenticationFailed
from headrace.client.security.sasl import ITERATIONS_MAX, Scram, ScramExchange
from headrace.machines.security.scram import SHA_256

# RFC 7677 §3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def example() -> ScramExchange:
    return ScramExchange(SHA_256, "user", "pencil", NONCE)


class Broker:
    """The server's side of RFC 5802 §3, in as many words."""

    def __init__(self, hash_name: str, password: str, *, iterations: int = 4096) -> None:
        self.hash, self.iterations, self.salt = hash_name, iterations, b"salt!"
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), self.salt, iterations)
        self.stored_key = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
        self.server_key = hmac.digest(salted, b"Server Key", hash_name)
        self.said = ""

    def challenge(self, client_first: bytes) -> bytes:
        bare = client_first.decode().removeprefix("n,,")
        nonce = dict(part.split("=", 1) for part in bare.split(","))["r"] + "more"
        reply = f"r={nonce},s={b64encode(self.salt).decode()},i={self.iterations}"
        self.said = f"{bare},{reply}"
        return reply.encode()

    def verdict(self, client_final: bytes) -> bytes | None:
        """Its signature, or None if the password was another."""
        without_proof, _, proof = client_final.decode().rpartition(",p=")
        said = f"{self.said},{without_proof}".encode()
        signature = hmac.digest(self.stored_key, said, self.hash)
        client_key = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash, client_key).digest() != self.stored_key:
            return None
        return b"v=" + b64encode(hmac.digest(self.server_key, said, self.hash))


class TestExchange:
    def test_the_example_of_the_rfc(self) -> None:
        exchange = example()
        assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
        assert exchange.answer(SERVER_FIRST) == CLIENT_FINAL
        assert exchange.answer(SERVER_FINAL) is None

    @pytest.mark.parametrize(
        ("name", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
    )
    @settings(max_examples=15, deadline=None)
    @given(user=st.text(min_size=1, max_size=8), password=st.text(min_size=1, max_size=8))
    def test_both_sides_agree_on_any_user_and_password(
        self, name: str, hash_name: str, user: str, password: str
    ) -> None:
        exchange = Scram(name, user, password).exchange(random.Random(1), None)
        broker = Broker(hash_name, password)
        proof = exchange.answer(broker.challenge(exchange.first()))
        assert proof is not None
        signature = broker.verdict(proof)
        assert signature is not None
        assert exchange.answer(signature) is None

    def test_another_password_makes_another_proof(self) -> None:
        exchange = Scram("SCRAM-SHA-512", "u", "right").exchange(random.Random(1), None)
        broker = Broker("sha512", "wrong")
        proof = exchange.answer(broker.challenge(exchange.first()))
        assert proof is not None
        assert broker.verdict(proof) is None

    def test_names_are_escaped_and_extensions_follow(self) -> None:
        exchange = ScramExchange(SHA_256, "a=b,c", "p", "N", {"tokenauth": "true"})
        assert exchange.first() == b"n,,n=a=3Db=2Cc,r=N,tokenauth=true"

    def test_each_exchange_has_its_own_nonce(self) -> None:
        mechanism, rng = Scram("SCRAM-SHA-256", "u", "p"), random.Random(1)
        assert mechanism.exchange(rng, None).first() != mechanism.exchange(rng, None).first()

    def test_secrets_are_not_shown(self) -> None:
        assert "hidden!" not in repr(Scram("SCRAM-SHA-256", "u", "hidden!"))


class TestHostileBrokers:
    @pytest.mark.parametrize("iterations", ["1", "4095", str(ITERATIONS_MAX + 1), "2147483647", "9999999999"])
    def test_iterations_out_of_bounds(self, iterations: str) -> None:
        with pytest.raises(AuthenticationFailed, match="iterations"):
            example().answer(SERVER_FIRST.replace(b"i=4096", b"i=" + iterations.encode()))

    @pytest.mark.parametrize(
        "said",
        [
            b"",
            b"\xff\xfe",
            b"v=abc",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z",
            b"r=rOprNGfwEbeRWgbNEkqOx,i=4096,s=W22Z",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=not base64!,i=4096",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=-4096",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4096.0",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=٤٠٩٦".encode(),
            b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=" + b"9" * 100_000,
            b"m=must,r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4096",
        ],
    )
    def test_a_first_message_that_cannot_be_read(self, said: bytes) -> None:
        with pytest.raises(AuthenticationFailed):
            example().answer(said)

    @pytest.mark.parametrize("nonce", [b"", b"other", NONCE.encode()])
    def test_a_nonce_that_is_not_ours(self, nonce: bytes) -> None:
        """One that does not continue ours comes from an older exchange."""
        with pytest.raises(AuthenticationFailed, match="nonce"):
            example().answer(b"r=" + nonce + b",s=W22Z,i=4096")

    @pytest.mark.parametrize(
        "said", [b"", b"v=", b"v=AAAA", b"v=!", b"x=y", SERVER_FINAL.replace(b"6rri", b"6rrj"), SERVER_FIRST]
    )
    def test_a_broker_that_does_not_know_the_password(self, said: bytes) -> None:
        exchange = example()
        exchange.answer(SERVER_FIRST)
        with pytest.raises(AuthenticationFailed, match="knows the password") as raised:
            exchange.answer(said)
        assert not raised.value.is_retriable

    def test_a_refusal_in_the_mechanisms_own_words(self) -> None:
        exchange = example()
        exchange.answer(SERVER_FIRST)
        with pytest.raises(AuthenticationFailed, match="unknown-user"):
            exchange.answer(b"e=unknown-user")

    @settings(max_examples=150, deadline=None)
    @given(
        said=st.one_of(
            st.binary(max_size=80),
            st.text(alphabet="rsivem=,+/0123456789" + NONCE, max_size=80).map(str.encode),
        ),
        is_first=st.booleans(),
    )
    def test_rubbish_is_never_more_than_a_refusal(self, said: bytes, is_first: bool) -> None:
        exchange = example()
        if not is_first:
            exchange.answer(SERVER_FIRST)
        with pytest.raises(AuthenticationFailed):
            exchange.answer(said)
