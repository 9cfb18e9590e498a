"""The broker's side of SCRAM: the RFC's example, refusals, and what a stranger learns about users."""

from __future__ import annotations

import random
from base64 import b64encode

import pytest

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    MECHANISMS_BY_ID,
    MESSAGE_BYTES_MAX,
    SHA_256,
    SHA_512,
    Credential,
    Mechanism,
    ScramLogin,
    client_key,
    combine,
    credential_from_password,
    credential_from_salted,
    decode_base64,
    decoy_credential,
    escape_name,
    salt_password,
    sign,
    stored_key,
    unescape_name,
)

SECRET = b"a secret of the cluster"
SALT = b"salt of a user"
CREDENTIAL = credential_from_password(SHA_256, "pencil", SALT)


class FixedRandomness:
    """The same nonce in each run."""

    def randbytes(self, n: int, /) -> bytes:
        return bytes(range(n))

    def randrange(self, stop: int, /) -> int:
        return 0


def login(mechanism: Mechanism = SHA_256) -> ScramLogin:
    return ScramLogin(mechanism, FixedRandomness(), SECRET)


class Client:
    """The client's side in as many words, with everything that a hostile one would change."""

    def __init__(
        self, password: str = "pencil", *, mechanism: Mechanism = SHA_256, header: str = "n,,"
    ) -> None:
        self.password, self.mechanism, self.header = password, mechanism, header
        self.bare = "n=user,r=client"

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(
        self, challenge: bytes, *, binding: str | None = None, nonce: str | None = None, more: str = ""
    ) -> bytes:
        told = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt = decode_base64(told["s"])
        assert salt is not None
        salted = salt_password(self.mechanism, self.password, salt, int(told["i"]))
        key = client_key(self.mechanism, salted)
        header = b64encode((self.header if binding is None else binding).encode()).decode()
        without_proof = f"c={header},r={told['r'] if nonce is None else nonce}{more}"
        said = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        proof = combine(key, sign(self.mechanism, stored_key(self.mechanism, key), said))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


def challenged(client: Client, credential: Credential | None = CREDENTIAL) -> tuple[ScramLogin, bytes]:
    server = login(client.mechanism)
    server.read_first(client.first())
    return server, server.challenge(credential)


class TestLogin:
    def test_the_example_of_the_rfc(self) -> None:
        """RFC 7677 §3, whose server's nonce no generator of ours would make."""
        server = login()
        server._server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
        salt = decode_base64("W22ZaJ0SNY7soEsUEjb6gQ==")
        assert salt is not None
        credential = credential_from_password(SHA_256, "pencil", salt)
        assert server.read_first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").user == "user"
        assert server.challenge(credential) == (
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        )
        assert (
            server.finish(
                b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
            )
            == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        )

    @pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=user,", "y,a=user,"])
    def test_headers_that_are_accepted(self, header: str) -> None:
        """A client that could bind to a channel, and knows that we cannot, says y."""
        client = Client(header=header)
        server, challenge = challenged(client)
        assert server.finish(client.final(challenge)).startswith(b"v=")

    def test_sha_512(self) -> None:
        client = Client(mechanism=SHA_512)
        server, challenge = challenged(client, credential_from_password(SHA_512, "pencil", SALT, 8192))
        assert b",i=8192" in challenge
        assert server.finish(client.final(challenge)).startswith(b"v=")

    def test_extensions(self) -> None:
        first = login().read_first(b"n,,n=id,r=x,tokenauth=true,color=a=b")
        assert (first.user, first.is_token) == ("id", True)
        assert first.extensions == {"tokenauth": "true", "color": "a=b"}
        assert not login().read_first(b"n,,n=id,r=x,tokenauth=no").is_token
        assert not login().read_first(b"n,,n=id,r=x").is_token

    def test_extensions_of_the_last_message_are_part_of_what_is_signed(self) -> None:
        client = Client()
        server, challenge = challenged(client)
        assert server.finish(client.final(challenge, more=",x=1")).startswith(b"v=")
        server, challenge = challenged(client)
        with pytest.raises(LoginRefused, match="password"):
            server.finish(client.final(challenge, more=",x=1").replace(b"x=1", b"x=2"))

    def test_kafkas_names_and_numbers(self) -> None:
        assert list(MECHANISMS) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert MECHANISMS_BY_ID == {1: SHA_256, 2: SHA_512}


class TestRefusals:
    @pytest.mark.parametrize(
        ("message", "error"),
        [
            (b"", b"e=invalid-encoding"),
            (b"n", b"e=invalid-encoding"),
            (b"n,", b"e=invalid-encoding"),
            (b"x,,n=user,r=x", b"e=invalid-encoding"),
            (b"p=tls-unique,,n=user,r=x", b"e=channel-binding-not-supported"),
            (b"n,,m=must,n=user,r=x", b"e=extensions-not-supported"),
            (b"n,,n=user", b"e=invalid-encoding"),
            (b"n,,r=x,n=user", b"e=invalid-encoding"),
            (b"n,,n=user,r=", b"e=invalid-encoding"),
            (b"n,,n=user,r=a b", b"e=invalid-encoding"),
            (b"n,,n=,r=x", b"e=invalid-username-encoding"),
            (b"n,,n=a=b,r=x", b"e=invalid-username-encoding"),
            (b"n,,n=a=2c,r=x", b"e=invalid-username-encoding"),
            (b"n,,n=a\0b,r=x", b"e=invalid-username-encoding"),
            (b"n,,n=user,r=x,tokenauth", b"e=invalid-encoding"),
            (b"n,,n=user,r=x,1=2", b"e=invalid-encoding"),
            (b"n,,n=user,r=x,a=1,a=2", b"e=invalid-encoding"),
            (b"n,a=,n=user,r=x", b"e=invalid-encoding"),
            (b"n,user,n=user,r=x", b"e=invalid-encoding"),
            (b"n,,n=\xff,r=x", b"e=invalid-encoding"),
            (b"n,,n=user,r=" + b"x" * MESSAGE_BYTES_MAX, b"e=no-resources"),
        ],
    )
    def test_a_first_message_that_cannot_be_read(self, message: bytes, error: bytes) -> None:
        server = login()
        with pytest.raises(LoginRefused):
            server.read_first(message)
        assert server.server_error == error

    def test_nobody_acts_for_somebody_else(self) -> None:
        """CVE-2017-12610."""
        with pytest.raises(LoginRefused, match="another user"):
            login().read_first(b"n,a=admin,n=user,r=x")

    @pytest.mark.parametrize("binding", ["", "n,,x", "y,,", "n,a=user,"])
    def test_a_header_that_differs_from_the_first(self, binding: str) -> None:
        client = Client()
        server, challenge = challenged(client)
        with pytest.raises(LoginRefused):
            server.finish(client.final(challenge, binding=binding))
        assert server.server_error == b"e=channel-bindings-dont-match"

    def test_the_whole_nonce_is_checked(self) -> None:
        """CVE-2024-56128: the proof is right for what was said, yet it was said in another login."""
        client = Client()
        server, challenge = challenged(client)
        whole = challenge.decode().split(",")[0][2:]
        for nonce in ("client", "", whole[:-1], whole + "x", whole.swapcase()):
            server, challenge = challenged(client)
            with pytest.raises(LoginRefused, match="nonce"):
                server.finish(client.final(challenge, nonce=nonce))

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"c=biws",
            b"c=biws,r=x",
            b"c=!,r=x,p=AAAA",
            b"r=x,c=biws,p=AAAA",
            b"c=biws,r=x,p=!",
            b"\xff,p=AAAA",
        ],
    )
    def test_a_last_message_that_cannot_be_read(self, message: bytes) -> None:
        server, _ = challenged(Client())
        with pytest.raises(LoginRefused):
            server.finish(message)

    def test_a_proof_of_another_length(self) -> None:
        server, challenge = challenged(Client())
        nonce = challenge.decode().split(",")[0]
        with pytest.raises(LoginRefused, match="length"):
            server.finish(f"c=biws,{nonce},p=AAAA".encode())

    def test_a_wrong_password_ends_the_login(self) -> None:
        client = Client("pen")
        server, challenge = challenged(client)
        with pytest.raises(LoginRefused, match="password"):
            server.finish(client.final(challenge))
        with pytest.raises(LoginRefused, match="not expected"):
            server.finish(Client().final(challenge))

    def test_messages_out_of_turn(self) -> None:
        with pytest.raises(LoginRefused):
            login().finish(b"c=biws,r=x,p=AAAA")
        server = login()
        server.read_first(b"n,,n=user,r=x")
        with pytest.raises(LoginRefused):
            server.read_first(b"n,,n=admin,r=x")
        client = Client()
        server, challenge = challenged(client)
        final = client.final(challenge)
        server.finish(final)
        with pytest.raises(LoginRefused):
            server.finish(final)


class TestUnknownUsers:
    def test_they_look_like_others_until_the_end(self) -> None:
        """Same form of the challenge, same error."""
        known, first = challenged(Client("wrong"))
        unknown, second = challenged(Client("wrong"), None)
        assert len(first.split(b",")) == len(second.split(b","))
        for server, challenge in ((known, first), (unknown, second)):
            with pytest.raises(LoginRefused):
                server.finish(Client("wrong").final(challenge))
            assert server.server_error == b"e=invalid-proof"

    def test_their_salt_is_always_the_same_and_depends_on_name_secret_and_mechanism(self) -> None:
        salts = {
            decoy_credential(mechanism, secret, name).salt
            for _ in range(2)
            for mechanism in (SHA_256, SHA_512)
            for secret in (SECRET, b"other")
            for name in ("ada", "bob")
        }
        assert len(salts) == 8

    @pytest.mark.parametrize("salt", [b"1s3y9ckwx7l0a2b4c6d8e0f2g4", bytes(range(24)), bytes(16)])
    def test_their_salt_has_the_form_of_others(self, salt: bytes) -> None:
        """The Java client writes salts in digits of base 36."""
        like = credential_from_password(SHA_256, "x", salt, 8192)
        decoy = decoy_credential(SHA_256, SECRET, "nobody", like)
        assert len(decoy.salt) == len(salt)
        assert decoy.salt.isalnum() == salt.isalnum()
        assert decoy.iterations == 8192

    def test_no_proof_fits(self) -> None:
        """Even one that fits the stored key of the decoy would not."""
        client = Client()
        server, challenge = challenged(client, None)
        server._credential = CREDENTIAL
        told = dict(part.split("=", 1) for part in challenge.decode().split(","))
        server._server_first = f"r={told['r']},s={b64encode(SALT).decode()},i=4096"
        with pytest.raises(LoginRefused, match="no such user"):
            server.finish(client.final(server._server_first.encode()))

    def test_a_credential_with_too_few_iterations_is_not_used(self) -> None:
        weak = Credential(SALT, CREDENTIAL.stored_key, CREDENTIAL.server_key, ITERATIONS_MIN - 1)
        _, challenge = challenged(Client(), weak)
        assert f",i={ITERATIONS_MIN}".encode() in challenge


class TestCredentials:
    def test_they_hold_no_password(self) -> None:
        assert "pencil" not in repr(CREDENTIAL)
        assert repr(CREDENTIAL.stored_key) not in repr(CREDENTIAL)

    @pytest.mark.parametrize("iterations", [-1, 0, 1, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1, 2**31])
    def test_bounds_of_iterations(self, iterations: int) -> None:
        with pytest.raises(ValueError, match=f"iterations={iterations}: must be 4096 to 16384"):
            credential_from_password(SHA_256, "pencil", SALT, iterations)

    def test_from_a_salted_password(self) -> None:
        salted = salt_password(SHA_256, "pencil", SALT, 4096)
        assert credential_from_salted(SHA_256, salted, SALT, 4096) == CREDENTIAL
        with pytest.raises(ValueError, match="length"):
            credential_from_salted(SHA_512, salted, SALT, 4096)
        with pytest.raises(ValueError, match="length"):
            credential_from_salted(SHA_256, salted, b"", 4096)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "escaped"),
        [("user", "user"), ("a,b", "a=2Cb"), ("a=b", "a=3Db"), ("=2C", "=3D2C"), ("ä", "ä")],
    )
    def test_escapes(self, name: str, escaped: str) -> None:
        assert escape_name(name) == escaped
        assert unescape_name(escaped) == name


def test_base64_has_one_text_for_the_same_bytes() -> None:
    assert decode_base64("AA==") == b"\0"
    assert [decode_base64(text) for text in ("AB==", "AA", "AA=", "A A==", "ä")] == [None] * 5


def test_nonces_differ() -> None:
    rng = random.Random(1)
    nonces = {ScramLogin(SHA_256, rng, SECRET)._server_nonce for _ in range(100)}
    assert len(nonces) == 100
