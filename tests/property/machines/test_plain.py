"""PLAIN: every user and password that can be sent is read back, and rubbish is refused."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.plain import PlainLogin, read_plain

WORDS = st.text(
    alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
)


@given(user=WORDS, password=WORDS, acts=st.booleans())
def test_what_was_sent_is_read(user: str, password: str, acts: bool) -> None:
    message = f"{user if acts else ''}\0{user}\0{password}".encode()
    assert read_plain(message) == PlainLogin(user, password)


@given(message=st.binary(max_size=40))
def test_rubbish_is_never_more_than_a_refusal(message: bytes) -> None:
    with suppress(LoginRefused):
        login = read_plain(message)
        assert login.user
        assert login.password
