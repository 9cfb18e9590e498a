"""`headrace schema`: a subject from its first version to its end, and records that are decoded by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as client
from harness.command_line import CommandLine
from headrace.cli.decoding import json_text
from headrace.schemas import Registry, avro_serializer
from headrace.testing import Broker

CLICK = '{"type": "record", "name": "Click", "fields": [{"name": "ad", "type": "string"}]}'
WITH_PRICE = CLICK.replace("}]}", '}, {"name": "price", "type": "double", "default": 0}]}')
WITH_COUNTRY = CLICK.replace("}]}", '}, {"name": "country", "type": "string"}]}')

Write = Callable[[str, str], str]


@pytest.fixture
def team(headrace: CommandLine, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Commands with the registry of the broker."""
    monkeypatch.setenv("HEADRACE_REGISTRY", broker.registry_url)
    return headrace


@pytest.fixture
def file(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_versions_are_registered_and_shown(team: CommandLine, file: Write) -> None:
    first, second = file("click.avsc", CLICK), file("later.avsc", WITH_PRICE)
    assert team("schema", "list").lines == []
    assert team("schema", "register", "clicks-value", first).lines == [
        "registered clicks-value version 1 with id 1"
    ]
    assert team("schema", "register", "clicks-value", first).lines == [
        "exists already: clicks-value version 1 with id 1"
    ]
    made = team("schema", "register", "clicks-value", second, "--json").json
    assert made == {"subject": "clicks-value", "version": 2, "id": 2, "created": True}
    assert team("schema", "list").lines == ["clicks-value"]
    (listed,) = team("schema", "list", "--json").json
    assert (listed["type"], listed["version"], listed["versions"]) == ("AVRO", 2, [1, 2])
    assert team("schema", "show", "clicks-value").out.decode() == f"{WITH_PRICE}\n"
    assert team("schema", "show", "clicks-value", "--version", "1").out.decode() == f"{CLICK}\n"
    assert team("schema", "show", "--id", "2").out.decode() == f"{WITH_PRICE}\n"
    shown = team("schema", "show", "clicks-value", "--json").json
    assert (shown["id"], shown["versions"], shown["compatibility"]) == (2, [1, 2], "BACKWARD")
    assert team("schema", "show", "--id", "1", "--json").json["schema"] == CLICK


def test_what_may_follow(team: CommandLine, file: Write) -> None:
    fits, breaks = file("later.avsc", WITH_PRICE), file("wrong.avsc", WITH_COUNTRY)
    team("schema", "register", "clicks-value", file("click.avsc", CLICK))
    assert team("schema", "check", "clicks-value", fits).lines == [
        "compatible with clicks-value under level BACKWARD"
    ]
    refused = team("schema", "check", "clicks-value", breaks, code=1)
    assert refused.lines[0] == "not compatible with clicks-value under level BACKWARD:"
    assert "country" in refused.out.decode()
    told = team("schema", "check", "clicks-value", breaks, "--version", "1", "--json", code=1).json
    assert told["compatible"] is False
    said = team.refused("schema", "register", "clicks-value", breaks)
    assert "is not compatible with clicks-value under level BACKWARD" in said
    assert "headrace schema level clicks-value --set" in said
    assert team("schema", "level", "clicks-value", "--set", "none").lines == ["NONE"]
    assert team("schema", "level", "--json").json == {"subject": None, "level": "BACKWARD"}
    team("schema", "register", "clicks-value", breaks)


def test_a_deleted_version_is_hidden_before_it_is_gone(team: CommandLine, file: Write) -> None:
    team("schema", "register", "clicks-value", file("a.avsc", CLICK))
    team("schema", "register", "clicks-value", file("b.avsc", WITH_PRICE))
    assert "Delete 2 versions of clicks-value?" in team.refused("schema", "delete", "clicks-value", code=2)
    assert team("schema", "delete", "clicks-value", "--version", "1", "--yes").lines == [
        "deleted clicks-value version 1"
    ]
    assert "has no version 1: it has versions 2" in team.refused(
        "schema", "show", "clicks-value", "--version", "1"
    )
    (some,) = team("schema", "list", "--deleted", "--json").json
    assert (some["versions"], some["deleted"]) == ([1, 2], [1])
    gone = team("schema", "delete", "clicks-value", "--yes", "--json").json
    assert gone == {"subject": "clicks-value", "versions": [2], "permanent": False}
    assert team("schema", "list").lines == []
    (hidden,) = team("schema", "list", "--deleted", "--json").json
    assert hidden["deleted"] == [1, 2]
    assert team("schema", "delete", "clicks-value", "--permanent", "--yes").lines == [
        "deleted permanently clicks-value versions 1, 2"
    ]
    assert team("schema", "list", "--deleted", "--json").json == []


def test_references_and_misspelt_names(team: CommandLine, file: Write) -> None:
    inner = file("phone.proto", 'syntax = "proto3"; message Phone { uint64 number = 1; }')
    outer = file(
        "person.proto", 'syntax = "proto3"; import "phone.proto"; message Person { Phone phone = 1; }'
    )
    team("schema", "register", "phone", inner)
    words = ("schema", "register", "person", outer)
    assert "NAME=SUBJECT:VERSION" in team.refused(*words, "-r", "phone.proto=phone", code=2)
    team(*words, "-r", "phone.proto=phone:1")
    shown = team("schema", "show", "person", "--json").json
    assert shown["references"] == [{"name": "phone.proto", "subject": "phone", "version": 1}]
    assert "Did you mean person?" in team.refused("schema", "show", "persn")
    assert "--type" in team.refused("schema", "register", "x", file("x.txt", "{}"), code=2)
    assert "Give either SUBJECT or --id" in team.refused("schema", "show", code=2)
    assert "--version cannot be used" in team.refused("schema", "show", "--id", "1", "-v", "1", code=2)
    Path(outer).write_bytes(b"\xff")
    assert "is not UTF-8 at byte 0" in team.refused(*words)


# --- decoding ----------------------------------------------------------------------------------------------


def test_records_are_decoded_and_others_shown_as_they_are(team: CommandLine, broker: Broker) -> None:
    broker.create_topic("clicks")
    serializer = avro_serializer(Registry(broker.registry_url), WITH_PRICE, topic="clicks")
    with client.Producer(broker.bootstrap_servers) as producer:
        producer.send("clicks", serializer.to_bytes({"ad": "tea", "price": 1.5}))
        producer.send("clicks", b"\0\0\0\0\x63xyz")
        producer.send("clicks", b"plain")
        producer.send("clicks", None)
        producer.flush()
    words = ("consume", "clicks", "--from", "earliest", "--to", "latest", "--decode", "value")
    printed = team(*words)
    assert printed.lines[0] == '{"ad": "tea", "price": 1.5}'
    assert printed.lines[2] == "plain"
    assert "clicks-0 offset 1: the value is printed without decoding" in printed.err
    one, unknown, plain, null = team(*words, "--json").json_lines
    assert one["value"] == {"ad": "tea", "price": 1.5}
    assert "99" in unknown["undecodable"]["value"]
    assert (plain["value"], "undecodable" in plain) == ("plain", True)
    assert null["value"] is None


def test_values_that_json_does_not_have() -> None:
    import datetime as dt
    from decimal import Decimal

    value = {
        "at": dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
        "price": Decimal("1.50"),
        "text": b"caf\xc3\xa9",
        "raw": b"\xff",
    }
    assert json.loads(json_text(value)) == {
        "at": "2026-01-31T12:00:00+00:00",
        "price": "1.50",
        "text": "café",
        "raw": {"base64": "/w=="},
    }
    assert json_text({"x": [float("nan"), float("-inf"), 1.5]}) == '{"x": ["nan", "-inf", 1.5]}'
