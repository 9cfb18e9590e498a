"""OAUTHBEARER: the client's message, the conversation, and the claims of tokens."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.oauthbearer import (
    MESSAGE_BYTES_MAX,
    BearerLogin,
    ClaimRules,
    check_claims,
    error_json,
    read_message,
)

GOOD = b"n,,\x01auth=Bearer a.b.c\x01\x01"
NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000


class TestMessage:
    def test_the_example_of_the_rfc(self) -> None:
        """RFC 7628 §4.1, shorter."""
        message = (
            b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer vF9dft4q==\x01\x01"
        )
        read = read_message(message)
        assert (read.token, read.authzid) == ("vF9dft4q==", "user@example.com")
        assert read.extensions == {"host": "server.example.com", "port": "143"}

    @pytest.mark.parametrize(
        "message",
        [GOOD, b"y,,\x01auth=bearer a.b.c\x01\x01", b"n,,\x01auth=BEARER  a.b.c\x01\x01"],
    )
    def test_other_spellings(self, message: bytes) -> None:
        assert read_message(message).token == "a.b.c"

    def test_the_token_is_not_printed(self) -> None:
        assert "a.b.c" not in repr(read_message(GOOD))

    def test_an_escaped_name(self) -> None:
        assert read_message(b"n,a=a=2Cb=3Dc,\x01auth=Bearer x\x01\x01").authzid == "a,b=c"

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"\x01",
            b"n,,",
            b"n,,\x01",
            b"n,,\x01\x01",
            b"n,,\x01\x01\x01",
            b"n,,\x01auth=Bearer a\x01",
            b"n,,\x01auth=Bearer a",
            b"n,,\x01auth=Bearer a\x01\x01\x01",
            b"n,,\x01auth=Bearer a\x01\x01x",
            b"p=tls-unique,,\x01auth=Bearer a\x01\x01",
            b"n,\x01auth=Bearer a\x01\x01",
            b"n,a=,\x01auth=Bearer a\x01\x01",
            b"n,a=b=c,\x01auth=Bearer a\x01\x01",
            b"n,b,\x01auth=Bearer a\x01\x01",
            b"n,,\x01auth=Basic a\x01\x01",
            b"n,,\x01auth=Bearer\x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
            b'n,,\x01auth=Bearer a"b\x01\x01',
            b"n,,\x01host=x\x01\x01",
            b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
            b"n,,\x01auth=Bearer a\x01x=1\x01x=2\x01\x01",
            b"n,,\x01auth=Bearer a\x01x\x01\x01",
            b"n,,\x01auth=Bearer a\x01x=\x01\x01",
            b"n,,\x01auth=Bearer a\x01x1=y\x01\x01",
            "n,,\x01auth=Bearer a\x01x=ä\x01\x01".encode(),
            b"n,,\x01auth=Bearer \xff\x01\x01",
            b"n,,\x01auth=Bearer " + b"a" * MESSAGE_BYTES_MAX + b"\x01\x01",
        ],
    )
    def test_messages_that_are_refused(self, message: bytes) -> None:
        with pytest.raises(LoginRefused):
            read_message(message)


def longest_text(things: list[Any]) -> int:
    """Of those that the things refer to, directly or not."""
    longest = 0
    while things:
        thing = things.pop()
        if isinstance(thing, str | bytes):
            longest = max(longest, len(thing))
        elif not isinstance(thing, type):
            things += gc.get_referents(thing)
    return longest


class TestConversation:
    def test_a_valid_token(self) -> None:
        login = BearerLogin()
        assert login.read(GOOD).token == "a.b.c"
        assert login.accept("ada") == b""
        with pytest.raises(LoginRefused):
            login.read(GOOD)

    def test_nobody_acts_for_somebody_else(self) -> None:
        for authzid, is_accepted in ((b"ada", True), (b"admin", False)):
            login = BearerLogin()
            login.read(b"n,a=" + authzid + b",\x01auth=Bearer x\x01\x01")
            if is_accepted:
                login.accept("ada")
            else:
                with pytest.raises(LoginRefused, match="another user"):
                    login.accept("ada")

    @pytest.mark.parametrize("reply", [b"\x01", b"", GOOD, b"anything"])
    def test_a_refusal_is_told_and_then_final(self, reply: bytes) -> None:
        """Whatever the client answers to it."""
        login = BearerLogin()
        login.read(GOOD)
        assert json.loads(login.refuse("the token has expired", error_json())) == {"status": "invalid_token"}
        for _ in range(2):
            with pytest.raises(LoginRefused, match="expired"):
                login.read(reply)

    def test_a_refused_client_leaves_nothing_long_behind(self) -> None:
        """It may take its time to acknowledge the refusal, and there may be thousands of them."""
        login = BearerLogin()
        long = b"x" * 30_000
        login.read(b"n,a=" + long + b",\x01auth=Bearer " + long + b"\x01\x01")
        login.refuse("the token has expired", error_json())
        assert longest_text(list(vars(login).values())) < 1000

    def test_after_a_message_that_cannot_be_read_the_login_is_over(self) -> None:
        login = BearerLogin()
        for message in (b"rubbish", GOOD):
            with pytest.raises(LoginRefused):
                login.read(message)

    def test_the_error_is_json_whatever_it_contains(self) -> None:
        error = error_json("insufficient_scope", scope='a"b', openid_configuration="https://x/y")
        assert json.loads(error) == {
            "status": "insufficient_scope",
            "scope": 'a"b',
            "openid-configuration": "https://x/y",
        }


def claims(**changes: Any) -> dict[str, Any]:
    made = {"sub": "ada", "exp": NOW + 300, "iat": NOW - 10, **changes}
    return {key: value for key, value in made.items() if value is not ...}


class TestClaims:
    def test_the_bearer(self) -> None:
        bearer = check_claims(claims(scope="read write"), ClaimRules(), NOW_MS)
        assert (bearer.name, bearer.expires_ms, bearer.issued_ms) == (
            "ada",
            NOW_MS + 300_000,
            NOW_MS - 10_000,
        )
        assert bearer.scopes == {"read", "write"}

    def test_dates_may_have_fractions(self) -> None:
        assert check_claims(claims(exp=NOW + 0.5), ClaimRules(), NOW_MS).expires_ms == NOW_MS + 500

    @pytest.mark.parametrize("key", ["exp", "iat"])
    @pytest.mark.parametrize(
        "value", [..., None, "1700000300", True, float("nan"), float("inf"), -1, 2**60, [], {}]
    )
    def test_dates_that_are_not_dates(self, key: str, value: Any) -> None:
        with pytest.raises(LoginRefused, match=key):
            check_claims(claims(**{key: value}), ClaimRules(), NOW_MS)

    def test_a_number_too_large_for_a_float(self) -> None:
        with pytest.raises(LoginRefused, match="exp"):
            check_claims(claims(exp=10**400), ClaimRules(), NOW_MS)

    @pytest.mark.parametrize(("skew", "late"), [(0, 0), (30, 30), (30, 31)])
    def test_it_has_expired(self, skew: int, late: int) -> None:
        rules = ClaimRules(clock_skew_s=skew)
        with pytest.raises(LoginRefused, match="expired"):
            check_claims(claims(exp=NOW - late, iat=NOW - 100), rules, NOW_MS)
        check_claims(claims(exp=NOW - skew + 1, iat=NOW - 100), rules, NOW_MS)

    def test_it_is_not_valid_yet(self) -> None:
        check_claims(claims(nbf=NOW + 30, iat=NOW + 30), ClaimRules(), NOW_MS)
        with pytest.raises(LoginRefused, match="not valid yet"):
            check_claims(claims(nbf=NOW + 31), ClaimRules(), NOW_MS)
        with pytest.raises(LoginRefused, match="future"):
            check_claims(claims(iat=NOW + 31, nbf=NOW), ClaimRules(), NOW_MS)
        with pytest.raises(LoginRefused, match="nbf"):
            check_claims(claims(nbf="x"), ClaimRules(), NOW_MS)

    def test_it_expires_before_it_begins(self) -> None:
        with pytest.raises(LoginRefused, match="before it begins"):
            check_claims(claims(exp=NOW + 5, iat=NOW + 10), ClaimRules(), NOW_MS)
        with pytest.raises(LoginRefused, match="before it begins"):
            check_claims(claims(exp=NOW + 5, nbf=NOW + 10), ClaimRules(), NOW_MS)

    def test_the_issuer(self) -> None:
        rules = ClaimRules(issuer="https://idp")
        check_claims(claims(iss="https://idp"), rules, NOW_MS)
        for issuer in (..., None, "https://idp/", "https://evil", ["https://idp"]):
            with pytest.raises(LoginRefused):
                check_claims(claims(iss=issuer), rules, NOW_MS)
        check_claims(claims(iss="anybody"), ClaimRules(), NOW_MS)

    def test_the_audience(self) -> None:
        rules = ClaimRules(audiences=frozenset({"kafka", "kafka2"}))
        accepted: list[Any] = ["kafka", ["other", "kafka2"]]
        for audience in accepted:
            check_claims(claims(aud=audience), rules, NOW_MS)
        for audience in (..., None, "other", [], ["other"], "kaf", 5, {"kafka": 1}, [["kafka"]]):
            with pytest.raises(LoginRefused, match="aud"):
                check_claims(claims(aud=audience), rules, NOW_MS)

    def test_a_token_for_somebody_is_not_for_us_if_nobody_is_expected(self) -> None:
        check_claims(claims(), ClaimRules(), NOW_MS)
        with pytest.raises(LoginRefused, match="audience"):
            check_claims(claims(aud="other"), ClaimRules(), NOW_MS)

    def test_scopes(self) -> None:
        rules = ClaimRules(scopes=frozenset({"kafka"}), scope_claim="scp")
        check_claims(claims(scp="other kafka"), rules, NOW_MS)
        check_claims(claims(scp=["kafka"]), rules, NOW_MS)
        for scope in (..., "", "kafkas", [], 1, [1]):
            with pytest.raises(LoginRefused, match="scope"):
                check_claims(claims(scp=scope), rules, NOW_MS)

    @pytest.mark.parametrize("subject", [..., None, "", "  ", 5, ["ada"]])
    def test_the_subject(self, subject: Any) -> None:
        with pytest.raises(LoginRefused, match="no sub"):
            check_claims(claims(sub=subject), ClaimRules(), NOW_MS)
        with pytest.raises(LoginRefused, match="no email"):
            check_claims(claims(email=subject), ClaimRules(subject_claim="email"), NOW_MS)
        assert check_claims(claims(email="a@b"), ClaimRules(subject_claim="email"), NOW_MS).name == "a@b"

    @pytest.mark.parametrize(
        ("subject", "name"),
        [
            (" ada\n", "ada"),
            ("\x01ada", "ada"),
            ("ada\u3000", "ada\u3000"),
            ("\u00a0ada", "\u00a0ada"),
            ("ada\u2028", "ada\u2028"),
            ("\x85ada", "\x85ada"),
        ],
    )
    def test_blanks_around_the_subject_as_in_kafka(self, subject: str, name: str) -> None:
        """Kafka takes away what is not above a space, and nothing else: another name is another user."""
        assert check_claims(claims(sub=subject), ClaimRules(), NOW_MS).name == name
