"""OAUTHBEARER: what our client sends is read, and neither messages nor claims do more than be refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.security.oauthbearer import BearerExchange
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.oauthbearer import ClaimRules, check_claims, read_message

TOKENS = st.from_regex(r"[A-Za-z0-9\-._~+/]{1,30}={0,2}", fullmatch=True)
EXTENSIONS = st.dictionaries(
    st.from_regex(r"[A-Za-z]{1,8}", fullmatch=True).filter(lambda key: key != "auth"),
    st.from_regex(r"[\x21-\x7e \t\r\n]{1,10}", fullmatch=True),
    max_size=4,
)


@given(token=TOKENS, extensions=EXTENSIONS)
def test_what_our_client_sends_is_read(token: str, extensions: dict[str, str]) -> None:
    read = read_message(BearerExchange(token, extensions).first())
    assert (read.token, read.authzid, read.extensions) == (token, "", extensions)


PIECES = st.lists(
    st.sampled_from(
        [b"n,,", b"n,a=", b"y,", b"\x01", b"\x01\x01", b"auth=", b"Bearer ", b"a.b", b"=", b",", b"x=1"]
    )
    | st.binary(max_size=3),
    max_size=10,
).map(b"".join)


@settings(max_examples=400)
@given(message=PIECES)
def test_rubbish_is_never_more_than_a_refusal(message: bytes) -> None:
    with suppress(LoginRefused):
        assert read_message(message).token


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
TIMES = st.integers(999_900, 1_000_100) | st.floats(999_900, 1_000_100)


@settings(max_examples=400)
@given(
    claims=st.fixed_dictionaries(
        {},
        optional={
            "exp": TIMES | JSON,
            "iat": TIMES | JSON,
            "nbf": TIMES | JSON,
            "sub": st.just("ada") | JSON,
            "iss": st.just("idp") | JSON,
            "aud": st.just("kafka") | JSON,
            "scope": st.just("kafka") | JSON,
        },
    ),
    skew=st.sampled_from([0.0, 30.0]),
)
def test_claims_of_all_kinds_are_checked(claims: dict[str, Any], skew: float) -> None:
    """Whoever is accepted had all that it takes."""
    rules = ClaimRules("idp", frozenset({"kafka"}), frozenset({"kafka"}), skew)
    with suppress(LoginRefused):
        bearer = check_claims(claims, rules, 1_000_000_000)
        assert bearer.name == claims["sub"].strip() != ""
        assert claims["iss"] == "idp"
        assert claims["aud"] == "kafka" or "kafka" in claims["aud"]
        assert claims["iat"] <= 1_000_000 + skew
        assert claims["exp"] > 1_000_000 - skew
        assert claims.get("nbf", 0) <= 1_000_000 + skew
