"""`headrace consume` by a registry and as a group: decoded values, commits, and a clean leave."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from cli.shell import Inside, Shell
from harness.wait import eventually
from headrace import Consumer, Producer
from headrace.cli.decoding import json_text
from headrace.client.threads.admin import Admin
from headrace.schemas import Registry, avro_serializer, json_serializer, protobuf_serializer
from headrace.testing import Broker

TOPIC = "clicks"
CLICK = """{"type": "record", "name": "Click", "fields": [{"name": "ad", "type": "string"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "rate", "type": "double"}, {"name": "token", "type": "bytes"}]}"""
PROTO = 'syntax = "proto3"; message Other { int32 n = 1; } message Click { string ad = 1; int64 id = 2; }'
JSON_SCHEMA = '{"title": "Click", "type": "object", "properties": {"ad": {"type": "string"}}}'


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset({TOPIC: 2})
    return shared


@pytest.fixture
def headrace(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap_servers)
    return Inside(capsys)


def write(broker: Broker, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(TOPIC, value, key, partition=partition)


# --- by a registry ---------------------------------------------------------------------------------------


def test_every_format_is_decoded(headrace: Inside, broker: Broker) -> None:
    registry = Registry(broker.registry_url)
    avro = avro_serializer(registry, CLICK, topic="a")
    protobuf = protobuf_serializer(registry, "Click", schema=PROTO, topic="p")
    plain_json = json_serializer(registry, JSON_SCHEMA, topic="j")
    click = {"ad": "tee ☕", "price": Decimal("1.50"), "rate": float("inf"), "token": b"\xff"}
    write(
        broker,
        avro.to_bytes(click),
        protobuf.to_bytes({"ad": "tea", "id": 7}),
        plain_json.to_bytes({"ad": "tea"}),
        None,
    )
    shown = headrace("consume", TOPIC, "--registry", broker.registry_url)
    assert [json.loads(line) for line in shown.lines[:3]] == [
        {"ad": "tee ☕", "price": "1.50", "rate": "inf", "token": {"base64": "/w=="}},
        {"ad": "tea", "id": "7"},
        {"ad": "tea"},
    ]
    assert shown.lines[3:] == [""], "null stays null"
    assert shown.err == ""
    lines = headrace("consume", TOPIC, "--registry", broker.registry_url, "--json").json_lines
    assert [line["value"] for line in lines[1:]] == [
        {"ad": "tea", "id": "7"},
        {"ad": "tea"},
        None,
    ]
    assert [line["offset"] for line in lines] == [0, 1, 2, 3]
    assert "undecodable" not in lines[1]


def test_keys_and_formats(headrace: Inside, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(broker.registry_url)
    key = avro_serializer(registry, '"string"', topic=TOPIC, part="key").to_bytes("alice")
    value = avro_serializer(registry, '"long"', topic=TOPIC).to_bytes(42)
    assert value is not None
    write(broker, value, key=key)
    monkeypatch.setenv("HEADRACE_REGISTRY", broker.registry_url)
    form = ("--format", r"%p@%o %k=%s (%S)\n")
    assert headrace("consume", TOPIC, "--decode", "both", *form).lines == ['0@0 "alice"=42 (2)']
    assert headrace("consume", TOPIC, "--decode", "key", "-f", r"%k %S\n").lines == [f'"alice" {len(value)}']
    assert headrace("consume", TOPIC, "-f", r"%S\n").lines == [str(len(value))], "nobody said decode"


def test_an_id_in_a_header(headrace: Inside, broker: Broker) -> None:
    value, header = json_serializer(Registry(broker.registry_url), JSON_SCHEMA, topic="j").with_header(
        {"ad": "tea"}
    )
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(TOPIC, value, partition=0, headers=[header])
    assert headrace("consume", TOPIC, "--registry", broker.registry_url).lines == ['{"ad": "tea"}']


def test_what_cannot_be_decoded_is_shown_with_a_note(headrace: Inside, broker: Broker) -> None:
    good = avro_serializer(Registry(broker.registry_url), '"string"', topic=TOPIC).to_bytes("fine")
    assert good is not None
    unknown = b"\0" + struct.pack(">i", 99) + b"x"
    write(broker, b"plain text", unknown, good[:-1], good, b"")
    shown = headrace("consume", TOPIC, "--registry", broker.registry_url)
    assert shown.out.splitlines() == [b"plain text", unknown, good[:-1], b'"fine"', b""]
    notes = shown.err.splitlines()
    assert len(notes) == 4
    assert notes[0].startswith("clicks-0 offset 0: the value is printed without decoding: ")
    assert "99" in notes[1]
    lines = headrace("consume", TOPIC, "--registry", broker.registry_url, "--json")
    assert lines.err == ""
    assert [("undecodable" in each, each["value"]) for each in lines.json_lines[:1]] == [(True, "plain text")]
    assert lines.json_lines[3]["value"] == "fine"


def test_notes_do_not_fill_the_screen(headrace: Inside, broker: Broker) -> None:
    write(broker, *[b"text"] * 25)
    shown = headrace("consume", TOPIC, "--registry", broker.registry_url)
    assert len(shown.lines) == 25
    assert len(shown.err.splitlines()) == 11
    assert shown.err.splitlines()[-1] == "15 more records could not be decoded"


def test_a_registry_that_does_not_answer_ends_the_command(headrace: Inside, broker: Broker) -> None:
    write(broker, avro_serializer(Registry(broker.registry_url), '"string"', topic=TOPIC).to_bytes("x"))
    nowhere = ("--registry", "http://127.0.0.1:1", "--timeout", "2s", "--json")
    refused = headrace.attempt("consume", TOPIC, *nowhere)
    assert (refused.code, json.loads(refused.err)["error"]) == (1, "REGISTRY_UNREACHABLE")


def test_numbers_that_json_does_not_have() -> None:
    assert json.loads(json_text({"a": [float("nan"), 1.5]})) == {"a": ["nan", 1.5]}


# --- as a group ------------------------------------------------------------------------------------------


def offsets(broker: Broker, group: str) -> dict[int, int]:
    with Admin(broker.bootstrap_servers) as admin:
        return {at.partition: told.offset for at, told in admin.list_group_offsets(group).items()}


def state(broker: Broker, group: str) -> str:
    with Admin(broker.bootstrap_servers) as admin:
        return admin.describe_group(group).state


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_every_record_once(headrace: Inside, broker: Broker, protocol: str) -> None:
    consume = ("consume", TOPIC, "--group", "readers", "-X", f"group.protocol={protocol}")
    write(broker, b"1", b"2", b"3", partition=0)
    write(broker, b"4", partition=1)
    assert sorted(headrace(*consume).lines) == ["1", "2", "3", "4"]
    assert offsets(broker, "readers") == {0: 3, 1: 1}
    assert state(broker, "readers") == "Empty", "it has left"
    assert headrace(*consume).lines == [], "there is nothing left"
    write(broker, b"5", b"6", b"7", partition=1)
    assert headrace(*consume, "-n", "2").lines == ["5", "6"]
    assert offsets(broker, "readers") == {0: 3, 1: 3}, "what was not printed is not committed"
    assert headrace(*consume).lines == ["7"]


def test_where_a_group_begins(headrace: Inside, broker: Broker) -> None:
    write(broker, b"old", partition=0)
    assert headrace("consume", TOPIC, "-g", "late", "--from", "latest").lines == []
    assert headrace("consume", TOPIC, "-g", "early").lines == ["old"]
    assert headrace("consume", TOPIC, "-g", "early", "--from", "earliest").lines == [], "its offset counts"


def test_a_group_and_a_registry(headrace: Inside, broker: Broker) -> None:
    write(broker, avro_serializer(Registry(broker.registry_url), '"string"', topic=TOPIC).to_bytes("x"))
    shown = headrace("consume", TOPIC, "-g", "readers", "--registry", broker.registry_url, "--json")
    assert shown.json_lines[0]["value"] == "x"


def test_other_members_that_have_everything(headrace: Inside, broker: Broker) -> None:
    """The other member keeps both partitions, because it does not poll: what it has read is done, what it
    has not read does not come.
    """
    write(broker, b"1", partition=0)
    consume = ("consume", TOPIC, "--group", "shared")
    with Consumer(broker.bootstrap_servers, group_id="shared", auto_offset_reset="earliest") as other:
        other.subscribe([TOPIC])
        eventually(lambda: [message.value for message in other.poll(0.1)], [b"1"])
        other.commit()
        assert headrace(*consume).lines == []
        write(broker, b"2", partition=0)
        refused = headrace.attempt(*consume, "--timeout", "2s", "--json")
    assert (refused.code, refused.out) == (1, b"")
    told = json.loads(refused.err.splitlines()[-1])
    assert told["error"] == "TIMED_OUT"
    assert told["message"].startswith("group 'shared' assigned no partitions to this member within 2 s")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_commits_and_leaves(
    broker: Broker, new_shell: Callable[[str], Shell], number: signal.Signals
) -> None:
    write(broker, b"1", b"2", partition=1)
    reading = new_shell(broker.bootstrap_servers).start(
        "consume",
        TOPIC,
        "--group",
        "readers",
        "--follow",
        "--from",
        "earliest",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reading.stdout is not None
    assert [reading.stdout.readline(), reading.stdout.readline()] == [b"1\n", b"2\n"]
    write(broker, b"3", partition=1)
    assert reading.stdout.readline() == b"3\n"
    reading.send_signal(number)
    rest: Any = reading.communicate(timeout=120)
    assert (reading.returncode, rest) == (0, (b"", b""))
    assert offsets(broker, "readers")[1] == 3
    assert state(broker, "readers") == "Empty", "others need not wait for its session to end"


@pytest.mark.parametrize(
    "words",
    [("-p", "0"), ("--to", "5"), ("--from", "5"), ("--from", "-1h"), ("--decode", "all")],
    ids=" ".join,
)
def test_wrong_use(headrace: Inside, words: tuple[str, ...]) -> None:
    assert headrace.attempt("consume", TOPIC, "--group", "g", *words).code == 2
