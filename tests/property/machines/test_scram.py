"""SCRAM: our client against our broker, names of all kinds, and messages that nobody meant."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.errors import AuthenticationFailed
from headrace.client.security.sasl import ScramExchange
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.scram import (
    MECHANISMS,
    SHA_256,
    Mechanism,
    ScramLogin,
    credential_from_password,
    escape_name,
    new_nonce,
    unescape_name,
)

NAMES = st.text(
    alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12
)
PASSWORDS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
CREDENTIAL = credential_from_password(SHA_256, "pencil", b"salt")


@given(name=NAMES)
def test_names_survive_their_escape(name: str) -> None:
    escaped = escape_name(name)
    assert "," not in escaped
    assert unescape_name(escaped) == name


@settings(max_examples=40, deadline=None)
@given(
    mechanism=st.sampled_from(list(MECHANISMS.values())),
    user=NAMES,
    password=PASSWORDS,
    other=PASSWORDS,
    seed=st.integers(0, 2**32),
)
def test_our_client_logs_in_with_the_right_password_only(
    mechanism: Mechanism, user: str, password: str, other: str, seed: int
) -> None:
    rng = random.Random(seed)
    credential = credential_from_password(mechanism, password, rng.randbytes(16))
    for tried in {password, other}:
        client = ScramExchange(mechanism, user, tried, new_nonce(rng))
        server = ScramLogin(mechanism, rng, b"secret")
        assert server.read_first(client.first()).user == user
        final = client.answer(server.challenge(credential))
        assert final is not None
        if tried == password:
            assert client.answer(server.finish(final)) is None
        else:
            with pytest.raises(LoginRefused):
                server.finish(final)
            with pytest.raises(AuthenticationFailed):
                client.answer(server.server_error)


PIECES = st.lists(
    st.sampled_from(
        [
            b"n",
            b"y",
            b"p=",
            b",",
            b"=",
            b"a=",
            b"n=",
            b"r=",
            b"c=",
            b"c=biws",
            b"p=AAAA",
            b"m=",
            b"x",
            b"\0",
            b"\xff",
        ]
    )
    | st.binary(max_size=3),
    max_size=14,
).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(message=PIECES | st.binary(max_size=60), is_first=st.booleans())
def test_rubbish_is_never_more_than_a_refusal(message: bytes, is_first: bool) -> None:
    server = ScramLogin(SHA_256, random.Random(1), b"secret")
    if is_first:
        try:
            server.read_first(message)
        except LoginRefused:
            assert server.server_error.startswith(b"e=")
        return
    server.read_first(b"n,,n=user,r=x")
    server.challenge(CREDENTIAL)
    with pytest.raises(LoginRefused):
        server.finish(message)


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 200), bit=st.integers(0, 7), is_first=st.booleans())
def test_one_changed_bit_never_logs_in(at: int, bit: int, is_first: bool) -> None:
    """Whichever message a stranger on the line changes."""
    rng = random.Random(2)
    client = ScramExchange(SHA_256, "user", "pencil", new_nonce(rng))
    server = ScramLogin(SHA_256, rng, b"secret")
    first = client.first()
    try:
        server.read_first(_changed(first, at, bit) if is_first else first)
        final = client.answer(server.challenge(CREDENTIAL))
        assert final is not None
        server.finish(final if is_first else _changed(final, at, bit))
    except (LoginRefused, AuthenticationFailed):
        return
    raise AssertionError("a login with changed messages")


def _changed(message: bytes, at: int, bit: int) -> bytes:
    where = at % len(message)
    return message[:where] + bytes([message[where] ^ (1 << bit)]) + message[where + 1 :]
