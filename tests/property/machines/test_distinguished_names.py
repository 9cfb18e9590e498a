"""Names of certificates: the text tells attributes apart whatever they contain, and rubbish is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.security.der import InvalidDer
from headrace.machines.security.distinguished_names import name_text, subject_of_certificate
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.principal_mapping import PrincipalMapping
from unit.machines.security.der_names import CN, EMAIL, ORG, OU, UTF8, certificate, name

KEYWORDS = {CN: "CN", OU: "OU", ORG: "O"}
VALUES = st.text(
    alphabet=st.sampled_from('abÄ ,=+<>#;"\\\0\r\n/OU') | st.characters(exclude_categories=["Cs"]),
    max_size=12,
)
PARTS = st.lists(
    st.lists(st.tuples(st.sampled_from([*KEYWORDS, EMAIL]), VALUES), min_size=1, max_size=3), max_size=5
)


def encoded(parts: list[list[tuple[str, str]]]) -> bytes:
    return name([[(kind, UTF8, value.encode()) for kind, value in part] for part in parts])


def read_back(text: str) -> list[list[tuple[str, str]]]:
    """RFC 2253 read from the left, by one who knows escapes only."""
    if not text:
        return []
    parts: list[list[tuple[str, str]]] = [[]]
    at = 0
    words = [""]  # keyword and value

    def finish() -> None:
        keyword, value = words
        parts[-1].append((keyword, value))
        words[:] = [""]

    while at < len(text):
        mark = text[at]
        if mark == "\\":
            if text[at + 1 : at + 3] == "00":
                words[-1] += "\0"
                at += 3
                continue
            words[-1] += text[at + 1]
            at += 2
            continue
        if mark == "=":
            words.append("")
        elif mark in ",+":
            finish()
            if mark == ",":
                parts.append([])
        else:
            words[-1] += mark
        at += 1
    finish()
    return parts


@given(parts=PARTS)
def test_the_text_has_the_attributes_and_nothing_else(parts: list[list[tuple[str, str]]]) -> None:
    expected = [
        [
            (KEYWORDS[kind], value)
            if kind in KEYWORDS
            else (kind, "#" + name([[(kind, UTF8, value.encode())]])[-len(value.encode()) - 2 :].hex())
            for kind, value in part
        ]
        for part in reversed(parts)
    ]
    text = name_text(encoded(parts))
    assert read_back(text) == expected
    assert subject_of_certificate(certificate(encoded(parts))) == text


@given(parts=PARTS)
def test_only_a_unit_matches_a_rule_for_that_unit(parts: list[list[tuple[str, str]]]) -> None:
    with_admins = [*parts, [(CN, "x,OU=Admins"), (ORG, "y+OU=Admins")]]
    is_admin = any(kind == OU and value.startswith("Admins") for part in with_admins for kind, value in part)
    mapping = PrincipalMapping(r"RULE:^(?s:.*)\bOU=Admins(?s:.*)$/admin/")
    text = name_text(encoded(with_admins))
    if is_admin:
        assert mapping.name(text) == "admin"
    else:
        with pytest.raises(LoginRefused):
            mapping.name(text)


@settings(max_examples=300)
@given(
    parts=PARTS,
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 400),
)
def test_changed_certificates_are_refused_or_read(
    parts: list[list[tuple[str, str]]], changes: list[tuple[int, int]], cut: int
) -> None:
    der = bytearray(certificate(encoded(parts)))
    for at, byte in changes:
        der[at % len(der)] = byte
    for hostile in (bytes(der), bytes(der[:cut])):
        with suppress(InvalidDer):
            subject_of_certificate(hostile)


@given(data=st.binary(max_size=100))
def test_rubbish_is_refused(data: bytes) -> None:
    with suppress(InvalidDer):
        name_text(data)
