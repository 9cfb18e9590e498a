"""`headrace schema` against a registry: what a team does with a subject from its first version to its end."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.completing import completed
from cli.shell import Inside
from headrace.testing import Broker

CLICK = '{"type": "record", "name": "Click", "fields": [{"name": "ad", "type": "string"}]}'
WITH_PRICE = CLICK.replace("}]}", '}, {"name": "price", "type": "double", "default": 0}]}')
WITH_COUNTRY = CLICK.replace("}]}", '}, {"name": "country", "type": "string"}]}')


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def headrace(shared: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    shared.reset()
    monkeypatch.setenv("HEADRACE_REGISTRY", shared.registry_url)
    return Inside(capsys)


@pytest.fixture
def files(tmp_path: Path) -> Any:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_the_life_of_a_subject(headrace: Inside, files: Any) -> None:
    first, second = files("click.avsc", CLICK), files("later.avsc", WITH_PRICE)
    assert headrace("schema", "list").lines == []
    assert headrace("schema", "register", "clicks-value", first).lines == [
        "registered clicks-value version 1 with id 1"
    ]
    assert headrace("schema", "register", "clicks-value", first).lines == [
        "exists already: clicks-value version 1 with id 1"
    ]
    made = headrace("schema", "register", "clicks-value", second, "--json").json
    assert made == {"subject": "clicks-value", "version": 2, "id": 2, "created": True}
    assert headrace("schema", "list").lines == ["clicks-value"]
    (listed,) = headrace("schema", "list", "--json").json
    assert listed == {
        "subject": "clicks-value",
        "type": "AVRO",
        "version": 2,
        "id": 2,
        "versions": [1, 2],
        "deleted": [],
    }
    assert headrace("schema", "show", "clicks-value").out.decode() == f"{WITH_PRICE}\n"
    assert headrace("schema", "show", "clicks-value", "--version", "1").out.decode() == f"{CLICK}\n"
    assert headrace("schema", "show", "--id", "2").out.decode() == f"{WITH_PRICE}\n"
    shown = headrace("schema", "show", "clicks-value", "--json").json
    assert (shown["version"], shown["id"], shown["type"], shown["schema"]) == (2, 2, "AVRO", WITH_PRICE)
    assert (shown["versions"], shown["compatibility"], shown["references"]) == ([1, 2], "BACKWARD", [])


def test_what_may_follow(headrace: Inside, files: Any) -> None:
    fits, breaks = files("later.avsc", WITH_PRICE), files("wrong.avsc", WITH_COUNTRY)
    headrace("schema", "register", "clicks-value", files("click.avsc", CLICK))
    assert headrace("schema", "check", "clicks-value", fits).lines == [
        "compatible with clicks-value under level BACKWARD"
    ]
    told = headrace("schema", "check", "clicks-value", fits, "--version", "1", "--json").json
    assert told == {"subject": "clicks-value", "compatible": True, "level": "BACKWARD", "reasons": []}

    refused = headrace.attempt("schema", "check", "clicks-value", breaks)
    assert refused.code == 1
    assert refused.lines[0] == "not compatible with clicks-value under level BACKWARD:"
    assert "country" in refused.out.decode()
    told = headrace.attempt("schema", "check", "clicks-value", breaks, "--json")
    assert (told.code, told.json["compatible"], told.err) == (1, False, "")
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in reason for reason in told.json["reasons"])

    refused = headrace.attempt("schema", "register", "clicks-value", breaks)
    assert refused.code == 1
    assert refused.err.splitlines()[0] == (
        "Error: the schema is not compatible with clicks-value under level BACKWARD (code 409)."
    )
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.err
    assert "headrace schema level clicks-value --set" in refused.err
    told = headrace.attempt("schema", "register", "clicks-value", breaks, "--json")
    assert (json.loads(told.err)["error"], json.loads(told.err)["code"]) == ("INCOMPATIBLE", 409)
    assert headrace("schema", "level", "clicks-value", "--set", "none").lines == ["NONE"]
    assert headrace("schema", "level").lines == ["BACKWARD"]
    headrace("schema", "register", "clicks-value", breaks)


def test_softly_and_for_good(headrace: Inside, files: Any) -> None:
    for name in ("a.avsc", "b.avsc"):
        text = CLICK if name == "a.avsc" else WITH_PRICE
        headrace("schema", "register", "clicks-value", files(name, text))
    unsure = headrace.attempt("schema", "delete", "clicks-value")
    assert unsure.code == 2
    assert "Delete 2 versions of clicks-value?" in unsure.err
    assert headrace("schema", "list").lines == ["clicks-value"], "nothing happened without consent"

    assert headrace("schema", "delete", "clicks-value", "--version", "1", "--yes").lines == [
        "deleted clicks-value version 1"
    ]
    missing = headrace.attempt("schema", "show", "clicks-value", "--version", "1")
    assert (missing.code, "has no version 1: it has versions 2" in missing.err) == (1, True)
    gone = headrace("schema", "delete", "clicks-value", "--yes", "--json").json
    assert gone == {"subject": "clicks-value", "versions": [2], "permanent": False}
    assert headrace("schema", "list").lines == []
    (hidden,) = headrace("schema", "list", "--deleted", "--json").json
    assert (hidden["versions"], hidden["deleted"]) == ([1, 2], [1, 2])
    assert headrace("schema", "show", "--id", "1").code == 0, "what was written can still be read"

    gone = headrace("schema", "delete", "clicks-value", "--permanent", "--yes", "--json").json
    assert gone == {"subject": "clicks-value", "versions": [1, 2], "permanent": True}
    assert headrace("schema", "list", "--deleted").lines == []


def test_a_living_subject_is_deleted_for_good_at_once(headrace: Inside, files: Any) -> None:
    headrace("schema", "register", "clicks-value", files("click.avsc", CLICK))
    headrace("schema", "delete", "clicks-value", "--version", "1", "--permanent", "--yes")
    assert headrace("schema", "list", "--deleted").lines == []


def test_other_formats_references_and_stdin(
    headrace: Inside, files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    money = files("money.proto", 'syntax = "proto3"; message Money { int64 cents = 1; }')
    order = files(
        "order.proto",
        'syntax = "proto3"; import "money.proto"; message Order { Money price = 1; }',
    )
    headrace("schema", "register", "money", money)
    headrace("schema", "register", "orders-value", order, "--reference", "money.proto=money:1")
    shown = headrace("schema", "show", "orders-value", "--json").json
    assert shown["type"] == "PROTOBUF"
    assert shown["references"] == [{"name": "money.proto", "subject": "money", "version": 1}]
    headrace("schema", "register", "pets-value", files("pet.json", '{"type": "object"}'))
    piped = io.TextIOWrapper(io.BytesIO(CLICK.encode()))
    monkeypatch.setattr(sys, "stdin", piped)
    headrace("schema", "register", "clicks-value", "-", "--type", "avro")
    listed = {one["subject"]: one["type"] for one in headrace("schema", "list", "--json").json}
    assert listed == {
        "clicks-value": "AVRO",
        "money": "PROTOBUF",
        "orders-value": "PROTOBUF",
        "pets-value": "JSON",
    }


def test_what_goes_wrong(headrace: Inside, files: Any) -> None:
    avro = files("click.avsc", CLICK)
    headrace("schema", "register", "clicks-value", avro)
    for words in [("show", "click-value"), ("check", "click-value", avro), ("delete", "click-value", "-y")]:
        refused = headrace.attempt("schema", *words)
        assert refused.code == 1
        assert "Did you mean clicks-value?" in refused.err, words
    told = headrace.attempt("schema", "show", "click-value", "--json")
    assert json.loads(told.err)["error"] == "SCHEMA_UNKNOWN"
    invalid = headrace.attempt("schema", "register", "clicks-value", files("x.avsc", "{"), "--json")
    assert (json.loads(invalid.err)["error"], json.loads(invalid.err)["code"]) == ("REGISTRY_REFUSED", 42201)
    nobody = headrace.attempt(
        "schema", "list", "--registry", "http://127.0.0.1:1", "--timeout", "1s", "--json"
    )
    assert json.loads(nobody.err)["error"] == "REGISTRY_UNREACHABLE"


@pytest.mark.parametrize(
    "words",
    [
        ("show",),
        ("show", "s", "--id", "1"),
        ("show", "--id", "1", "--version", "1"),
        ("register", "s", "/nowhere.avsc"),
        ("register", "s", "-"),
        ("register", "s", "-", "-t", "avro", "-r", "name=subject"),
        ("level", "--set", "SOMETIMES"),
    ],
    ids=" ".join,
)
def test_wrong_use(headrace: Inside, words: tuple[str, ...]) -> None:
    assert headrace.attempt("schema", *words).code == 2


def test_subjects_are_completed(headrace: Inside, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.cli import completers

    monkeypatch.setattr(completers, "TIMEOUT_S", 60.0)
    headrace("schema", "register", "clicks-value", files("click.avsc", CLICK))
    for words in [("show",), ("register",), ("check",), ("delete",), ("level",)]:
        assert completed("schema", *words, "cl") == ["clicks-value"]
