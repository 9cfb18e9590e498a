"""Tokens: those that are valid, and every way to forge one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from harness.tokens import Key, base64url, claims_at, hmac_token, key_set, token_of
from headrace.machines.security.bearer_tokens import check_bearer, check_unsigned_bearer
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.json_web_tokens import TOKEN_BYTES_MAX, read_token
from headrace.machines.security.oauthbearer import Bearer, ClaimRules
from headrace.machines.security.signing_keys import (
    ALGORITHMS,
    KEYS_MAX,
    SigningKeys,
    UnknownKey,
    read_key_set,
)

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
CLAIMS = claims_at(NOW)
RSA = Key("rsa-1", "RS256")
OTHER_RSA = Key("rsa-2", "RS256")
STRANGER = Key("rsa-1", "RS256")  # the same id, another key
EC = Key("ec", "ES256")
ED = Key("ed", "EdDSA")
KEYS = read_key_set(key_set(RSA.public(), OTHER_RSA.public(), EC.public(), ED.public()))
RULES = ClaimRules()


def check(token: str, keys: SigningKeys = KEYS, rules: ClaimRules = RULES) -> Bearer:
    return check_bearer(token, keys, rules, NOW_MS)


def refused(token: str, keys: SigningKeys = KEYS, rules: ClaimRules = RULES) -> str:
    with pytest.raises(LoginRefused) as raised:
        check(token, keys, rules)
    return str(raised.value)


class TestValidTokens:
    @pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
    def test_every_algorithm_of_the_list(self, algorithm: str) -> None:
        key = Key("k", algorithm)
        keys = read_key_set(key_set(key.public()))
        bearer = check(key.sign(CLAIMS), keys)
        assert (bearer.name, bearer.expires_ms) == ("alice", (NOW + 3600) * 1000)

    def test_the_other_curve_of_eddsa(self) -> None:
        key = Key("k", "EdDSA", curve="Ed448")
        assert check(key.sign(CLAIMS), read_key_set(key_set(key.public()))).name == "alice"

    def test_the_list(self) -> None:
        assert {f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)} | {
            "EdDSA"
        } == ALGORITHMS

    def test_without_a_kid_where_one_key_fits(self) -> None:
        assert check(EC.sign(CLAIMS, kid=None)).name == "alice"

    @pytest.mark.parametrize("typ", [None, "JWT", "at+jwt"])
    def test_types(self, typ: str | None) -> None:
        assert check(RSA.sign(CLAIMS, typ=typ)).name == "alice"

    def test_the_names_of_claims_are_settings(self) -> None:
        rules = ClaimRules(subject_claim="preferred_username", scope_claim="scp")
        token = RSA.sign(CLAIMS | {"preferred_username": "bob", "scp": ["a", "b"]})
        bearer = check(token, rules=rules)
        assert (bearer.name, bearer.scopes) == ("bob", frozenset(("a", "b")))


class TestForgedTokens:
    @pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
    def test_without_a_signature(self, name: str) -> None:
        assert "algorithm" in refused(token_of({"alg": name, "kid": "rsa-1"}, CLAIMS))
        signature = RSA.sign(CLAIMS).rpartition(".")[2]
        assert "algorithm" in refused(f"{token_of({'alg': name, 'kid': 'rsa-1'}, CLAIMS)}{signature}")

    def test_the_signature_taken_away(self) -> None:
        assert "signature" in refused(f"{RSA.sign(CLAIMS).rpartition('.')[0]}.")

    @pytest.mark.parametrize("form", ["pem", "der", "jwk", "modulus"])
    def test_the_public_key_as_the_secret_of_an_hmac(self, form: str) -> None:
        public: Any = RSA.private.public_key()
        secret = {
            "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
            "jwk": json.dumps(RSA.public()).encode(),
            "modulus": public.public_numbers().n.to_bytes(256, "big"),
        }[form]
        assert "algorithm" in refused(hmac_token(secret, CLAIMS, kid="rsa-1"))

    def test_a_secret_in_the_key_set_is_not_a_key(self) -> None:
        secret = {"kty": "oct", "kid": "hmac", "k": base64url(b"s" * 32), "alg": "HS256"}
        keys = read_key_set(key_set(RSA.public(), secret))
        assert len(keys) == 1
        assert "algorithm" in refused(hmac_token(b"s" * 32, CLAIMS, kid="hmac"), keys)

    def test_signed_by_somebody_else(self) -> None:
        assert refused(STRANGER.sign(CLAIMS)) == "the token's signature is wrong"

    def test_another_kid(self) -> None:
        """The key is one of ours, and not the one that the token names."""
        assert "signature" in refused(RSA.sign(CLAIMS, kid="rsa-2"))

    def test_an_unknown_kid(self) -> None:
        with pytest.raises(UnknownKey):
            check(RSA.sign(CLAIMS, kid="new"))

    def test_no_kid_and_several_keys(self) -> None:
        assert "which key" in refused(RSA.sign(CLAIMS, kid=None))

    @pytest.mark.parametrize("kid", [1, ["rsa-1"], {"a": 1}, True])
    def test_a_kid_that_is_not_a_text(self, kid: object) -> None:
        assert "kid" in refused(RSA.sign(CLAIMS, kid=kid))

    @pytest.mark.parametrize("algorithm", ["RS384", "PS256", "ES256", "EdDSA", "ES256K", "HS512"])
    def test_another_algorithm_than_that_of_the_signature(self, algorithm: str) -> None:
        refused(RSA.sign(CLAIMS, alg=algorithm))

    @pytest.mark.parametrize("alg", [None, 1, ["RS256"], {}])
    def test_an_algorithm_that_is_not_a_text(self, alg: object) -> None:
        assert "alg" in refused(RSA.sign(CLAIMS, alg=alg))

    def test_other_claims_under_the_same_signature(self) -> None:
        header, _, signature = RSA.sign(CLAIMS).split(".")
        claims = base64url(json.dumps(CLAIMS | {"sub": "admin"}).encode())
        assert "signature" in refused(f"{header}.{claims}.{signature}")

    def test_every_byte_of_the_signature_counts(self) -> None:
        signed, _, signature = ED.sign(CLAIMS).rpartition(".")
        for at in range(0, len(signature), 7):
            other = "A" if signature[at] != "A" else "B"
            refused(f"{signed}.{signature[:at]}{other}{signature[at + 1 :]}")

    @pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c"])
    def test_keys_that_the_token_brings_along_are_not_looked_at(self, name: str) -> None:
        brought: dict[str, Any] = {
            "jwk": STRANGER.public(),
            "jku": "https://attacker.example/keys",
            "x5u": "https://attacker.example/chain.pem",
            "x5c": ["MIIB"],
        }
        assert "signature" in refused(STRANGER.sign(CLAIMS, **{name: brought[name]}))
        assert check(RSA.sign(CLAIMS, **{name: brought[name]})).name == "alice"

    @pytest.mark.parametrize("crit", [["exp"], ["b64"], [], "x", None])
    def test_what_is_critical_is_not_understood(self, crit: object) -> None:
        token = token_of({"alg": "RS256", "kid": "rsa-1", "crit": crit}, CLAIMS, b"x" * 256)
        assert "crit" in refused(token)

    def test_an_unencoded_payload(self) -> None:
        assert "crit" in refused(RSA.sign(CLAIMS, b64=False, crit=["b64"]))


class TestMalformedTokens:
    @pytest.mark.parametrize(
        "token",
        [
            "",
            ".",
            "..",
            "a.b",
            "a.b.c.d",
            "a.b.c.d.e",  # an encrypted one
            "é.é.é",
            "e30.e30.e30",
            f"{RSA.sign(CLAIMS)}.{RSA.sign(CLAIMS).rpartition('.')[2]}",  # two signatures
            RSA.sign(CLAIMS).replace(".", "=."),
            f"{RSA.sign(CLAIMS)}=",
            f"{RSA.sign(CLAIMS)} ",
            f"\n{RSA.sign(CLAIMS)}",
            token_of([], CLAIMS),
            token_of("RS256", CLAIMS),
            token_of({"alg": "RS256"}, []),
            token_of({"alg": "RS256"}, b"nothing"),
            token_of(b"\xff", CLAIMS),
            token_of(b'{"alg": "RS256"', CLAIMS),
            token_of(b'\xef\xbb\xbf{"alg": "RS256"}', CLAIMS),
        ],
    )
    def test_what_cannot_be_read(self, token: str) -> None:
        refused(token)

    def test_json_of_several_signatures(self) -> None:
        protected, payload, signature = RSA.sign(CLAIMS).split(".")
        one = {"protected": protected, "signature": signature}
        refused(json.dumps({"payload": payload, "signatures": [one, one]}))

    def test_base64_with_unused_bits(self) -> None:
        """Two texts of the same bytes: a list of revoked tokens would know only one of them."""
        header, claims, signature = ED.sign(CLAIMS).split(".")
        assert len(signature) % 4 == 2
        last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".index(signature[-1])
        assert last % 16 == 0
        other = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last + 1]
        assert "base64url" in refused(f"{header}.{claims}.{signature[:-1]}{other}")

    def test_too_long(self) -> None:
        token = RSA.sign(CLAIMS | {"groups": ["g" * 100] * 700})
        assert len(token) > TOKEN_BYTES_MAX
        assert "bytes" in refused(token)
        assert "bytes" in refused("." * (TOKEN_BYTES_MAX + 1))

    @pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
    def test_a_bomb_of_brackets(self, bracket: bytes) -> None:
        bomb = bracket * (40_000 // len(bracket))
        assert "cannot be read" in refused(ED.sign_bytes(bomb))
        assert "header of" in refused(token_of(bomb, CLAIMS))
        assert "cannot be read" in refused(token_of(bomb[:6000], CLAIMS))
        closed = b"[" * 2_500 + b"]" * 2_500
        assert "nested" in refused(token_of(b'{"alg": "RS256", "x": ' + closed + b"}", CLAIMS))
        assert "nested" in refused(ED.sign_bytes(b'{"sub": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"))

    def test_claims_are_not_parsed_before_the_signature_is_checked(self) -> None:
        """Anybody could make us parse 64 KiB."""
        for claims in (b"[" * 40_000, b'{"a": 1, "a": 2}', b"nothing"):
            token = token_of({"alg": "EdDSA", "kid": "ed"}, claims, b"x" * 64)
            assert refused(token) == "the token's signature is wrong"

    def test_a_key_twice(self) -> None:
        header = b'{"alg": "none", "alg": "RS256", "kid": "rsa-1"}'
        assert "twice" in refused(token_of(header, CLAIMS))
        claims = b'{"sub": "alice", "sub": "admin", "iat": 1, "exp": 9999999999}'
        assert "twice" in refused(ED.sign_bytes(claims))
        assert "twice" in refused(ED.sign_bytes(b'{"sub": "alice", "x": [{"a": 1, "a": 2}]}'))

    @pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"9" * 5000, b"1e999", b"-1"])
    def test_numbers_that_are_no_moments(self, number: bytes) -> None:
        refused(ED.sign_bytes(b'{"sub": "alice", "iat": 1, "exp": ' + number + b"}"))

    def test_nothing_of_the_token_is_printed(self) -> None:
        token = RSA.sign(CLAIMS | {"email": "alice@example.com"})
        read = read_token(token)
        for secret in ("alice", token.split(".")[0], token.split(".")[2]):
            assert secret not in repr(read)
        assert "alice" not in refused(STRANGER.sign(CLAIMS))


class TestClaims:
    RULES = ClaimRules(issuer="https://issuer", audiences=frozenset(("kafka", "other")), clock_skew_s=30)
    GOOD = claims_at(NOW, iss="https://issuer", aud="kafka")

    def test_the_good_one(self) -> None:
        assert check(RSA.sign(self.GOOD), rules=self.RULES).name == "alice"

    @pytest.mark.parametrize(
        ("claims", "reason"),
        [
            ({"exp": NOW - 31}, "expired"),
            ({"exp": None}, "exp"),
            ({"exp": "tomorrow"}, "exp"),
            ({"exp": True}, "exp"),
            ({"iat": None}, "iat"),
            ({"iat": NOW + 31}, "not valid yet"),
            ({"iat": NOW + 31, "nbf": NOW}, "future"),
            ({"nbf": NOW + 31}, "not valid yet"),
            ({"exp": NOW + 5, "nbf": NOW + 10}, "before it begins"),
            ({"iss": "https://other"}, "somebody else"),
            ({"iss": None}, "somebody else"),
            ({"iss": ["https://issuer"]}, "iss"),
            ({"aud": "billing"}, "audience"),
            ({"aud": ["billing", "web"]}, "audience"),
            ({"aud": None}, "aud"),
            ({"aud": {"kafka": 1}}, "aud"),
            ({"aud": "kafka "}, "audience"),
            ({"sub": None}, "sub"),
            ({"sub": " "}, "sub"),
            ({"sub": 7}, "sub"),
            ({"sub": "a" * 2000}, "too long"),
            ({"sub": "half \ud800 a character"}, "not text"),
            ({"scope": 5}, "scope"),
        ],
    )
    def test_claims_that_are_refused(self, claims: dict[str, Any], reason: str) -> None:
        wrong = {name: value for name, value in (self.GOOD | claims).items() if value is not None}
        assert reason in refused(RSA.sign(wrong), rules=self.RULES)

    @pytest.mark.parametrize(
        "claims", [{"exp": NOW - 29}, {"iat": NOW + 29}, {"nbf": NOW + 29}, {"aud": ["web", "kafka"]}]
    )
    def test_claims_within_the_clock_skew(self, claims: dict[str, Any]) -> None:
        token = RSA.sign(self.GOOD | {"iat": NOW - 100} | claims)
        assert check(token, rules=self.RULES).name == "alice"

    def test_names_in_other_scripts(self) -> None:
        assert check(RSA.sign(CLAIMS | {"sub": "Ærø 日本"})).name == "Ærø 日本"


class TestUnsignedTokens:
    def test_they_need_no_signature(self) -> None:
        token = token_of({"alg": "none"}, CLAIMS)
        assert check_unsigned_bearer(token, RULES, NOW_MS).name == "alice"

    @pytest.mark.parametrize(
        "token",
        [
            RSA.sign(CLAIMS),
            token_of({"alg": "none"}, CLAIMS, b"x"),
            token_of({"alg": "none"}, CLAIMS | {"exp": NOW - 100}),
            token_of({"alg": "none"}, {}),
        ],
    )
    def test_the_rest_is_checked(self, token: str) -> None:
        with pytest.raises(LoginRefused):
            check_unsigned_bearer(token, RULES, NOW_MS)


class TestKeySets:
    def test_what_is_not_a_key_for_signatures_is_left_out(self) -> None:
        small = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
        modulus = base64url(small.n.to_bytes(128, "big"))
        good = RSA.public()
        entries: list[Any] = [
            good,
            RSA.public(kid="enc", use="enc"),
            RSA.public(kid="ops", key_ops=["encrypt"]),
            RSA.public(kid="alg", alg="RSA-OAEP"),
            RSA.public(kid="hmac", alg="HS256"),
            RSA.public(kid="ec", alg="ES256"),
            RSA.public(kid=5),
            RSA.public(kid="even", e=base64url(b"\x02")),
            RSA.public(kid="one", e=base64url(b"\x01")),
            RSA.public(kid="huge", e=good["n"]),
            {"kty": "RSA", "kid": "small", "n": modulus, "e": "AQAB"},
            {"kty": "RSA", "kid": "long", "n": base64url(b"\xff" * 2048), "e": "AQAB"},
            {"kty": "RSA", "kid": "no n", "e": "AQAB"},
            {"kty": "RSA", "kid": "no text", "n": 5, "e": [1]},
            EC.public(kid="curve", crv="secp256k1"),
            EC.public(kid="point", x=EC.public()["y"]),
            {"kty": "oct", "k": "AAAA"},
            {"kty": ["RSA"]},
            {"kty": "OKP", "crv": "X25519", "x": ED.public()["x"]},
            {},
            "RSA",
            None,
        ]
        assert len(read_key_set(key_set(*entries))) == 1

    def test_a_key_is_bound_to_its_algorithm(self) -> None:
        keys = read_key_set(key_set(RSA.public(alg="RS256")))
        assert check(RSA.sign(CLAIMS), keys).name == "alice"
        pss = Key("rsa-1", "PS256")
        pss.private = RSA.private
        assert check(pss.sign(CLAIMS)).name == "alice"
        with pytest.raises(UnknownKey):
            check(pss.sign(CLAIMS), keys)

    def test_the_private_part_is_not_kept(self) -> None:
        entry = ED.public() | {"d": base64url(ED.private.private_bytes_raw())}
        assert check(ED.sign(CLAIMS), read_key_set(key_set(entry))).name == "alice"

    def test_two_keys_of_one_id(self) -> None:
        keys = read_key_set(key_set(RSA.public(), STRANGER.public()))
        for key in (RSA, STRANGER):
            assert check(key.sign(CLAIMS), keys).name == "alice"
        assert "signature" in refused(OTHER_RSA.sign(CLAIMS, kid="rsa-1"), keys)

    @pytest.mark.parametrize(
        "document",
        [
            b"",
            b"[]",
            b"{}",
            b'{"keys": {}}',
            b'{"keys": []}',
            b'{"keys": [], "keys": []}',
            b"<html>",
            b"\xff",
            b"[" * 100_000,
            key_set(*[RSA.public()] * (KEYS_MAX + 1)),
            key_set(RSA.public(use="enc")),
        ],
    )
    def test_what_is_not_a_key_set(self, document: bytes) -> None:
        with pytest.raises(ValueError):
            read_key_set(document)
