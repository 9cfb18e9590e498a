"""sasl.jaas.config as people paste it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.security.jaas import InvalidJaas, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ('username="alice" password="secret"', {"username": "alice", "password": "secret"}),
        ("username='alice' password=secret-1.x", {"username": "alice", "password": "secret-1.x"}),
        (r'password="a\"b\\c\n\101;="', {"password": 'a"b\\c\nA;='}),
        ("""password='a"b'""", {"password": 'a"b'}),
        (
            '\n  username = "a" // a note\n  /* another\n note */ password="b"',
            {"username": "a", "password": "b"},
        ),
        ('password=";"', {"password": ";"}),
        ("", {}),
    ],
)
def test_options(options: str, read: dict[str, str]) -> None:
    assert parse_jaas(f"{PLAIN} required {options};") == ("PlainLoginModule", read)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN,
        f'{PLAIN} required password="hush"',
        f'{PLAIN} perhaps password="hush";',
        f'{PLAIN} required password "hush";',
        f"{PLAIN} required password=;",
        f'{PLAIN} required password="hush"; {PLAIN} required;',
        f'{PLAIN} required password="hush;',
        f"{PLAIN} required password=hush{{}};",
    ],
)
def test_what_cannot_be_read_is_told_without_its_secrets(text: str) -> None:
    with pytest.raises(InvalidJaas, match=r"it must|options must|there is a") as raised:
        parse_jaas(text)
    assert "hush" not in str(raised.value)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab =;\"'\\/*\n1", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = parse_jaas(f"{PLAIN} required {text};")
    except InvalidJaas:
        return
    assert (read[0], "" in read.options) == ("PlainLoginModule", False)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(max_size=10), max_size=3))
def test_what_is_quoted_is_read_as_it_was(options: dict[str, str]) -> None:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    written = " ".join(f'{key}="{value.translate(escapes)}"' for key, value in options.items())
    assert parse_jaas(f"{PLAIN} required {written};").options == options
